"""Engine: the game engine ViZDoom, in a separate process."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world3d.levels import Level
from pidm_nav.world3d.wad import TOKEN, build_wad

TICS_PER_SECOND = 35
SCREEN = (240, 320)  # height and width of the engine's picture
SPAWN_FREEZE_TICS = 7  # tics after a spawn in which the game ignores movement

# This script starts an engine that ends with this process, even if it is killed; Linux only.
LAUNCHER = """#!/bin/sh
cd "{folder}"  # the engine makes a folder where it starts
echo $$ > pid
exec "{python}" -I -S -c '
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == {parent}:
    os.execv(sys.argv[1], sys.argv[1:])
' "{engine}" "$@"
"""


class Pose(NamedTuple):
    """Position and view of the walker, in engine units and degrees; a positive pitch looks up."""

    x: float
    y: float
    z: float
    angle: float
    pitch: float


class Engine:
    """A running engine with one level; in `realtime`, 35 tics pass per second, with or without actions.

    The engine's folder and its files of shared memory are removed as soon as it runs, so that a killed process leaves
    nothing behind.
    """

    def __init__(self, level: Level, realtime: bool = False) -> None:
        vizdoom = import_vizdoom()
        self._game = game = vizdoom.DoomGame()
        self._process: int | None = None
        game.set_mode(vizdoom.Mode.ASYNC_PLAYER if realtime else vizdoom.Mode.PLAYER)
        with tempfile.TemporaryDirectory(prefix="pidm-nav-3d-") as name:
            folder = Path(name)
            self._prepare(vizdoom, level, folder)
            try:
                game.init()
            except Exception as error:
                remedy = "try pip install --force-reinstall vizdoom"
                raise OSError(f"ViZDoom does not start ({error}): {remedy}") from None
            if (folder / "pid").exists():
                self._process = int((folder / "pid").read_text(encoding="ascii"))
                _remove_shared_memory(self._process)
        # distance of the camera behind and above the walker's eyes, for all episodes
        for command in ("chase_dist 130", "chase_height 16", "chase"):
            game.send_game_command(command)
        game.advance_action(1)

    @property
    def tic(self) -> int:
        """Number of tics since the episode began."""
        return int(self._game.get_episode_time())

    def begin(self, seed: int) -> None:
        """Begin an episode."""
        self._game.set_seed(seed)
        self._game.new_episode()
        self.advance((0.0, 0.0, 0.0, 0.0), SPAWN_FREEZE_TICS)

    def advance(self, thrust: tuple[float, ...], tics: int) -> None:
        """Apply the thrust forward, right, turn and look for a number of tics."""
        self._game.set_action(list(thrust))
        self._game.advance_action(tics)

    def give_token(self) -> None:
        """Make the next milestone the current one, from the next tic on."""
        self._game.send_game_command(f"give {TOKEN} 1")

    def place(self, x: float, y: float) -> None:
        """Move the walker, with its speed, to another place, from the next tic on."""
        self._game.send_game_command(f"warp {x:.3f} {y:.3f}")

    def pose(self) -> Pose:
        """Return the walker's position and view."""
        x, y, z, angle, pitch = self._game.get_state().game_variables.tolist()
        return Pose(x, y, z, angle, -pitch)

    def frame(self) -> NDArray[np.uint8]:
        """Return the camera's picture (height, width, 3)."""
        return np.array(self._game.get_state().screen_buffer)

    def close(self) -> None:
        """End the engine's process, and wait until it has ended."""
        self._game.close()
        if self._process is not None:
            with suppress(ProcessLookupError):
                for _ in range(400):
                    os.kill(self._process, 0)  # raises when the process is gone
                    time.sleep(0.005)
                os.kill(self._process, signal.SIGKILL)  # after two seconds

    def _prepare(self, vizdoom: ModuleType, level: Level, folder: Path) -> None:
        game: Any = self._game
        data = Path(str(vizdoom.__file__)).parent
        (folder / "level.wad").write_bytes(build_wad(level))
        if sys.platform.startswith("linux"):
            launcher, engine = folder / "engine", data / "vizdoom"
            text = LAUNCHER.format(python=sys.executable, parent=os.getpid(), engine=engine, folder=folder)
            launcher.write_text(text, encoding="utf-8")
            launcher.chmod(0o700)
            game.set_vizdoom_path(str(launcher))
        game.set_doom_game_path(str(data / "freedoom2.wad"))
        game.set_doom_scenario_path(str(folder / "level.wad"))
        game.set_doom_config_path(os.devnull)  # otherwise the engine writes it when it ends
        game.set_doom_map("map01")
        game.add_game_args("+sv_cheats 1")  # the camera behind the walker counts as a cheat
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{SCREEN[1]}X{SCREEN[0]}"))
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        for hidden in ("hud", "crosshair", "weapon", "messages", "screen_flashes", "decals", "particles"):
            getattr(game, f"set_render_{hidden}")(False)
        axes = ("MOVE_FORWARD_BACKWARD", "MOVE_LEFT_RIGHT", "TURN_LEFT_RIGHT", "LOOK_UP_DOWN")
        game.set_available_buttons([getattr(vizdoom.Button, f"{axis}_DELTA") for axis in axes])
        variables = ("POSITION_X", "POSITION_Y", "POSITION_Z", "ANGLE", "PITCH")
        game.set_available_game_variables([getattr(vizdoom.GameVariable, name) for name in variables])
        game.set_episode_timeout(0)  # the environment ends episodes


def _remove_shared_memory(process: int) -> None:
    """Remove the files of shared memory of a running engine, and of killed engines."""
    words = Path(f"/proc/{process}/cmdline").read_text(encoding="utf-8").split("\0")
    name = words[words.index("+viz_instance_id") + 1]
    names = list(Path("/dev/shm").glob("ViZDoom*"))
    used = ""
    if any(not path.name.endswith(name) for path in names):  # of other engines: keep those in use
        for maps in Path("/proc").glob("[0-9]*/maps"):
            with suppress(OSError):
                used += maps.read_text(encoding="utf-8", errors="replace")
    for path in names:
        if path.name.endswith(name) or path.name not in used:
            with suppress(OSError):
                path.unlink()


def import_vizdoom() -> ModuleType:
    """Import ViZDoom; the error says how to install it."""
    try:
        return import_module("vizdoom")
    except ModuleNotFoundError:
        raise ModuleNotFoundError('the 3D tasks need ViZDoom: pip install "pidm-nav[3d]"') from None
