"""A person at a browser: a session of the recorder, stepped by the server's clock, that outlives its connection."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import Any

import msgspec
import numpy as np

from pidm_nav.console import printable
from pidm_nav.demos.experts import EXPERTS
from pidm_nav.demos.recorder.controls import COMMANDS, Command, Reading
from pidm_nav.demos.recorder.demo_file import DemoFile
from pidm_nav.demos.recorder.players import Player, make_rival
from pidm_nav.demos.recorder.session import Rules, Session
from pidm_nav.policies import load_named
from pidm_nav.studio.folder import Folder, World, picture

MOST_WAITING = 600.0  # seconds that a session without a connection is kept
CATCH_UP = 3  # steps, a tenth of a second


class Begin(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Ask for a session, or for one that was left."""

    world: World | None = None
    file: str | None = None  # where episodes are kept; None plays without recording
    rival: str | None = None  # an expert or an agent of the folder
    only_success: bool = False
    seed: int = 0
    resume: str | None = None


class Input(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What the person does: sticks in [-1, 1], and commands since the last message."""

    stick: tuple[float, float] = (0.0, 0.0)
    camera: tuple[float, float] = (0.0, 0.0)
    commands: tuple[Command, ...] = ()
    device: str = "keyboard"
    sent: float = 0.0  # the page's clock, given back with the picture that shows it


@dataclass
class Seat:
    """A session, what the person does in it, and who is connected to it."""

    session: Session
    last: Input = field(default_factory=Input)
    commands: list[Command] = field(default_factory=list)
    connection: object | None = None
    left: float = 0.0  # when the last connection was lost

    @classmethod
    def take(cls, begin: Begin, folder: Folder) -> Seat:
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
            "task": session.task.name,
            "title": session.task.title,
            "map": picture(session.layout),
            "fps": session.rules.fps,
            "camera": session.person.has_camera,
            "rival": None if session.rival is None else session.rival.name,
            "file": None if session.file is None else session.file.path.name,
            "trace": np.round(session.person.trace, 1).tolist() if session.layout is not None else [],
        }

    def hear(self, said: Input) -> None:
        """Take in a message of the page."""
        finite = all(np.isfinite([*said.stick, *said.camera]))
        self.last = said if finite else Input(commands=said.commands)
        self.commands += said.commands[: len(COMMANDS)]

    def leave(self) -> None:
        """Pause: the connection is lost."""
        self.connection, self.left, self.last = None, time.monotonic(), Input()
        if self.session.phase == "running":
            self.session.tick(Reading(commands=("pause",)))

    def tick(self) -> None:
        """Make one step of the session."""
        commands, self.commands = tuple(self.commands), []
        said = self.last
        device = printable(said.device)[:80] or "browser"
        self.session.tick(Reading(said.stick, commands, device, camera=said.camera))

    def report(self) -> dict[str, Any]:
        """Return what the page shows now."""
        session = self.session
        file = session.file
        return {
            "phase": session.phase,
            "message": session.message,
            "kept": session.kept,
            "total": None if file is None else len(file),
            "meanings": session.meanings(),
            "person": _see(session.person, session.layout is not None),
            "rival": None if session.rival is None else _see(session.rival, session.layout is not None),
            "sent": self.last.sent,
        }


def _see(player: Player, drawn: bool) -> dict[str, Any]:
    shown = {"steps": player.steps, "goals": player.goals_reached, "of": player.num_goals, "total": player.total}
    return shown | ({"state": np.round(player.state, 1).tolist()} if drawn else {})


async def run(seat: Seat, send: Any, send_picture: Any) -> None:
    """Step the session at its rate until it is over; up to `CATCH_UP` late steps are caught up with."""
    period = 1 / seat.session.rules.fps
    clock = asyncio.get_running_loop().time
    due = clock()
    while seat.session.phase != "over":
        if seat.session.layout is not None:
            seat.tick()
        else:  # the engine takes milliseconds: others go on meanwhile
            await asyncio.to_thread(seat.tick)
            await send_picture(seat.session.person.rollout.picture(0))
        await send(seat.report())
        due = max(due + period, clock() - CATCH_UP * period)
        await asyncio.sleep(max(due - clock(), 0))
    await send(seat.report())
