"""One walker in a 3D level."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.goal_env import GoalEnv, RenderMode, read_action
from pidm_nav.tasks import find_task
from pidm_nav.world2d.layout import Layout
from pidm_nav.world2d.physics import check_disturbance
from pidm_nav.world3d.engine import SCREEN, TICS_PER_SECOND, Engine, Pose, import_vizdoom
from pidm_nav.world3d.levels import FACING, LOOKING_UP, NEAR, STILL_TICS, TOUCH, UNITS, Milestone, load_level

ObsType = Literal["pixels", "state"]

FRAME_SKIP = 3
"""Tics a step, if not said otherwise."""
THRUST = (28.0, 24.0, 5.0, 2.0)
"""What 1 stands for in a tic: forward and right in the engine's units of thrust, turn and look in degrees."""
RELEASED = 0.1
"""A walker stands still while it is told to go neither way further than this."""
HIGHEST = 512.0
"""Above any floor, in engine units."""
POSE = 6
"""Numbers of the state before the milestones' flags."""


class Command(NamedTuple):
    """An action on its way to the engine."""

    thrust: tuple[float, ...]  # forward, right, turn, look
    still: bool  # whether the movement stick is let go


NOTHING = Command((0.0, 0.0, 0.0, 0.0), still=True)


@dataclass(frozen=True)
class World3D:
    """A 3D task with its arguments, as they are given to `gym.make`."""

    task: str = "tour-3d"
    noise_std: float = 0.2  # standard deviation of the noise on each action component
    clip_noise: bool = True  # clip action plus noise to [-1, 1]
    deadzone: float = 0.1  # action components smaller than this count as 0, as on a gamepad
    obs_type: ObsType = "pixels"  # RGB images or state vectors
    image_size: int = 96  # width of the image observations in pixels
    frame_skip: int = FRAME_SKIP  # tics per step
    latency_ms: Sequence[float] = (0.0, 0.0)  # the least and the most delay of an action
    drop_frames: float = 0.0  # probability that a step returns the previous observation once more
    realtime: bool = False  # tics pass by the clock, whether or not the policy has decided

    def __post_init__(self) -> None:
        check_disturbance(self.noise_std, self.deadzone)
        if self.obs_type not in get_args(ObsType):
            raise ValueError(f"obs_type is {self.obs_type!r}: choose 'pixels' or 'state'")
        for name, low, high in (("image_size", 16, SCREEN[1]), ("frame_skip", 1, TICS_PER_SECOND)):
            value = getattr(self, name)
            if not (isinstance(value, int) and low <= value <= high):
                raise ValueError(f"{name} is {value!r}: it must be a whole number from {low} to {high}")
        if len(self.latency_ms) != 2 or not 0 <= self.latency_ms[0] <= self.latency_ms[1] <= 1000:
            raise ValueError(
                f"latency_ms is {self.latency_ms!r}: give the least and the most, from 0 to 1000 milliseconds"
            )
        if not 0 <= self.drop_frames < 1:
            raise ValueError(f"drop_frames is {self.drop_frames}: it must be at least 0 and below 1")


class NavEnv3D(GoalEnv):
    """Pass a series of milestones in order through a 3D level, seen over the walker's shoulder.

    ## Ids
    | id | milestones | step limit | map |
    |---|---|---|---|
    | `PIDMNav3D-FourRoom-v0` | 4 | 600 | that of `PIDMNav-FourRoom-v0` |
    | `PIDMNav3D-Zigzag-v0` | 6 | 500 | that of `PIDMNav-Zigzag-v0` |
    | `PIDMNav3D-Maze-v0` | 10 | 900 | that of `PIDMNav-Maze-v0` |
    | `PIDMNav3D-Multiroom-v0` | 6 | 1200 | that of `PIDMNav-Multiroom-v0` |
    | `PIDMNav3D-Tour-v0` | 11 | 700 | hall, corridor, box, stairs, gallery, garden |

    ## Observation
    `Box(uint8)` of shape (3/4 `image_size`, `image_size`, 3): the RGB picture of the camera behind the walker. With
    `obs_type="state"` `Box(float32)`: `[x, y, z, cos, sin, pitch, reached for each milestone]` in engine units (3
    per pixel of the 2D room; x east, y north), the angle counterclockwise from east, the pitch in degrees upwards.

    ## Action
    `Box(-1, 1, (4,), float32)`: forward, right, turn right, look up; negative ones the other way. A value of 1 is
    9.3 units per tic forward and 8 sideways once the walker is up to speed, 5 degrees per tic turning, 2 looking.
    Larger values are clipped; an action of the wrong shape or with a NaN raises a ValueError.

    ## Transition
    A step holds the action for `frame_skip` tics of 1/35 s: 3, so that the agent acts 11.7 times per second, about
    as often as a person corrects a stick, and the tour takes some 400 steps. Components below the `deadzone` count
    as 0, N(0, `noise_std`) is added to each, and the sum is clipped to [-1, 1] (unless `clip_noise=False`). With
    `latency_ms=(low, high)` each action takes effect after a delay drawn uniformly, in whole tics; until then the
    previous one goes on. `drop_frames` is the probability that a step returns the previous observation once more.
    With `realtime=True` tics pass by the clock: the walker goes on while a policy decides, and a policy that takes
    longer than `frame_skip` tics misses frames. Otherwise the engine waits, and one seed gives one episode, to the
    bit.

    ## Reward and end
    The reward is 1 in the step that passes the current milestone and 0 otherwise; a step passes at most one. Most
    milestones are places to come within 60 units of along x and y. In the tour, `turn round`: face away from the
    wall; `look up`: raise the view by 15 degrees at the place; `stand still`: let go of the movement stick there
    for a second. The current milestone shines, later ones are small candles, passed ones are gone. The episode
    terminates with the last; the step limit truncates it.

    ## Info
    `goals_reached`, `num_goals`, `goal_ratio`, `is_success` (all passed), `reached_goal` (the index of the
    milestone that this step's reward is for, else -1), `milestone` (the current one's name, or `done`), `state`
    (the state vector, never delayed or dropped) and `tics` (how many this step took).

    ## Arguments
    `render_mode` (`"human"`, `"rgb_array"`: the picture in full size), `noise_std=0.2`, `clip_noise=True`,
    `deadzone=0.1`, `obs_type="pixels"`, `image_size=96`, `frame_skip=3`, `latency_ms=(0, 0)`, `drop_frames=0.0`,
    `realtime=False`.
    """

    metadata: dict[str, Any] = {**GoalEnv.metadata, "render_fps": 12}  # noqa: RUF012

    def __init__(self, world: World3D, render_mode: RenderMode | None = None) -> None:
        super().__init__(render_mode)
        self.world, self.title = world, find_task(world.task).title
        self.level = load_level(world.task)
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        self.observation_space = self._observation_space()
        import_vizdoom()  # says now, not at the first reset, how to install it
        self._engine: Engine | None = None  # started by the first reset
        self._still = 0  # tics
        self._pose: Pose | None = None  # None until the first reset
        self._held = NOTHING
        self._waiting: deque[tuple[int, Command]] = deque()  # tic from which a command holds, in order
        self._seen: NDArray[Any] = np.empty(0)

    @property
    def layout(self) -> Layout:
        """The map from above, in pixels."""
        return self.level.layout

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if self._engine is None:
            self._engine = Engine(self.level, self.world.realtime)
        engine = self._engine
        engine.begin(int(self.np_random.integers(2**31)))
        self._goals_reached = self._still = 0
        self._held = NOTHING
        self._waiting.clear()
        self._pose = engine.pose()
        self._seen = self._observe()
        if self.render_mode == "human":
            self.render()
        return self._seen.copy(), self._info(-1, 0)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Hold an action for `frame_skip` tics."""
        engine = self._running()
        command = self._disturb(np.array(read_action(action, ("forward", "right", "turn", "look"))))
        delay, drop = self.np_random.random(2)  # drawn whether or not they are used: the noise stays the same
        tics = self._run(engine, command, delay)
        self._pose = pose = engine.pose()
        reached_goal = -1
        milestones = self.level.milestones
        if self._goals_reached < len(milestones) and self._passes(milestones[self._goals_reached], pose):
            reached_goal = self._goals_reached
            self._goals_reached += 1
            engine.give_token()
        if drop >= self.world.drop_frames:
            self._seen = self._observe()
        if self.render_mode == "human":
            self.render()
        terminated = self._goals_reached == len(milestones)
        reward = 1.0 if reached_goal >= 0 else 0.0
        return self._seen.copy(), reward, terminated, False, self._info(reached_goal, tics)

    def get_state(self) -> NDArray[np.float32]:
        """The state vector, whatever is observed."""
        if self._pose is None:
            raise ValueError("there is no running episode: call reset() first")
        x, y, z, angle, pitch = self._pose
        turn = np.radians(angle)
        flags = np.arange(len(self.level.milestones)) < self._goals_reached
        return np.array([x, y, z, np.cos(turn), np.sin(turn), pitch, *flags], dtype=np.float32)

    def picture(self) -> NDArray[np.uint8]:
        """Return what the camera sees, twice as large in a window."""
        frame = self._running().frame()
        return frame.repeat(2, axis=0).repeat(2, axis=1) if self.render_mode == "human" else frame

    def close(self) -> None:
        """End the engine, and close the window if there is one."""
        super().close()
        if self._engine is not None:
            self._engine.close()
            self._engine = self._pose = None

    def _running(self) -> Engine:
        if self._engine is None:
            raise ValueError("there is no running episode: call reset() first")
        return self._engine

    def _disturb(self, action: NDArray[np.float64]) -> Command:
        """What becomes of an action on its way."""
        moved = np.where(np.abs(action) >= self.world.deadzone, action, 0.0)
        still = bool((np.abs(moved[:2]) <= RELEASED).all())
        moved = moved + self.world.noise_std * self.np_random.standard_normal(4)
        if self.world.clip_noise:
            moved = np.clip(moved, -1.0, 1.0)
        return Command(tuple((moved * THRUST).tolist()), still)

    def _run(self, engine: Engine, command: Command, delay: float) -> int:
        """Let `frame_skip` tics pass, or more where the clock is ahead already; returns how many did.

        A command waits its delay, drawn from [0, 1), while those before it go on.
        """
        low, high = (each * TICS_PER_SECOND / 1000 for each in self.world.latency_ms)  # in tics
        began = now = engine.tic
        due = began + round(low + (high - low) * delay)
        if self._waiting:
            due = max(due, self._waiting[-1][0])  # no command overtakes another
        self._waiting.append((due, command))
        while now < began + self.world.frame_skip:
            while self._waiting and self._waiting[0][0] <= now:
                self._held = self._waiting.popleft()[1]
            until = began + self.world.frame_skip
            if self._waiting:
                until = min(until, self._waiting[0][0])
            engine.advance(self._held.thrust, until - now)
            passed, now = engine.tic - now, engine.tic
            self._still = self._still + passed if self._held.still else 0
        return now - began

    def _passes(self, milestone: Milestone, pose: Pose) -> bool:
        """Whether the walker does now what a milestone asks for."""
        away = max(abs(pose.x - milestone.place[0]), abs(pose.y - milestone.place[1]))
        if milestone.kind == "turn":
            return abs((pose.angle - milestone.angle + 180) % 360 - 180) <= FACING
        if milestone.kind == "look up":
            return away < NEAR and pose.pitch >= LOOKING_UP
        if milestone.kind == "stand still":
            return away < NEAR and self._still >= STILL_TICS
        return away < TOUCH

    def _observe(self) -> NDArray[Any]:
        """A fresh observation."""
        if self.world.obs_type == "state":
            return self.get_state()
        from PIL import Image

        height, width, _ = self.observation_space.shape or ()
        picture = Image.fromarray(self._running().frame())
        return np.array(picture.resize((width, height), Image.Resampling.BOX))

    def _observation_space(self) -> spaces.Box:
        if self.world.obs_type == "pixels":
            return spaces.Box(
                0, 255, (self.world.image_size * SCREEN[0] // SCREEN[1], self.world.image_size, 3), np.uint8
            )
        width, height = self.level.layout.room_size
        flags = np.zeros(self.level.num_goals)
        low = np.array([0, 0, 0, -1, -1, -90, *flags], np.float32)
        high = np.array([UNITS * width, UNITS * height, HIGHEST, 1, 1, 90, *(flags + 1)], np.float32)
        return spaces.Box(low, high, dtype=np.float32)

    def _info(self, reached_goal: int, tics: int) -> dict[str, Any]:
        milestones = self.level.milestones
        return {
            **self.goal_info(len(milestones), reached_goal),
            "milestone": milestones[self._goals_reached].name if self._goals_reached < len(milestones) else "done",
            "state": self.get_state(),
            "tics": tics,
        }


def make_env(render_mode: RenderMode | None = None, **arguments: Any) -> NavEnv3D:
    """Make the environment of `gym.make`, whose arguments are those of `World3D`."""
    return NavEnv3D(World3D(**arguments), render_mode)
