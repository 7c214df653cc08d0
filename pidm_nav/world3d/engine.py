"""The game engine, ViZDoom, in a process of its own: what is asked of it and nothing else."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from pidm_nav.world3d.levels import Level
from pidm_nav.world3d.wad import TOKEN, build_wad

TICS_PER_SECOND = 35
SCREEN = (240, 320)
"""Height and width of the engine's picture: small, and large enough to be watched."""
DAZED = 7
"""Tics at the beginning of an episode in which the game lets nobody move."""
CAMERA = {"chase_dist": 130, "chase_height": 16}
"""Units behind and above the walker's eyes."""
PATIENCE = 400
"""How often to look whether the engine has ended, 5 ms apart."""

# Linux alone can tie a process to the life of another: without, killing Python would leave the engine waiting forever.
LAUNCHER = """#!/bin/sh
cd "{folder}"  # where it makes a folder of its own
echo $$ > pid
exec "{python}" -I -S -c '
import ctypes, os, signal, sys
ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG
if os.getppid() == {parent}:
    os.execv(sys.argv[1], sys.argv[1:])
' "{engine}" "$@"
"""


class Pose(NamedTuple):
    """Where the walker is and looks: engine units and degrees, pitch upwards."""

    x: float
    y: float
    z: float
    angle: float
    pitch: float


class Engine:
    """A running engine with one level.

    Args:
        level: to walk in.
        realtime: tics pass by the clock, 35 a second, whether or not anybody acts.
    """

    def __init__(self, level: Level, realtime: bool = False) -> None:
        vizdoom = import_vizdoom()
        self._folder = tempfile.TemporaryDirectory(prefix="pidm-nav-3d-", ignore_cleanup_errors=True)
        self._game = game = vizdoom.DoomGame()
        self._prepare(vizdoom, level, Path(self._folder.name))
        game.set_mode(vizdoom.Mode.ASYNC_PLAYER if realtime else vizdoom.Mode.PLAYER)
        try:
            game.init()
        except Exception as error:
            self._folder.cleanup()
            raise OSError(
                f"the game engine does not start ({error}): try pip install --force-reinstall vizdoom"
            ) from None
        for name, value in CAMERA.items():
            game.send_game_command(f"{name} {value}")
        game.send_game_command("chase")  # the camera behind the walker, for all episodes
        game.advance_action(1)

    @property
    def tic(self) -> int:
        """Tics since the episode began."""
        return int(self._game.get_episode_time())

    def begin(self, seed: int) -> None:
        """Begin an episode."""
        self._game.set_seed(seed)
        self._game.new_episode()
        self.advance((0.0, 0.0, 0.0, 0.0), DAZED)

    def advance(self, thrust: tuple[float, ...], tics: int) -> None:
        """Hold forward, right, turn and look for so many tics."""
        self._game.set_action(list(thrust))
        self._game.advance_action(tics)

    def give_token(self) -> None:
        """Let the next milestone be the current one, from the next tic on."""
        self._game.send_game_command(f"give {TOKEN} 1")

    def pose(self) -> Pose:
        """Where the walker is and looks."""
        x, y, z, angle, pitch = self._game.get_state().game_variables.tolist()
        return Pose(x, y, z, angle, -pitch)

    def frame(self) -> NDArray[np.uint8]:
        """(height, width, 3) what the camera sees."""
        return np.array(self._game.get_state().screen_buffer)

    def close(self) -> None:
        """End the engine's process, and wait until it has ended."""
        self._game.close()
        _wait_for(Path(self._folder.name) / "pid")
        self._folder.cleanup()

    def _prepare(self, vizdoom: ModuleType, level: Level, folder: Path) -> None:
        game: Any = self._game
        data = Path(str(vizdoom.__file__)).parent
        (folder / "level.wad").write_bytes(build_wad(level))
        if sys.platform.startswith("linux"):
            game.set_vizdoom_path(str(_write_launcher(folder, data / "vizdoom")))
        game.set_doom_game_path(str(data / "freedoom2.wad"))
        game.set_doom_scenario_path(str(folder / "level.wad"))
        game.set_doom_config_path(str(folder / "engine.ini"))
        game.set_doom_map("map01")
        game.add_game_args("+sv_cheats 1")  # the camera behind the walker is a cheat to the game
        game.set_screen_resolution(getattr(vizdoom.ScreenResolution, f"RES_{SCREEN[1]}X{SCREEN[0]}"))
        game.set_screen_format(vizdoom.ScreenFormat.RGB24)
        game.set_window_visible(False)
        game.set_sound_enabled(False)
        for hidden in ("hud", "crosshair", "weapon", "messages", "screen_flashes", "decals", "particles"):
            getattr(game, f"set_render_{hidden}")(False)
        button, variable = vizdoom.Button, vizdoom.GameVariable
        game.set_available_buttons(
            [
                button.MOVE_FORWARD_BACKWARD_DELTA,
                button.MOVE_LEFT_RIGHT_DELTA,
                button.TURN_LEFT_RIGHT_DELTA,
                button.LOOK_UP_DOWN_DELTA,
            ]
        )
        game.set_available_game_variables(
            [variable.POSITION_X, variable.POSITION_Y, variable.POSITION_Z, variable.ANGLE, variable.PITCH]
        )
        game.set_episode_timeout(0)  # the environment ends episodes


def import_vizdoom() -> ModuleType:
    """ViZDoom, or how to install it."""
    try:
        import vizdoom
    except ModuleNotFoundError:
        raise ModuleNotFoundError(
            'the 3D tasks need ViZDoom, which is not installed: pip install "pidm-nav[3d]"'
        ) from None
    module: ModuleType = vizdoom
    return module


def _write_launcher(folder: Path, engine: Path) -> Path:
    """A script that starts the engine so that it ends with this process, however that ends."""
    path = folder / "engine"
    names = {"python": sys.executable, "parent": os.getpid(), "engine": engine, "folder": folder}
    path.write_text(LAUNCHER.format(**names), encoding="utf-8")
    path.chmod(0o700)
    return path


def _wait_for(pid_file: Path) -> None:
    """Wait until a process that was told to end has ended; one that does not is ended by force."""
    if not pid_file.exists():
        return
    process = int(pid_file.read_text(encoding="ascii"))
    with suppress(ProcessLookupError):
        for _ in range(PATIENCE):
            os.kill(process, 0)  # raises when it is gone
            time.sleep(0.005)
        os.kill(process, signal.SIGKILL)
