"""A session of episodes that a person plays, without a window or a clock.

It is fed with readings of stick and buttons, one a frame, and is always in one of these phases:

    ready --first input or countdown--> running --last goal, step limit, finish--> ready ... complete --finish--> over
                                        running <--pause--> paused                quit, from anywhere ----------> over
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING, Any, Literal

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.dataset import Episode
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.gamepad import DEFLECTED, Reading
from pidm_nav.demos.recorder.mapping import Command
from pidm_nav.world2d.env import NavEnv
from pidm_nav.world3d.env import NavEnv3D

if TYPE_CHECKING:
    from pidm_nav.demos.recorder.race import Rival

Phase = Literal["ready", "running", "paused", "complete", "over"]
NEUTRAL = 0.2  # below, the stick is let go


@dataclass
class Attempt:
    """The episode that is running."""

    seed: int
    observations: list[NDArray[Any]]
    actions: list[NDArray[np.float32]] = field(default_factory=list)
    rewards: list[float] = field(default_factory=list)
    goals_reached: list[int] = field(default_factory=lambda: [0])
    states: list[NDArray[np.float32]] = field(default_factory=list)  # where observations are pictures
    device: str = ""

    def episode(self, terminated: bool) -> Episode:
        """All of it."""
        return Episode(
            np.stack(self.observations),
            np.stack(self.actions),
            np.array(self.rewards),
            terminated=terminated,
            truncated=not terminated,
            seed=self.seed,
            infos={
                "goals_reached": np.array(self.goals_reached, dtype=np.int16),
                **({"states": np.stack(self.states)} if self.states else {}),
            },
        )


class Session:
    """The episodes a person plays: fed with readings, one a frame, it steps the environment.

    Args:
        env: with default observations.
        episodes: to keep; None goes on until the person finishes.
        seed: of the first episode; the next ones count up, leaving out those the file has.
        file: where kept episodes go; None keeps nothing.
        only_success: keep only episodes that reached all goals.
        countdown: seconds after which an episode begins by itself; 0 waits for the first input.
        fps: readings a second.
        rival: who plays along.
    """

    def __init__(
        self,
        env: gym.Env[NDArray[Any], NDArray[np.float32]],
        episodes: int | None,
        seed: int = 0,
        file: DemoFile | None = None,
        only_success: bool = False,
        countdown: float = 0.0,
        fps: float = 30.0,
        rival: Rival | None = None,
    ) -> None:
        if episodes is not None and episodes < 1:
            raise ValueError(f"--episodes is {episodes}: it must be at least 1")
        if not 1 <= fps <= 240:
            raise ValueError(f"--fps is {fps}: it must be between 1 and 240")
        if not 0 <= countdown <= 60:
            raise ValueError(f"--countdown is {countdown}: it must be between 0 and 60 seconds")
        if seed < 0:
            raise ValueError(f"--seed is {seed}: it must be 0 or more")
        self.env, self.episodes, self.file, self.rival = env, episodes, file, rival
        self.only_success, self.countdown, self.fps = only_success, countdown, fps
        nav = env.unwrapped
        assert isinstance(nav, NavEnv | NavEnv3D)
        self.layout = nav.layout
        self.is_3d = isinstance(nav, NavEnv3D)
        self.num_goals = nav.level.num_goals if isinstance(nav, NavEnv3D) else nav.layout.num_goals
        self.milestone = ""  # the name of the current one, in 3D
        self.max_steps = env.spec.max_episode_steps if env.spec is not None else None
        self.kept = 0
        self.message = ""
        self.results: list[str] = []  # what was said at each episode's end
        self.phase: Phase = "ready"
        self._paused_in: Phase = "ready"
        self._seeds = self._free_seeds(seed)
        self._begin()

    @property
    def state(self) -> NDArray[np.float32]:
        """The state vector."""
        return np.asarray(self.attempt.observations[-1], dtype=np.float32)

    @property
    def steps(self) -> int:
        """Of the running episode."""
        return len(self.attempt.actions)

    @property
    def may_switch_device(self) -> bool:
        """Whether the person may take up another device: not in the middle of an episode."""
        return self.phase in ("ready", "complete")

    @property
    def seconds_left(self) -> float:
        """Until the episode begins by itself."""
        return self._countdown / self.fps

    def meanings(self) -> dict[Command, str]:
        """What the commands do now."""
        playing = self.file is None
        if not self.steps:
            redo = f"drop episode {self.kept}" if self._droppable else ""
            pause = "go on" if self.phase == "paused" else "pause" if self.countdown else ""
            return {"pause": pause, "redo": redo, "finish": "finish", "quit": "quit"}
        keep = "not kept" if self.only_success else "keep it"
        return {
            "pause": "go on" if self.phase == "paused" else "pause",
            "redo": "start over" if playing else "drop and start over",
            "finish": "end it here" if playing else f"end it here, {keep}",
            "quit": "quit" if playing else "quit, drop this one",
        }

    def tick(self, reading: Reading) -> None:
        """One frame."""
        if reading.unplugged is not None:
            self._unplugged(reading)
        for command in reading.commands:
            self._obey(command)
        if self.phase == "ready":
            self._start(reading)
        if self.phase == "running":
            self._step(reading)

    def _free_seeds(self, seed: int) -> Iterator[int]:
        used = self.file.seeds if self.file is not None else set()
        return (each for each in count(seed) if each not in used)

    def _begin(self) -> None:
        """Make the next episode ready."""
        seed = next(self._seeds)
        observation, info = self.env.reset(seed=seed)
        self.attempt = Attempt(seed, [observation])
        self._note(info)
        if self.rival is not None:
            self.rival.reset(seed)
        self.phase = "ready"
        self._droppable = False
        self._let_go = False  # a stick still held from the last episode must not begin this one
        self._countdown = round(self.countdown * self.fps)

    def _start(self, reading: Reading) -> None:
        deflection = float(np.abs(self._action(reading)).max())
        self._let_go |= deflection < NEUTRAL
        self._countdown = max(self._countdown - 1, 0)
        if self.file is not None and not self.file.is_written():
            return  # a finished episode is on disk before the next begins
        if self._countdown == 0 if self.countdown else self._let_go and deflection > DEFLECTED:
            self.phase, self.message = "running", ""
            self.attempt.device = reading.device

    def _step(self, reading: Reading) -> None:
        action = self._action(reading)
        observation, reward, terminated, truncated, info = self.env.step(action)
        attempt = self.attempt
        attempt.observations.append(observation)
        attempt.actions.append(action)
        attempt.rewards.append(float(reward))
        attempt.goals_reached.append(info["goals_reached"])
        self._note(info)
        if self.rival is not None:
            self.rival.step()
        if terminated or truncated:
            self._end(terminated)

    def _action(self, reading: Reading) -> NDArray[np.float32]:
        """What the sticks stand for: the velocity, or in 3D forward, right, turn and look."""
        (x, y), (turn, look) = reading.stick, reading.camera
        action = (-y, x, turn, -look) if self.is_3d else (x, y)  # a stick's y points down
        return np.clip(np.array(action, dtype=np.float32), -1.0, 1.0)

    def _note(self, info: dict[str, Any]) -> None:
        """Keep what only 3D environments tell."""
        if self.is_3d:
            self.attempt.states.append(info["state"])
            self.milestone = info["milestone"]

    def _end(self, terminated: bool) -> None:
        episode = self.attempt.episode(terminated)
        kept = episode.success or not self.only_success
        goals = f"{self.attempt.goals_reached[-1]} of {self.num_goals} goals in {len(episode)} steps"
        if kept:
            self.kept += 1
            self.message = f"Episode {self.kept} kept: {goals}"
            if self.file is not None:
                self.file.append(episode, {"device": self.attempt.device, "fps": self.fps})
        else:
            self.message = f"Not kept, as only successes are: {goals}"
        if self.rival is not None:
            self.message = self.rival.compare(episode)
        elif self.file is None:
            self.message = goals
        self.results.append(self.message)
        self._begin()
        self._droppable = kept and self.file is not None
        if self.kept == self.episodes:
            self.phase = "complete"

    def _obey(self, command: Command) -> None:
        if command == "quit":
            self.phase = "over"
        elif command == "pause":
            self._pause()
        elif command == "finish":
            if self.steps:
                self._end(terminated=False)
            else:
                self.phase = "over"
        elif self.steps:
            self.message = "Dropped; again from the start"
            self._begin()
        elif self._droppable and self.file is not None:
            self.file.drop_last()
            self.message = f"Episode {self.kept} dropped"
            self.kept -= 1
            self._begin()
        else:
            self.message = "There is nothing to drop"

    def _pause(self) -> None:
        if self.phase == "paused":
            self.phase = self._paused_in
        elif self.phase == "running" or (self.phase == "ready" and self.countdown):
            self._paused_in, self.phase = self.phase, "paused"

    def _unplugged(self, reading: Reading) -> None:
        if self.phase == "running":
            self._pause()
        self.message = f"{reading.unplugged} was unplugged"
        if self.steps:
            self.attempt.device += f", {reading.device}" if reading.device != self.attempt.device else ""
