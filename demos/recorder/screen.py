"""What a person sees while playing: the world, and beside it the score, the stick and what each key does now."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from pidm_nav.demos.recorder.controls import Action, Axes, Controls
from pidm_nav.demos.recorder.devices import KEYBOARD, Reading
from pidm_nav.demos.recorder.players import Player, Rival
from pidm_nav.demos.recorder.session import Session
from pidm_nav.video import Window
from pidm_nav.world2d.drawing import COLORS, TRACE, Color, Frame, view_room
from pidm_nav.world2d.layout import BOX, Layout
from pidm_nav.world2d.render import render_state

if TYPE_CHECKING:
    import pygame

PANEL = 330
"""Width of the panel beside the world, in pixels."""
EDGE = 24
RECENT = 90
"""Steps of the trace that are drawn: older ones would cost more time than a frame has."""
BACK: Color = (24, 27, 34)
RAISED: Color = (42, 47, 58)
DIM: Color = (148, 155, 170)
LIGHT: Color = (238, 240, 244)
GHOST: Color = (234, 118, 0)

ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
KEY_LABELS = {**ARROWS, "return": "Enter", "escape": "Esc", "left shift": "Shift"}
PLAYSTATION = {"a": "Cross", "b": "Circle", "x": "Square", "y": "Triangle", "back": "Share", "start": "Options"}


@dataclass(frozen=True)
class Style:
    """How a text is written."""

    size: int = 15
    color: Color = LIGHT
    bold: bool = False


TITLE, HEADING, BANNER, CAP = Style(27, bold=True), Style(20, bold=True), Style(24, bold=True), Style(14, bold=True)
NORMAL, LABEL, SMALL = Style(), Style(color=DIM), Style(13, DIM)


class Screen:
    """The window, and how a session is drawn in it.

    Args:
        title: the task's title.
        subtitle: what is going on, such as the file that is recorded to.
        controls: what sticks, buttons and keys mean.
        size: side of the square that shows the world, in pixels; None fits the desktop.
    """

    def __init__(self, title: str, subtitle: str, controls: Controls, size: int | None = None) -> None:
        if size is not None and not 480 <= size <= 4000:
            raise ValueError(f"--size is {size}: it must be between 480 and 4000 pixels")
        self.title, self.subtitle, self.controls, self.size = title, subtitle, controls, size or _fitting_size()
        _font.cache_clear()  # environments that draw with pygame end it, with its fonts, when they are closed
        self._left, self._right = self.size + EDGE, self.size + PANEL - EDGE
        self._window = Window(f"pidm-nav: {title}")

    def show(self, session: Session, reading: Reading) -> list[pygame.event.Event]:
        """Draw the session, and return what happened in the window."""
        return self._window.show(self.draw(session, reading), fps=0)  # the loop has a clock of its own

    def events(self) -> list[pygame.event.Event]:
        """Return what has happened since `show`."""
        import pygame

        return [] if self._window.closed else pygame.event.get()

    def close(self) -> None:
        """Close the window."""
        self._window.close()

    def draw(self, session: Session, reading: Reading) -> Frame:
        """Draw a session as a (size, size + PANEL, 3) frame."""
        import pygame

        size = self.size
        frame = np.empty((size, size + PANEL, 3), dtype=np.uint8)
        frame[:, :size] = _draw_world(session, size)
        self._canvas = pygame.image.frombuffer(frame.data, (size + PANEL, size), "RGB")
        self._canvas.fill(BACK, (size, 0, PANEL, size))
        if session.rival is not None and session.layout is not None:
            self._draw_ghost(session.rival, session.layout)
        self._draw_banner(session)
        top = 20 + self._write(self.title, 18, TITLE)
        top += 14 + self._write(self.subtitle, top, SMALL)
        top = self._draw_score(session, top)
        bottom = self._draw_commands(session, reading.device)
        bottom = self._draw_sticks(session, reading, bottom)
        if session.message and bottom - top > 40:
            self._draw_message(session.message, top, bottom)
        return frame

    def _draw_ghost(self, rival: Rival, layout: Layout) -> None:
        """Draw the rival on the map: a line, and a translucent box."""
        import pygame

        view = view_room(layout.room_size, (self.size, self.size))
        points = np.stack(rival.trace[-RECENT:]) * view.scale + (view.left, view.top)
        if len(points) > 1:
            pygame.draw.aalines(self._canvas, GHOST, False, points.tolist())
        side = max(round(BOX * view.scale), 4) * 4
        large = pygame.Surface((side, side), pygame.SRCALPHA)
        pygame.draw.rect(large, (*GHOST, 215), large.get_rect(), border_radius=round(0.4 * side))
        ghost = pygame.transform.smoothscale(large, (side // 4, side // 4))
        self._canvas.blit(ghost, ghost.get_rect(center=points[-1].tolist()))

    def _draw_banner(self, session: Session) -> None:
        """Say what to do while no episode runs, over the foot of the world."""
        import pygame

        saving = session.file is not None and not session.file.is_written()
        start = f"Starts in {int(np.ceil(session.seconds_left))}" if session.rules.countdown else "Move to start"
        text = {
            "ready": "Saving ..." if saving else start,
            "paused": "Paused",
            "complete": "That was the last round" if session.file is None else "All episodes are recorded",
        }.get(session.phase)
        if text is None:
            return
        label = _glyphs(text, BANNER)
        pill = pygame.Surface((label.get_width() + 52, label.get_height() + 22), pygame.SRCALPHA)
        pygame.draw.rect(pill, (*BACK, 225), pill.get_rect(), border_radius=pill.get_height() // 2)
        pill.blit(label, (26, 11))
        self._canvas.blit(pill, pill.get_rect(midbottom=(self.size // 2, self.size - 46)))

    def _draw_score(self, session: Session, top: int) -> int:
        """Draw the episode's number, goals or return, steps and how many are kept; return where they end."""
        rival, file, wanted = session.rival, session.file, session.rules.episodes
        number, of = min(session.kept + 1, wanted or sys.maxsize), f" of {wanted}" if wanted else ""
        top += 8 + self._write(f"{'Round' if file is None else 'Episode'} {number}{of}", top, HEADING)
        players: list[tuple[str, Player, Color]] = [("", session.person, COLORS["reached"])]
        if rival is not None:
            players = [("You", session.person, TRACE), (rival.name, rival, GHOST)]
        for name, player, color in players:
            if session.person.num_goals:
                reached = f"{player.goals_reached} of {session.person.num_goals}{' goals' if rival else ''}"
                top = self._row(name or "Goals", reached, top, player.goals_reached / session.person.num_goals, color)
            else:
                top = self._row(name or "Return", f"{'return ' if rival else ''}{player.total:.1f}", top)
        milestone = session.person.info("milestone", "")
        if milestone:
            top = self._row("Next", str(milestone), top)
        limit = session.task.max_steps
        top = self._row("Steps", f"{session.person.steps} of {limit}", top, session.person.steps / limit, TRACE)
        if file is not None:
            in_file = f"{session.kept}, {len(file)} in the file" if file.num_before else str(session.kept)
            top = self._row("Kept", in_file, top, session.kept / wanted if wanted else 0.0, COLORS["reached"])
        elif rival is not None:
            top = self._row("You : rival", f"{rival.wins} : {rival.losses}", top)
        return top + 4

    def _row(self, name: str, value: str, top: int, part: float | None = None, color: Color = DIM) -> int:
        """Draw a name, its value at the right and a bar of which a part is colored; return where the row ends."""
        import pygame

        label = _glyphs(value, NORMAL)
        self._canvas.blit(label, (self._right - label.get_width(), top))
        top += 6 + self._write(name, top, LABEL)
        if part is not None:
            whole = pygame.Rect(self._left, top, self._right - self._left, 6)
            pygame.draw.rect(self._canvas, RAISED, whole, border_radius=3)
            if part > 0:
                whole.width = max(round(whole.width * min(part, 1.0)), 6)
                pygame.draw.rect(self._canvas, color, whole, border_radius=3)
        return top + (14 if part is not None else 2)

    def _draw_message(self, message: str, top: int, bottom: int) -> None:
        import pygame

        lines = self._wrap(message, NORMAL, 28)[: max((bottom - top - 26) // 21, 1)]
        area = pygame.Rect(self._left, top, self._right - self._left, 20 + 21 * len(lines))
        pygame.draw.rect(self._canvas, RAISED, area, border_radius=9)
        pygame.draw.rect(self._canvas, TRACE, (self._left, top, 4, area.height), border_radius=2)
        for number, line in enumerate(lines):
            self._canvas.blit(_glyphs(line, NORMAL), (self._left + 16, top + 10 + 21 * number))

    def _draw_sticks(self, session: Session, reading: Reading, bottom: int) -> int:
        """Draw where the sticks are, so that one sees at once whether a device works; return where that begins."""
        import pygame

        radius, indent = 30, 76
        how = self._movement(reading.device, session.person.has_camera)
        text_height = 22 * len(self._wrap(reading.device, NORMAL, indent)) + 17 * len(self._wrap(how, SMALL, indent))
        bottom -= 14
        top = bottom - max(2 * radius, text_height)
        middle = (self._left + radius, (top + bottom) // 2)
        pygame.draw.aacircle(self._canvas, RAISED, middle, radius)
        sticks = ((reading.camera, GHOST), (reading.stick, TRACE))
        for stick, color in sticks if session.person.has_camera else sticks[1:]:
            x, y = (round(min(max(value, -1.0), 1.0) * (radius - 10)) for value in stick)
            pygame.draw.aacircle(self._canvas, color, (middle[0] + x, middle[1] + y), 10)
        text_top = middle[1] - text_height // 2
        text_top += 4 + self._write(reading.device, text_top, NORMAL, indent)
        self._write(how, text_top, SMALL, indent)
        return top - 10

    def _movement(self, device: str, has_camera: bool) -> str:
        """Say what moves and turns, such as `↑←↓→ or WASD move, Shift slows`."""
        if device != KEYBOARD:
            axes = self.controls.stick
            usual = axes == Axes()
            moves = "left stick moves" if usual else f"axes {axes.x} and {axes.y} move"
            turns = "right stick turns" if usual else f"axes {axes.turn} and {axes.look} turn"
            return f"{moves}, {turns}" if has_camera else moves
        said = [f"{self._keys('up', 'left', 'down', 'right')} move"]
        if has_camera:
            said.append(f"{self._keys('look_up', 'turn_left', 'look_down', 'turn_right')} turn")
        slow = self.controls.keys_for("slow")
        return ", ".join([*said, f"{_key(slow[0])} slows"] if slow else said)

    def _keys(self, *actions: Action) -> str:
        """Return the keys of these actions, such as `↑←↓→ or WASD`."""
        sets = zip(*map(self.controls.keys_for, actions), strict=False)
        return " or ".join("".join(map(_key, each)) for each in sets)

    def _draw_commands(self, session: Session, device: str) -> int:
        """Draw a line per command, key caps first, without those that do nothing now; return where they begin."""
        import pygame

        bottom = self.size - 16
        for command, meaning in reversed(session.meanings().items()):
            if not meaning:
                continue
            caps = [_key(key) for key in self.controls.keys_for(command)[:1]]
            if device != KEYBOARD:
                caps = [_button(button, device) for button in self.controls.buttons_for(command)[:1]] + caps
            bottom -= 34
            x = self._left
            for cap in caps:
                label = _glyphs(cap, CAP)
                area = pygame.Rect(x, bottom, max(label.get_width() + 16, 28), 27)
                pygame.draw.rect(self._canvas, RAISED, area, border_radius=6)
                self._canvas.blit(label, label.get_rect(center=area.center))
                x = area.right + 6
            self._canvas.blit(_glyphs(meaning, NORMAL), (x + 5, bottom + 4))
        return bottom

    def _write(self, text: str, top: int, style: Style, indent: int = 0) -> int:
        """Write a text on the panel, folded where it is too long, and return its height."""
        lines = [_glyphs(line, style) for line in self._wrap(text, style, indent)]
        for number, line in enumerate(lines):
            self._canvas.blit(line, (self._left + indent, top + number * line.get_height()))
        return sum(line.get_height() for line in lines)

    def _wrap(self, text: str, style: Style, indent: int) -> list[str]:
        """Break a text at spaces into lines that fit the panel."""
        width = self._right - self._left - indent
        lines = [""]
        for word in text.split():
            longer = f"{lines[-1]} {word}".strip()
            if lines[-1] and _font(style.size, style.bold).size(longer)[0] > width:
                lines.append(word)
            else:
                lines[-1] = longer
        return lines


def _draw_world(session: Session, size: int) -> Frame:
    """Draw the map from the state where there is one, else what the environment renders, scaled to fit."""
    import pygame

    if session.layout is not None:
        trace = np.stack(session.person.trace[-RECENT:])
        return render_state(session.layout, session.person.state, (size, size), trace)
    picture = np.ascontiguousarray(session.person.rollout.picture(0))
    height, width, _ = picture.shape
    scale = size / max(width, height)
    surface = pygame.image.frombuffer(picture.data, (width, height), "RGB")
    scaled = pygame.transform.smoothscale(surface, (round(width * scale), round(height * scale)))
    square = pygame.Surface((size, size), depth=24)
    square.fill(BACK)
    square.blit(scaled, scaled.get_rect(center=(size // 2, size // 2)))
    return pygame.surfarray.array3d(square).swapaxes(0, 1)


def _fitting_size() -> int:
    """Return the largest side that the desktop allows, up to 800 pixels."""
    import pygame

    require_display()
    width, height = pygame.display.get_desktop_sizes()[0]
    return max(min(width - PANEL - 40, height - 120, 800), 480)


def require_display() -> None:
    """Raise OSError where no window can be opened."""
    import pygame

    named = {"DISPLAY", "WAYLAND_DISPLAY", "XDG_RUNTIME_DIR", "SDL_VIDEODRIVER"}
    lost = sys.platform.startswith("linux") and not os.environ.keys() & named
    try:
        if not lost:  # where it cannot work anyway, SDL would print a second complaint
            pygame.display.init()
            # With no display at hand SDL may pick a driver that draws nowhere and say nothing.
            lost = pygame.display.get_driver() == "offscreen" and "SDL_VIDEODRIVER" not in os.environ
    except pygame.error:
        lost = True
    if lost:
        pygame.display.quit()
        pygame.joystick.init()
        device = "" if pygame.joystick.get_count() else " and no game controller"
        raise OSError(
            f"there is no display to open a window on{device}: run this on a desktop, "
            "or let an expert make demonstrations with pidm-nav collect"
        )


def _key(name: str) -> str:
    return KEY_LABELS.get(name, name.capitalize())


def _button(button: str | int, device: str) -> str:
    """Return what is printed on a button, as far as that can be known."""
    if isinstance(button, int):
        return f"Button {button}"
    sony = any(word in device.lower() for word in ("ps3", "ps4", "ps5", "dualsense", "dualshock", "playstation"))
    return PLAYSTATION.get(button, button.capitalize()) if sony else button.capitalize()


@lru_cache(maxsize=512)
def _glyphs(text: str, style: Style) -> pygame.Surface:
    """Return a picture of a line of text."""
    return _font(style.size, style.bold).render(text, True, style.color)


@lru_cache(maxsize=16)
def _font(size: int, bold: bool) -> pygame.font.Font:
    """Load matplotlib's font, which is legible and has arrows, without importing matplotlib."""
    import pygame

    pygame.font.init()
    spec = find_spec("matplotlib")
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = Path((spec.origin if spec else None) or "").parent / "mpl-data" / "fonts" / "ttf" / name
    return pygame.font.Font(path, size) if path.is_file() else pygame.font.Font(None, round(size * 1.4))
