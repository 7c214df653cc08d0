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

from pidm_nav.demos.recorder.controls import Action, Controls
from pidm_nav.demos.recorder.devices import KEYBOARD, Reading
from pidm_nav.demos.recorder.session import Session
from pidm_nav.world2d.drawing import COLOURS, TRACE, Colour, Frame, view_room
from pidm_nav.world2d.layout import BOX
from pidm_nav.world2d.render import Window, render_state

if TYPE_CHECKING:
    import pygame

PANEL = 330
"""Width of the panel beside the world, in pixels."""
EDGE = 24
RECENT = 90
"""Steps of the trace that are drawn: older ones would cost more time than a frame has."""
BACK: Colour = (24, 27, 34)
RAISED: Colour = (42, 47, 58)
DIM: Colour = (148, 155, 170)
LIGHT: Colour = (238, 240, 244)
GHOST: Colour = (234, 118, 0)

KEY_LABELS = {
    "left": "←",
    "right": "→",
    "up": "↑",
    "down": "↓",
    "return": "Enter",
    "escape": "Esc",
    "left shift": "Shift",
}
PLAYSTATION = {"a": "Cross", "b": "Circle", "x": "Square", "y": "Triangle", "back": "Share", "start": "Options"}


@dataclass(frozen=True)
class Style:
    """How a text is written."""

    size: int = 15
    color: Colour = LIGHT
    bold: bool = False


TITLE, HEADING, BANNER, CAP = Style(27, bold=True), Style(20, bold=True), Style(24, bold=True), Style(14, bold=True)
NORMAL, LABEL, SMALL = Style(), Style(color=DIM), Style(13, DIM)


class Screen:
    """The window.

    Args:
        title: the task's title.
        subtitle: what is going on, such as the file that is recorded to.
        size: side of the square that shows the world, in pixels; None fits the desktop.
    """

    def __init__(self, title: str, subtitle: str, size: int | None = None) -> None:
        require_display()
        if size is not None and not 480 <= size <= 4000:
            raise ValueError(f"--size is {size}: it must be between 480 and 4000 pixels")
        self.title, self.subtitle, self.size = title, subtitle, size or _fitting_size()
        self._window = Window(f"pidm-nav: {title}")

    def show(self, session: Session, reading: Reading, controls: Controls) -> list[pygame.event.Event]:
        """Draw the session, and return what happened in the window."""
        frame = draw_session(session, reading, controls, self.title, self.subtitle, self.size)
        return self._window.show(frame, fps=0)  # the loop has a clock of its own

    def events(self) -> list[pygame.event.Event]:
        """Return what has happened since `show`."""
        import pygame

        return [] if self._window.closed else pygame.event.get()

    def close(self) -> None:
        """Close the window."""
        self._window.close()


def require_display() -> None:
    """Raise OSError where no window can be opened."""
    import pygame

    lost = sys.platform.startswith("linux") and not os.environ.keys() & {
        "DISPLAY",
        "WAYLAND_DISPLAY",
        "XDG_RUNTIME_DIR",
        "SDL_VIDEODRIVER",
    }
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


def _fitting_size() -> int:
    """Return the largest side that the desktop allows, up to 800 pixels."""
    import pygame

    width, height = pygame.display.get_desktop_sizes()[0]
    return max(min(width - PANEL - 40, height - 120, 800), 480)


def draw_session(
    session: Session, reading: Reading, controls: Controls, title: str, subtitle: str, size: int
) -> Frame:
    """Draw a session as a (size, size + PANEL, 3) frame."""
    import pygame

    frame = np.empty((size, size + PANEL, 3), dtype=np.uint8)
    frame[:, :size] = _draw_world(session, size)
    canvas = pygame.image.frombuffer(frame.data, (size + PANEL, size), "RGB")
    canvas.fill(BACK, (size, 0, PANEL, size))
    _draw_ghost(canvas, session, size)
    _draw_banner(canvas, session, size)
    panel = Panel(canvas, size + EDGE, size + PANEL - EDGE)
    top = 20 + panel.write(title, 18, TITLE)
    top += 14 + panel.write(subtitle, top, SMALL)
    top = _draw_score(panel, session, top)
    bottom = _draw_commands(panel, session, reading, controls, size - 16)
    bottom = _draw_stick(panel, session, reading, controls, bottom)
    if session.message and bottom - top > 40:
        _draw_message(panel, session.message, top, bottom)
    return frame


def _draw_world(session: Session, size: int) -> Frame:
    """Draw the map from the state where there is one, else what the environment renders, scaled to fit."""
    import pygame

    if session.layout is not None:
        return render_state(session.layout, session.state, (size, size), session.trace[-RECENT:])
    picture = np.ascontiguousarray(session.render())
    height, width, _ = picture.shape
    scale = size / max(width, height)
    surface = pygame.image.frombuffer(picture.data, (width, height), "RGB")
    scaled = pygame.transform.smoothscale(surface, (round(width * scale), round(height * scale)))
    square = pygame.Surface((size, size))
    square.fill(BACK)
    square.blit(scaled, scaled.get_rect(center=(size // 2, size // 2)))
    return pygame.surfarray.array3d(square).swapaxes(0, 1)


def _draw_ghost(canvas: pygame.Surface, session: Session, size: int) -> None:
    """Draw the rival on the map: a line, and a translucent box."""
    import pygame

    if session.rival is None or session.layout is None:
        return
    view = view_room(session.layout.room_size, (size, size))
    points = np.stack(session.rival.trace[-RECENT:]) * view.scale + (view.left, view.top)
    if len(points) > 1:
        pygame.draw.aalines(canvas, GHOST, False, points.tolist())
    side = max(round(BOX * view.scale), 4) * 4
    large = pygame.Surface((side, side), pygame.SRCALPHA)
    pygame.draw.rect(large, (*GHOST, 215), large.get_rect(), border_radius=round(0.4 * side))
    ghost = pygame.transform.smoothscale(large, (side // 4, side // 4))
    canvas.blit(ghost, ghost.get_rect(center=points[-1].tolist()))


def _draw_banner(canvas: pygame.Surface, session: Session, size: int) -> None:
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
    canvas.blit(pill, pill.get_rect(midbottom=(size // 2, size - 46)))


@dataclass(frozen=True)
class Panel:
    """The column beside the world, from `left` to `right`."""

    canvas: pygame.Surface
    left: int
    right: int

    def write(self, text: str, top: int, style: Style = NORMAL, indent: int = 0) -> int:
        """Write a text, folded where it is too long, and return its height."""
        lines = _wrap(text, style, self.right - self.left - indent)
        line_height = _glyphs(" ", style).get_height()
        for number, line in enumerate(lines):
            self.canvas.blit(_glyphs(line, style), (self.left + indent, top + number * line_height))
        return line_height * len(lines)

    def height(self, text: str, style: Style, indent: int) -> int:
        """Return the height of a text when it is written."""
        return len(_wrap(text, style, self.right - self.left - indent)) * _glyphs(" ", style).get_height()

    def row(self, name: str, value: str, part: float | None, color: Colour, top: int) -> int:
        """Draw a name, its value at the right and a bar of which a part is colored; return where the row ends."""
        import pygame

        label = _glyphs(value, NORMAL)
        self.canvas.blit(label, (self.right - label.get_width(), top))
        top += 6 + self.write(name, top, LABEL)
        if part is not None:
            whole = pygame.Rect(self.left, top, self.right - self.left, 6)
            pygame.draw.rect(self.canvas, RAISED, whole, border_radius=3)
            if part > 0:
                whole.width = max(round(whole.width * min(part, 1.0)), 6)
                pygame.draw.rect(self.canvas, color, whole, border_radius=3)
        return top + 14


def _draw_score(panel: Panel, session: Session, top: int) -> int:
    """Draw the episode's number, goals or return, steps and how many are kept; return where they end."""
    rival, file, wanted = session.rival, session.file, session.rules.episodes
    number = min(session.kept + 1, wanted or sys.maxsize)
    of = "" if wanted is None else f" of {wanted}"
    top += 8 + panel.write(f"{'Round' if file is None else 'Episode'} {number}{of}", top, HEADING)
    players = [("You" if rival else "", session.score, TRACE if rival else COLOURS["reached"])]
    if rival is not None:
        players.append((rival.name, rival.score, GHOST))
    for name, score, color in players:
        if session.num_goals:
            unit = " goals" if rival else ""
            value = f"{score.goals} of {session.num_goals}{unit}"
            top = panel.row(name or "Goals", value, score.goals / session.num_goals, color, top)
        else:
            unit = "return " if rival else ""
            top = panel.row(name or "Return", f"{unit}{score.total:.1f}", None, color, top)
    if session.milestone:
        top = panel.row("Next", session.milestone, None, DIM, top)
    limit = session.max_steps
    of, part = ("", None) if limit is None else (f" of {limit}", session.steps / limit)
    top = panel.row("Steps", f"{session.steps}{of}", part, TRACE, top)
    if file is not None:
        in_file = f"{session.kept}, {len(file)} in the file" if file.num_before else str(session.kept)
        top = panel.row("Kept", in_file, session.kept / wanted if wanted else 0.0, COLOURS["reached"], top)
    elif rival is not None:
        top = panel.row("You : rival", f"{rival.wins} : {rival.losses}", None, DIM, top)
    return top + 4


def _draw_message(panel: Panel, message: str, top: int, bottom: int) -> None:
    import pygame

    height = min(20 + panel.height(message, NORMAL, 28), bottom - top - 6)
    area = pygame.Rect(panel.left, top, panel.right - panel.left, height)
    pygame.draw.rect(panel.canvas, RAISED, area, border_radius=9)
    pygame.draw.rect(panel.canvas, TRACE, (panel.left, top, 4, height), border_radius=2)
    panel.canvas.set_clip(area)
    Panel(panel.canvas, panel.left + 16, panel.right - 12).write(message, top + 10)
    panel.canvas.set_clip(None)


def _draw_stick(panel: Panel, session: Session, reading: Reading, controls: Controls, bottom: int) -> int:
    """Draw where the sticks are, so that one sees at once whether a device works; return where that begins."""
    import pygame

    radius, indent = 30, 76
    how = _movement(session, reading, controls)
    name_height = panel.height(reading.device, NORMAL, indent)
    text_height = name_height + 4 + panel.height(how, SMALL, indent)
    top = bottom - 14 - max(2 * radius, text_height)
    middle = (panel.left + radius, (top + bottom - 14) // 2)
    pygame.draw.aacircle(panel.canvas, RAISED, middle, radius)
    sticks = [(reading.stick, TRACE)]
    if session.has_camera:
        sticks.insert(0, (reading.camera, GHOST))
    for stick, color in sticks:
        x, y = (round(min(max(value, -1.0), 1.0) * (radius - 10)) for value in stick)
        pygame.draw.aacircle(panel.canvas, color, (middle[0] + x, middle[1] + y), 10)
    text_top = middle[1] - text_height // 2
    panel.write(reading.device, text_top, NORMAL, indent)
    panel.write(how, text_top + name_height + 4, SMALL, indent)
    return top - 10


def _movement(session: Session, reading: Reading, controls: Controls) -> str:
    """Say what moves and turns, such as `↑←↓→ or WASD move, Shift slows`."""
    if reading.device != KEYBOARD:
        axes = controls.stick
        usual = (axes.x, axes.y, axes.turn, axes.look) == ("leftx", "lefty", "rightx", "righty")
        moves = "left stick moves" if usual else f"axes {axes.x} and {axes.y} move"
        turns = "right stick turns" if usual else f"axes {axes.turn} and {axes.look} turn"
        return f"{moves}, {turns}" if session.has_camera else moves
    said = [f"{_keys(controls, 'up', 'left', 'down', 'right')} move"]
    if session.has_camera:
        said.append(f"{_keys(controls, 'look_up', 'turn_left', 'look_down', 'turn_right')} turn")
    if controls.keys_for("slow"):
        said.append(f"{_key(controls.keys_for('slow')[0])} slows")
    return ", ".join(said)


def _keys(controls: Controls, *actions: Action) -> str:
    """Return the keys of these actions, such as `↑←↓→ or WASD`."""
    sets = zip(*(controls.keys_for(action) for action in actions), strict=False)
    return " or ".join("".join(map(_key, each)) for each in sets)


def _draw_commands(panel: Panel, session: Session, reading: Reading, controls: Controls, bottom: int) -> int:
    """Draw a line per command, key caps first, without those that do nothing now; return where they begin."""
    import pygame

    for command, meaning in reversed(session.meanings().items()):
        if not meaning:
            continue
        caps = [_key(key) for key in controls.keys_for(command)[:1]]
        if reading.device != KEYBOARD:
            caps = [_button(button, reading.device) for button in controls.buttons_for(command)[:1]] + caps
        bottom -= 34
        x = panel.left
        for cap in caps:
            label = _glyphs(cap, CAP)
            area = pygame.Rect(x, bottom, max(label.get_width() + 16, 28), 27)
            pygame.draw.rect(panel.canvas, RAISED, area, border_radius=6)
            panel.canvas.blit(label, label.get_rect(center=area.center))
            x = area.right + 6
        panel.canvas.blit(_glyphs(meaning, NORMAL), (x + 5, bottom + 4))
    return bottom


def _key(name: str) -> str:
    return KEY_LABELS.get(name, name.capitalize())


def _button(button: str | int, device: str) -> str:
    """Return what is printed on a button, as far as that can be known."""
    if isinstance(button, int):
        return f"Button {button}"
    sony = any(word in device.lower() for word in ("ps3", "ps4", "ps5", "dualsense", "dualshock", "playstation"))
    return PLAYSTATION.get(button, button.capitalize()) if sony else button.capitalize()


def _wrap(text: str, style: Style, width: int) -> list[str]:
    """Break a text at spaces into lines of at most this width."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _font(style.size, style.bold).size(longer)[0] > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


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
