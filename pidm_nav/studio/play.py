"""A person at a browser: a session of the recorder, stepped by the server's clock, that outlives its connection."""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np
from numpy.typing import NDArray

from pidm_nav.console import printable
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.recorder.controls import AXES, COMMANDS, Action, Controls, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.players import Player
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.demos.recorder.sticks import Device, further
from pidm_nav.policies import load_named, make_rival
from pidm_nav.seeds import DEMONSTRATIONS
from pidm_nav.studio.folder import Folder, WorldRequest, picture
from pidm_nav.world2d.layout import Layout

MAX_WAIT = 600.0  # seconds that a session without a connection is kept
SILENCE = 2.0  # seconds without a message of a page, which sends one per picture, after which it counts as lost
MAX_PRESSED = 16  # actions that one message may hold, and commands that wait for a step
KEY_NAMES = {  # what browsers call the keys that SDL calls otherwise
    **{name: f"Arrow{name.title()}" for name in ("left", "right", "up", "down")},
    "left shift": "Shift",
    "right shift": "Shift",
    "space": " ",
    "return": "Enter",
    "backspace": "Backspace",
    "escape": "Escape",
}
BUTTON_NUMBERS = {  # of the standard gamepad of browsers
    name: number
    for number, name in enumerate(
        ["a", "b", "x", "y", "leftshoulder", "rightshoulder", "lefttrigger", "righttrigger", "back", "start",
         "leftstick", "rightstick", "dpup", "dpdown", "dpleft", "dpright", "guide"]
    )
}  # fmt: skip


class Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for a session, or for the one that was left; if that is gone, a new session continues with the same file."""

    world: WorldRequest | None = None
    file: str | None = None  # where episodes are kept; None plays without recording
    rival: str | None = None  # an expert or an agent of the folder
    only_success: bool = False
    seed: int = DEMONSTRATIONS.start
    resume: str | None = None


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person does: actions whose keys or buttons are down, or were pressed, and sticks in [-1, 1]."""

    held: tuple[Action, ...] = ()
    pressed: tuple[Action, ...] = ()  # since the last message
    stick: tuple[float, float] = (0.0, 0.0)
    camera: tuple[float, float] = (0.0, 0.0)
    device: str = "keyboard"
    unplugged: str | None = None  # the device in use, if it has just been unplugged


def controls_for_browsers(controls: Controls) -> dict[str, Any]:
    """Return what the keys, buttons and axes of a browser mean: the recorder's controls by other names."""
    keys = {KEY_NAMES.get(key, key): action for action in controls.keys for key in controls.keys_for(action)}
    buttons = {
        BUTTON_NUMBERS[button] if isinstance(button, str) else button: action
        for action in controls.buttons
        for button in controls.buttons_for(action)
    }
    names = ("x", "y", "turn", "look")
    axes = [AXES.get(axis, axis) for axis in (getattr(controls.stick, name) for name in names)]
    return {"keys": keys, "buttons": buttons, "axes": axes, "commands": COMMANDS}


@dataclass
class PlayerConnection:
    """A session, what the person does in it, and the task that steps it while a page is connected."""

    session: Session
    last: Input = field(default_factory=Input)
    device: Device = field(default_factory=Device)  # the keys and buttons, as sticks
    commands: deque[Action] = field(default_factory=lambda: deque(maxlen=MAX_PRESSED))
    unplugged: str | None = None
    stepping: asyncio.Task[None] | None = None
    heard: float = field(default_factory=time.monotonic)  # when the page has last said something
    shown: object = None  # which step the page has a picture of

    @classmethod
    def open(cls, begin: Begin, folder: Folder) -> PlayerConnection:
        """Make the session that is asked for."""
        if begin.world is None:
            raise ValueError("no task was chosen: choose one from the list")
        task, env_kwargs = begin.world.resolve()
        rival = None
        if begin.rival is not None:
            chosen = begin.rival if begin.rival in EXPERTS else load_named(str(folder.agent(begin.rival)))
            rival = make_rival(chosen, task, env_kwargs, begin.seed)
        rules = Rules(None, begin.seed, begin.only_success, fps=task.fps)
        file = None if begin.file is None else DemoFile(folder.file(begin.file), task, env_kwargs)
        try:
            return cls(Session(task, env_kwargs, rules, file, rival))
        except BaseException:
            if file is not None:
                file.close()
            raise

    def setup(self) -> dict[str, Any]:
        """Return what the page needs to know once."""
        session = self.session
        return {
            "map": picture(session.layout),
            "camera": session.person.has_camera,
            "rival": None if session.rival is None else session.rival.name,
            "file": None if session.file is None else session.file.path.name,
            "trace": np.round(session.person.trace, 1).tolist() if session.layout is not None else [],
        }

    @property
    def fps(self) -> float:
        """Steps per second."""
        return self.session.rules.fps

    @property
    def over(self) -> bool:
        """Whether the person has finished."""
        return self.session.phase == "over"

    @property
    def quick(self) -> bool:
        """Whether a step takes so little time that nobody else notices."""
        return self.session.layout is not None and self.session.rival is None

    @property
    def silent(self) -> bool:
        """Whether nobody is at the page: it is closed, in the background, or cannot be reached."""
        return self.stepping is None or time.monotonic() - self.heard > SILENCE

    def receive(self, said: Input) -> None:
        """Take in a message of the page."""
        self.last, self.heard = said, time.monotonic()
        self.device.held = set(said.held)
        self.device.pressed = [*self.device.pressed, *said.pressed][-MAX_PRESSED:]
        self.commands += (action for action in said.pressed if action in COMMANDS)
        self.unplugged = said.unplugged or self.unplugged

    def leave(self) -> None:
        """Note that the connection is lost; the next step, of whoever comes back, finds the episode paused."""
        self.stepping, self.heard, self.shown = None, time.monotonic(), None
        self.pause()

    def pause(self) -> None:
        """Pause before the next step."""
        self.last, self.device = Input(), Device()
        self.commands.clear()
        if self.session.phase == "running":
            self.commands.append("pause")

    def tick(self) -> None:
        """Make one step of the session."""
        if self.silent:
            self.pause()
        said, unplugged, self.unplugged = self.last, self.unplugged, None
        given = [self.commands.popleft() for _ in range(len(self.commands))]  # more may come meanwhile
        commands = tuple(command for action in given for command in COMMANDS if command == action)
        device = printable(said.device)[:80] or "browser"
        stick, camera = further((said.stick, said.camera), self.device.move(1 / self.fps))
        self.session.tick(Reading(stick, commands, device, unplugged and printable(unplugged)[:80], camera))

    def picture(self) -> NDArray[np.uint8] | None:
        """Return what the person sees, unless the page draws it or has it already."""
        rollout = self.session.person.rollout
        before, self.shown = self.shown, (rollout, len(self.session.person.trace))
        return None if self.session.layout is not None or self.shown == before else rollout.picture(0)

    def report(self) -> dict[str, Any]:
        """Return what the page shows now; episodes count when they are on disk."""
        session = self.session
        file = session.file
        return {
            "phase": session.phase,
            "message": session.message,
            "problem": session.problem,
            "saving": file is not None and not file.is_written(),
            "kept": session.kept if file is None else file.num_written - file.num_before,
            "total": None if file is None else file.num_written,
            "meanings": session.meanings(),
            "person": describe(session.person, session.layout),
            "rival": None if session.rival is None else describe(session.rival, session.layout),
        }

    def close(self) -> None:
        """Close the session; what was kept is on disk."""
        self.session.close()


def describe(player: Player, layout: Layout | None) -> dict[str, Any]:
    """Return how far a player is, with the state vector where the page draws the map."""
    shown = {"steps": player.steps, "goals": player.goals_reached, "of": player.num_goals, "total": player.total}
    state = None if layout is None else np.round(player.state, 1).tolist()
    return {**shown, "state": state, "next": str(player.info("milestone", ""))}
