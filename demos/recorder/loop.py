"""Recording with a gamepad or the keyboard: the loop that ties devices, session, window and clock together."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import gymnasium as gym
import numpy as np
from numpy.typing import NDArray

from pidm_nav.demos.recorder.gamepad import Inputs, Reading
from pidm_nav.demos.recorder.screen import Screen
from pidm_nav.demos.recorder.session import Session
from pidm_nav.rollout import CUSTOM_MAX_STEPS
from pidm_nav.tasks import TASKS
from pidm_nav.world3d.levels import is_3d

if TYPE_CHECKING:
    import pygame


MOST_UNDRAWN = 3  # steps in a row whose picture is left out


def make_env(task: str, env_kwargs: Mapping[str, Any]) -> gym.Env[NDArray[Any], NDArray[np.float32]]:
    """The environment of a task's name, of a 3D task's id or of `custom`, with its step limit."""
    if task in TASKS:
        return gym.make(TASKS[task].env_id, disable_env_checker=True, **env_kwargs)
    if is_3d(task):
        return gym.make(task, render_mode="rgb_array", disable_env_checker=True, **env_kwargs)
    limit: dict[str, Any] = {"max_episode_steps": CUSTOM_MAX_STEPS, "disable_env_checker": True}
    return gym.make("PIDMNav-Custom-v0", **limit, **env_kwargs)


class Pace:
    """Holds a frame rate, and measures the one achieved.

    Args:
        fps: frames a second.
        now: seconds of a clock.
        sleep: waits that long on it.
    """

    def __init__(
        self,
        fps: float,
        now: Callable[[], float] = time.perf_counter,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.period, self._now, self._sleep = 1 / fps, now, sleep
        self._due = self._last = now()
        self.intervals: list[float] = []

    @property
    def late(self) -> bool:
        """Whether the next frame is due already."""
        return self._now() > self._due + self.period

    def wait(self, measure: bool) -> None:
        """Until the next frame is due; no more than one late frame is caught up with."""
        self._due = max(self._due + self.period, self._now() - self.period)
        self._sleep(max(self._due - self._now(), 0.0))
        now = self._now()
        if measure:
            self.intervals.append(now - self._last)
        self._last = now

    def report(self) -> str:
        """The rate achieved while episodes ran."""
        if not self.intervals:
            return "no step was made"
        intervals = np.array(self.intervals)
        late = float((intervals > 1.5 * self.period).mean())
        rate = len(intervals) / intervals.sum()
        return f"{rate:.2f} steps a second (asked for: {1 / self.period:g}), {late:.1%} of them late"


def run(session: Session, inputs: Inputs, screen: Screen, pace: Pace) -> None:
    """Let the person play until the session is over; all that was kept is on disk afterwards."""
    reading = Reading(device=inputs.active.name)
    undrawn = 0
    try:
        while session.phase != "over":
            running = session.phase == "running"
            events: list[pygame.event.Event] = []
            # A busy machine draws fewer pictures, not fewer steps.
            undrawn = undrawn + 1 if running and pace.late and undrawn < MOST_UNDRAWN else 0
            if not undrawn:
                events = screen.show(session, reading, inputs.mapping)
            pace.wait(measure=running)
            events += screen.events()
            reading = inputs.read(events, pace.period, session.may_switch_device)
            session.tick(reading)
    except KeyboardInterrupt:
        session.phase = "over"
    finally:
        screen.close()
        if session.file is not None:
            session.file.close()
