"""The loop that ties devices, session, window and clock together."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np
import pygame

from pidm_nav.demos.recorder.controls import Reading
from pidm_nav.demos.recorder.devices import Inputs
from pidm_nav.demos.recorder.screen import Screen
from pidm_nav.demos.recorder.session import Session
from pidm_nav.video import Window

MAX_UNDRAWN = 3  # steps in a row whose picture may be left out


class Pace:
    """Holds a frame rate, and measures the one achieved, by a clock in seconds and a function that waits on it."""

    def __init__(
        self, fps: float, now: Callable[[], float] = time.perf_counter, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self.period, self._now, self._sleep = 1 / fps, now, sleep
        self._due = self._last = now()
        self.intervals: list[float] = []

    @property
    def late(self) -> bool:
        """Whether the next frame is due already."""
        return self._now() > self._due + self.period

    def wait(self, measure: bool) -> None:
        """Wait until the next frame is due; at most one late frame is caught up with."""
        self._due = max(self._due + self.period, self._now() - self.period)
        self._sleep(max(self._due - self._now(), 0.0))
        now = self._now()
        if measure:
            self.intervals.append(now - self._last)
        self._last = now

    def report(self) -> str:
        """Return the rate achieved while episodes ran, as a sentence."""
        if not self.intervals:
            return "no step was made"
        intervals = np.array(self.intervals)
        late = float((intervals > 1.5 * self.period).mean())
        rate = len(intervals) / intervals.sum()
        return f"{rate:.2f} steps per second (asked for: {1 / self.period:g}), {late:.1%} of them late"


def run(session: Session, inputs: Inputs, screen: Screen, pace: Pace) -> None:
    """Let the person play until the session is over; Ctrl-C ends it too."""
    window = Window(f"pidm-nav: {screen.title}")
    reading = Reading(device=inputs.active.name)
    undrawn = 0
    try:
        while session.phase != "over":
            running = session.phase == "running"
            events: list[pygame.event.Event] = []
            # A busy machine draws fewer pictures, not fewer steps.
            undrawn = undrawn + 1 if running and pace.late and undrawn < MAX_UNDRAWN else 0
            if not undrawn:
                events = window.show(screen.draw(session, reading), fps=0)  # the pace keeps the time
            pace.wait(measure=running)
            if not window.closed:
                events += pygame.event.get()
            reading = inputs.read(events, pace.period, may_switch=not running)
            session.tick(reading)
    except KeyboardInterrupt as stop:
        session.phase = "over"
        if stop.args:  # another signal, which shall end the whole command
            raise
    finally:
        window.close()
