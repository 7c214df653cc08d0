"""A session of episodes that a person plays, without a window or a clock.

It is fed with readings of sticks and buttons, one per frame, and is always in one of these phases:

    ready --first input or countdown--> running --last goal, step limit, finish--> ready ... complete --finish--> over
                                        running <--pause--> paused                quit, from anywhere ----------> over
                                        running --before the rival--> waiting --its end--> ready

While the file cannot be written, for example on a full disk, no episode begins, and `finish` tries again.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import count
from typing import Any, Literal

from pidm_nav.console import counted
from pidm_nav.demos.recorder.controls import DEFLECTED, Command, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.players import Person, Player, Rival
from pidm_nav.limits import MAX_EPISODES, MAX_SEED, check_number
from pidm_nav.seeds import DEMONSTRATIONS
from pidm_nav.tasks import Task

Phase = Literal["ready", "running", "paused", "waiting", "complete", "over"]
Outcome = Literal["", "success", "failure"]
CATCH_UP = 8  # steps per frame of a rival that is not at its end when the person is
NEUTRAL = 0.2  # below this deflection, a stick counts as let go


@dataclass(frozen=True)
class Rules:
    """How episodes begin, how many there are and which ones are kept."""

    episodes: int | None = None  # the number to keep; None goes on until the person finishes
    seed: int = DEMONSTRATIONS.start  # of the first episode; later ones count up, leaving out those that the file has
    only_success: bool = False  # keep only episodes that reach all goals
    countdown: float = 0.0  # seconds after which an episode begins by itself; 0 waits for the first input
    fps: float = 30.0  # readings per second

    def __post_init__(self) -> None:
        check_number("fps", self.fps, 1, 240, integer=False)
        check_number("countdown", self.countdown, 0, 60, integer=False)
        check_number("seed", self.seed, 0, MAX_SEED)


class Session:
    """The episodes that a person plays, alone or with a rival, and that a file may keep.

    Fed with readings, one per frame, it steps the environment.
    """

    def __init__(
        self,
        task: Task,
        env_kwargs: Mapping[str, Any],
        rules: Rules,
        file: DemoFile | None = None,
        rival: Rival | None = None,
    ) -> None:
        if rules.episodes is not None:
            check_number("rounds" if file is None else "episodes", rules.episodes, 1, MAX_EPISODES)
        self.task, self.rules, self.file, self.rival = task, rules, file, rival
        self.layout = task.layout(env_kwargs) if task.has_2d_state else None  # the map, where it is drawn from states
        render_mode = None if task.has_2d_state else "rgb_array"
        self.person = Person(task, task.make_vec(1, render_mode=render_mode, **env_kwargs))
        self._players: list[Player] = [self.person] if rival is None else [self.person, rival]
        self.kept = 0
        self.message = ""
        self.outcome: Outcome = ""  # of the last episode, until the next one begins
        self.phase: Phase = "ready"
        self.results: list[str] = []  # what was said at the end of each episode
        used = file.seeds if file is not None else set()
        self._seeds: Iterator[int] = (seed for seed in count(rules.seed) if seed not in used)
        self._begin()
        if self.person.num_goals:
            what = "Do what Next says" if self.layout is None else "Touch the red goal"
            self.message = f"{what}, one goal after the other"

    @property
    def seconds_left(self) -> float:
        """The time until the episode begins by itself."""
        return self._countdown / self.rules.fps

    @property
    def problem(self) -> str:
        """Why what was kept is not on disk, if writing it has failed."""
        return "" if self.file is None else self.file.problem

    @property
    def message(self) -> str:
        """What the person is told; no episode is said to be kept before it is on disk."""
        if self._keeping and self.file is not None and not self.file.is_written():
            return f"Saving episode {self.kept}"
        return self._message

    @message.setter
    def message(self, text: str) -> None:
        self._message, self._keeping = text, False

    def meanings(self) -> dict[Command, str]:
        """Return what the commands do now; one that does nothing has an empty text."""
        begun = self.person.steps > 0
        pause = "resume" if self.phase == "paused" else "pause" if begun or self.rules.countdown else ""
        if self.phase == "waiting":
            return {"pause": "", "redo": "start over", "finish": "", "quit": "quit"}
        if not begun:
            redo = f"drop episode {self.kept}" if self._droppable else ""
            finish = "save and finish" if self.problem else "finish"
            return {"pause": pause, "redo": redo, "finish": finish, "quit": "quit"}
        if self.file is None:
            return {"pause": pause, "redo": "start over", "finish": "end it here", "quit": "quit"}
        end = f"end it here, {'not kept' if self.rules.only_success else 'keep it'}"
        return {"pause": pause, "redo": "drop and start over", "finish": end, "quit": "quit, drop this one"}

    def tick(self, reading: Reading) -> None:
        """Take in what the person does in one frame."""
        if reading.unplugged is not None:
            self.phase = "paused" if self.phase == "running" else self.phase
            self.message = f"{reading.unplugged} was unplugged"
        episode = self.person.rollout
        for command in reading.commands:
            self._obey(command)
        if self.phase == "ready" and self.person.rollout is episode:
            self._start(reading)
        if self.phase == "running":
            self._devices |= {reading.device: None}
            self.person.read(reading)
            for player in self._players:
                player.step()
            if self.person.rollout.done:
                self._end()
        elif self.phase == "waiting" and self.rival is not None:
            for _ in range(CATCH_UP):
                self.rival.step()
            self._end()

    def close(self) -> None:
        """Close the environments, and wait until all that was kept is on disk."""
        for player in self._players:
            player.env.close()
        if self.file is not None:
            self.file.close()

    def _begin(self, droppable: bool = False) -> None:
        """Make the next episode ready; the last one may be droppable until it starts."""
        seed = next(self._seeds)
        for player in self._players:
            player.reset(seed)
        self.phase = "ready"
        self._devices: dict[str, None] = {}  # in the order of their use
        self._droppable = droppable
        self._let_go = False  # a stick still held from the last episode must not begin this one
        self._countdown = round(self.rules.countdown * self.rules.fps)

    def _start(self, reading: Reading) -> None:
        """Begin to step with the first input, or when the countdown ends."""
        deflection = max(abs(reading.drive(source)) for source in self.person.sources)
        self._let_go |= deflection < NEUTRAL
        self._countdown = max(self._countdown - 1, 0)
        if self.file is not None and not self.file.is_written():
            return  # a finished episode is on disk before the next begins
        if self._countdown == 0 if self.rules.countdown else self._let_go and deflection > DEFLECTED:
            self.phase, self.message, self.outcome = "running", "", ""

    def _end(self) -> None:
        """End the episode, keep it if it is to be kept, and make the next one ready, when the rival has ended too."""
        if self.rival is not None and not self.rival.rollout.done:
            self.phase, self.message = "waiting", f"{self.rival.name} plays on"
            return
        (episode,) = self.person.rollout.episodes()
        episode = replace(episode, truncated=not episode.terminated)  # also one that the person ends here
        kept = bool(episode.success) or not self.rules.only_success
        self.kept += kept
        steps, goals = counted(len(episode), "step"), counted(self.person.num_goals, "goal")
        result = f"{steps}, return {self.person.total:.1f}"
        if self.person.num_goals:
            result = f"{self.person.goals_reached} of {goals} in {steps}"
            self.outcome = "success" if episode.success else "failure"
        if self.rival is not None:
            wins = self.rival.wins
            result = self.rival.compare(self.person)
            self.outcome = "success" if self.rival.wins > wins else "failure"
        elif self.file is not None:
            incomplete = ", though not all goals are reached" if self.outcome == "failure" else ""
            about = f"Episode {self.kept} kept{incomplete}" if kept else "Not kept, as only successes are"
            result = f"{about}: {result}"
        self.message = result
        self.results.append(result)
        if kept and self.file is not None:
            self.file.append(episode, {"device": ", ".join(self._devices), "fps": self.rules.fps})
            self._keeping = True
        self._begin(droppable=kept and self.file is not None)
        if self.kept == self.rules.episodes:
            self.phase = "complete"

    def _obey(self, command: Command) -> None:
        begun = self.person.steps > 0
        if command == "quit" or (command == "finish" and not begun):
            if command == "quit" or self.file is None or self.file.save():
                self.phase = "over"
        elif command == "finish":
            self._end()
        elif command == "pause":
            if self.phase == "paused":
                self.phase = "running" if begun else "ready"
            elif self.phase == "running" or (self.phase == "ready" and self.rules.countdown):
                self.phase = "paused"
        elif begun:
            self.message = "Dropped; again from the start"
            self._begin()
        elif self._droppable and self.file is not None:
            self.file.drop_last()
            self.message = f"Episode {self.kept} dropped"
            self.kept -= 1
            self._begin()
        else:
            self.message = "There is nothing to drop"
