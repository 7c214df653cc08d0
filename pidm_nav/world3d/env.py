"""NavEnv3D: the 3D navigation environment."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, get_args

import numpy as np
from gymnasium import spaces
from numpy.typing import NDArray

from pidm_nav.limits import check_number
from pidm_nav.ordered_goals import OrderedGoalsEnv, RenderMode, read_action
from pidm_nav.tasks import find_task
from pidm_nav.world2d.physics import check_disturbance
from pidm_nav.world3d.engine import SCREEN, TICS_PER_SECOND, Engine, Pose, import_vizdoom
from pidm_nav.world3d.levels import FACING, LOOKING_UP, NEAR, STILL_TICS, TOUCH, UNITS, Milestone, load_level

ObsType = Literal["pixels", "state"]

FRAME_SKIP = 3  # default number of tics per step
# per tic at an action of 1: forward and right in engine units, turn and look in degrees
THRUST = (28.0, 24.0, 5.0, 2.0)
POSE = 6  # features of the state before the flags of the milestones


Command = tuple[tuple[float, ...], bool]
"""Command to the engine: the thrust on each axis, and whether the movement stick is released."""
NOTHING: Command = ((0.0, 0.0, 0.0, 0.0), True)


@dataclass(frozen=True)
class World3D:
    """Arguments of a 3D task, for `gym.make`."""

    task: str = "tour-3d"
    noise_std: float = 0.2  # standard deviation of the noise on each action component
    clip_noise: bool = True  # clip action plus noise to [-1, 1]
    deadzone: float = 0.1  # smaller action components count as 0, as on a gamepad
    obs_type: ObsType = "pixels"  # observe RGB images or state vectors
    image_size: int = 96  # width of the image observations in pixels
    frame_skip: int = FRAME_SKIP  # tics per step
    latency_ms: Sequence[float] = (0.0, 0.0)  # shortest and longest delay of an action
    drop_frames: float = 0.0  # probability that a step returns the previous observation again
    realtime: bool = False  # run in real time, also while the policy decides

    def __post_init__(self) -> None:
        check_disturbance(self.noise_std, self.deadzone)
        if self.obs_type not in get_args(ObsType):
            raise ValueError(f"obs_type is {self.obs_type!r}: choose 'pixels' or 'state'")
        check_number("image_size", self.image_size, 16, SCREEN[1])
        check_number("frame_skip", self.frame_skip, 1, TICS_PER_SECOND)
        if len(self.latency_ms) != 2 or not 0 <= self.latency_ms[0] <= self.latency_ms[1] <= 1000:
            raise ValueError(f"latency_ms is {self.latency_ms!r}: give two delays with 0 <= low <= high <= 1000")
        if not 0 <= self.drop_frames < 1:
            raise ValueError(f"drop_frames is {self.drop_frames}: it must be at least 0 and below 1")


class NavEnv3D(OrderedGoalsEnv):
    """3D navigation: pass a series of milestones in order, seen over the walker's shoulder.

    ## Ids
    | id | milestones | step limit | map |
    |---|---|---|---|
    | `PIDMNav3D-FourRoom-v0` | 4 | 600 | `PIDMNav-FourRoom-v0`'s |
    | `PIDMNav3D-Zigzag-v0` | 6 | 500 | `PIDMNav-Zigzag-v0`'s |
    | `PIDMNav3D-Maze-v0` | 10 | 900 | `PIDMNav-Maze-v0`'s |
    | `PIDMNav3D-Multiroom-v0` | 6 | 1200 | `PIDMNav-Multiroom-v0`'s |
    | `PIDMNav3D-Tour-v0` | 11 | 700 | hall, corridor, box, stairs, gallery, garden |

    ## Observation
    `Box(uint8)` of shape (3/4 `image_size`, `image_size`, 3): the RGB picture of the camera behind the walker. With
    `obs_type="state"` `Box(float32)`: `[x, y, z, cos, sin, pitch, reached for each milestone]` in engine units (3
    per pixel of the 2D room; x east, y north), the angle counterclockwise from east, the pitch in degrees upwards.

    ## Action
    `Box(-1, 1, (4,), float32)`: forward, right, turn right, look up; negative values do the opposite. A value of 1 is
    9.3 units per tic forward and 8 sideways once the walker is up to speed, 5 degrees per tic turning, 2 looking.
    Larger values are clipped; an action of the wrong shape or with a NaN raises a ValueError.

    ## Transition
    A step holds the action for `frame_skip` tics of 1/35 s: 3, so that the agent acts 11.7 times per second, about
    as often as a person corrects a stick, and the tour takes some 400 steps. Components below the `deadzone` count
    as 0, N(0, `noise_std`) is added to each, and the sum is clipped to [-1, 1] (unless `clip_noise=False`). With
    `latency_ms=(low, high)` each action takes effect after a delay drawn uniformly, in whole tics; until then the
    previous one continues. `drop_frames` is the probability that a step returns the previous observation again.
    With `realtime=True` tics follow the clock: the walker moves on while a policy decides, and a policy that takes
    longer than `frame_skip` tics misses frames. Otherwise the engine waits, and the same seed and actions give the
    bitwise identical episode.

    ## Reward and end
    The reward is 1 in the step that passes the current milestone and 0 otherwise; a step passes at most one. Most
    milestones are places to come within 60 units of along x and y. In the tour, `turn round` means to face away from
    the wall, `look up` to raise the view by 15 degrees at the place, and `stand still` to release the movement stick
    there for a second. The current milestone shines, later ones are small candles, passed ones are gone. The episode
    terminates when the last milestone is passed; the step limit truncates it.

    ## Info
    `goals_reached`, `num_goals`, `goal_ratio`, `is_success` (all passed), `reached_goal` (the index of the
    milestone that this step's reward is for, or -1), `milestone` (the current one's name, or `done`), `achieved`
    (for each milestone, whether what it asks for was done at any time, in whatever order), `state` (the state vector,
    never delayed or dropped) and `tics` (how many this step took).

    ## Arguments
    `render_mode` (`"human"`, `"rgb_array"`: the picture in full size) and the fields of
    `pidm_nav.world3d.env.World3D`, such as `noise_std=0.2` and `image_size=96`.
    """

    metadata: dict[str, Any] = {**OrderedGoalsEnv.metadata, "render_fps": 12}  # noqa: RUF012

    def __init__(self, render_mode: RenderMode | None = None, **arguments: Any) -> None:
        self.world = world = World3D(**arguments)
        self.level = load_level(world.task)
        self.layout = self.level.layout
        super().__init__(find_task(world.task).title, self.level.num_goals, render_mode)
        self.action_space = spaces.Box(-1.0, 1.0, (4,), np.float32)
        if world.obs_type == "pixels":
            shape = (world.image_size * SCREEN[0] // SCREEN[1], world.image_size, 3)
            self.observation_space = spaces.Box(0, 255, shape, np.uint8)
        else:
            width, height = self.layout.room_size
            low = np.array([0, 0, 0, -1, -1, -90] + [0] * self.num_goals, np.float32)
            high = np.array([UNITS * width, UNITS * height, 512, 1, 1, 90] + [1] * self.num_goals, np.float32)
            self.observation_space = spaces.Box(low, high)
        import_vizdoom()  # fails here, not at the first reset, if it is not installed
        self._engine: Engine | None = None  # started by the first reset
        self._pose = Pose(0.0, 0.0, 0.0, 0.0, 0.0)
        self._held = NOTHING
        self._waiting: deque[tuple[int, Command]] = deque()  # commands with the tics at which they take effect
        self._still = self._tics = 0  # tics of standing still, and tics of the last step
        self._observation: NDArray[Any] = np.empty(0)  # last one, which may be repeated
        self._achieved = np.zeros(self.num_goals, dtype=bool)

    def reset(
        self, *, seed: int | None = None, options: dict[str, Any] | None = None
    ) -> tuple[NDArray[Any], dict[str, Any]]:
        """Begin an episode."""
        super().reset(seed=seed)
        if self._engine is None:
            self._engine = Engine(self.level, self.world.realtime)
        self._engine.begin(int(self.np_random.integers(2**31)))
        self._goals_reached = self._still = self._tics = 0
        self._held = NOTHING
        self._waiting.clear()
        self._achieved = np.zeros(self.num_goals, dtype=bool)
        self._pose = self._engine.pose()
        self._observation = self._observe()
        if self.render_mode == "human":
            self.render()
        return self._observation.copy(), self._info(-1)

    def step(self, action: NDArray[np.float32]) -> tuple[NDArray[Any], float, bool, bool, dict[str, Any]]:
        """Apply an action for `frame_skip` tics."""
        engine = self._running()
        command = self._disturb(np.array(read_action(action, ("forward", "right", "turn", "look"))))
        delay, drop = self.np_random.random(2)  # drawn whether or not they are used, so that the noise stays the same
        self._tics = self._run(engine, command, delay)
        self._pose = engine.pose()
        passes = np.array([self._passes(milestone, self._pose) for milestone in self.level.milestones])
        self._achieved = self._achieved | passes
        goal = self._goals_reached
        reached = goal < self.num_goals and bool(passes[goal])
        if reached:
            engine.give_token()
        outcome = self._outcome(reached)
        if drop >= self.world.drop_frames:
            self._observation = self._observe()
        return self._observation.copy(), *outcome

    def get_state(self) -> NDArray[np.float32]:
        """Return the state vector, for any type of observations."""
        self._running()
        x, y, z, angle, pitch = self._pose
        turn = np.radians(angle)
        flags = np.arange(self.num_goals) < self._goals_reached
        return np.array([x, y, z, np.cos(turn), np.sin(turn), pitch, *flags], dtype=np.float32)

    def place(self, x: float, y: float) -> None:
        """Move the walker, with its speed, to another place; the next step begins there."""
        self._running().place(x, y)

    def picture(self) -> NDArray[np.uint8]:
        """Return the camera's picture, twice as large for a window."""
        frame = self._running().frame()
        return frame.repeat(2, axis=0).repeat(2, axis=1) if self.render_mode == "human" else frame

    def close(self) -> None:
        """End the engine, and close the window if it is open."""
        super().close()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_engine": None}  # a copy starts its own engine at its reset

    def _running(self) -> Engine:
        if self._engine is None:
            raise ValueError("there is no running episode: call reset() first")
        return self._engine

    def _disturb(self, action: NDArray[np.float64]) -> Command:
        """Apply the deadzone and the noise to an action."""
        moved = np.where(np.abs(action) >= self.world.deadzone, action, 0.0)
        still = bool((np.abs(moved[:2]) <= 0.1).all())  # a released stick need not read exactly 0
        moved = moved + self.world.noise_std * self.np_random.standard_normal(4)
        if self.world.clip_noise:
            moved = np.clip(moved, -1.0, 1.0)
        return tuple((moved * THRUST).tolist()), still

    def _run(self, engine: Engine, command: Command, delay: float) -> int:
        """Run `frame_skip` tics, or more in real time; `delay` in [0, 1) scales the command's latency."""
        low, high = (each * TICS_PER_SECOND / 1000 for each in self.world.latency_ms)  # in tics
        began = now = engine.tic
        due = began + round(low + (high - low) * delay)
        if self._waiting:
            due = max(due, self._waiting[-1][0])  # no command overtakes another
        self._waiting.append((due, command))
        end = began + self.world.frame_skip
        while now < end:
            while self._waiting and self._waiting[0][0] <= now:
                self._held = self._waiting.popleft()[1]
            until = min(end, self._waiting[0][0]) if self._waiting else end
            thrust, still = self._held
            engine.advance(thrust, until - now)
            passed, now = engine.tic - now, engine.tic
            self._still = self._still + passed if still else 0
        return now - began

    def _passes(self, milestone: Milestone, pose: Pose) -> bool:
        """Return whether the walker passes a milestone."""
        away = max(abs(pose.x - milestone.place[0]), abs(pose.y - milestone.place[1]))
        if milestone.kind == "turn":
            return abs((pose.angle - milestone.angle + 180) % 360 - 180) <= FACING
        if milestone.kind == "look up":
            return away < NEAR and pose.pitch >= LOOKING_UP
        if milestone.kind == "stand still":
            return away < NEAR and self._still >= STILL_TICS
        return away < TOUCH

    def _observe(self) -> NDArray[Any]:
        if self.world.obs_type == "state":
            return self.get_state()
        from PIL import Image

        height, width, _ = self.observation_space.shape or ()
        return np.array(Image.fromarray(self._running().frame()).resize((width, height), Image.Resampling.BOX))

    def _info(self, reached_goal: int) -> dict[str, Any]:
        names = [*(milestone.name for milestone in self.level.milestones), "done"]
        own = {"milestone": names[self._goals_reached], "achieved": self._achieved.copy()}
        return super()._info(reached_goal) | own | {"state": self.get_state(), "tics": self._tics}
