"""What a person sees while playing: the map, and beside it the score, the stick and what each key does now."""

from __future__ import annotations

import os
import sys
from typing import TYPE_CHECKING

import numpy as np

from pidm_nav.demos.recorder.gamepad import Reading
from pidm_nav.demos.recorder.keyboard import KEYBOARD
from pidm_nav.demos.recorder.lettering import BACK, DIM, LIGHT, RAISED, draw_bar, draw_text, glyphs, wrap
from pidm_nav.demos.recorder.mapping import CAMERA, Mapping
from pidm_nav.demos.recorder.session import Session
from pidm_nav.world2d.drawing import COLORS, TRACE, Color, Frame, view_room
from pidm_nav.world2d.layout import BOX
from pidm_nav.world2d.render import Window, render_state

if TYPE_CHECKING:
    import pygame

PANEL = 330  # px beside the map
EDGE = 24
RECENT = 90  # steps of trace that are drawn: older ones would cost more time than a frame has
GHOST: Color = (234, 118, 0)

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


class Screen:
    """The window.

    Args:
        title: the task's.
        subtitle: what is going on, such as the file that is recorded to.
        size: side of the map in pixels; None fits the desktop.
    """

    def __init__(self, title: str, subtitle: str, size: int | None = None) -> None:
        require_display()
        if size is not None and not 480 <= size <= 4000:
            raise ValueError(f"--size is {size}: it must be between 480 and 4000 pixels")
        self.title, self.subtitle, self.size = title, subtitle, size or _fitting_size()
        self._window = Window(f"pidm-nav: {title}")

    def show(self, session: Session, reading: Reading, mapping: Mapping) -> list[pygame.event.Event]:
        """Draw the session, and return what happened in the window."""
        frame = draw_session(session, reading, mapping, self.title, self.subtitle, self.size)
        return self._window.show(frame, fps=0)  # the loop's own clock holds the rate

    def events(self) -> list[pygame.event.Event]:
        """What has happened since `show`."""
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
    """A map as large as the desktop allows, up to one pixel per room pixel."""
    import pygame

    width, height = pygame.display.get_desktop_sizes()[0]
    return max(min(width - PANEL - 40, height - 120, 800), 480)


def draw_session(session: Session, reading: Reading, mapping: Mapping, title: str, subtitle: str, size: int) -> Frame:
    """The (size, size + PANEL, 3) picture of a session."""
    import pygame

    frame = np.empty((size, size + PANEL, 3), dtype=np.uint8)
    frame[:, :size] = _draw_camera(session, size) if session.is_3d else _draw_map(session, size)
    canvas = pygame.image.frombuffer(frame.data, (size + PANEL, size), "RGB")
    canvas.fill(BACK, (size, 0, PANEL, size))
    if session.rival is not None:
        _draw_ghost(canvas, session, size)
    _draw_banner(canvas, session, size)
    left, right = size + EDGE, size + PANEL - EDGE
    top = 20 + draw_text(canvas, title, (left, 18), 27, bold=True)
    top += 14 + draw_text(canvas, subtitle, (left, top), 13, DIM, width=right - left)
    top = _draw_score(canvas, session, left, right, top)
    bottom = _draw_commands(canvas, session, reading, mapping, left, right, size - 16)
    bottom = _draw_stick(canvas, session.is_3d, reading, mapping, left, right, bottom)
    if session.message and bottom - top > 40:
        _draw_message(canvas, session.message, left, right, top, bottom)
    return frame


def _draw_map(session: Session, size: int) -> Frame:
    trace = np.stack(session.attempt.observations[-RECENT:])[:, :2]
    return render_state(session.layout, session.state, (size, size), trace)


def _draw_camera(session: Session, size: int) -> Frame:
    """What the camera sees, in the middle of the square."""
    import pygame

    picture = np.ascontiguousarray(session.env.render())
    height, width, _ = picture.shape
    surface = pygame.image.frombuffer(picture.data, (width, height), "RGB")
    high = size * height // width
    scaled = pygame.transform.smoothscale(surface, (size, high))
    frame = np.full((size, size, 3), BACK, dtype=np.uint8)
    top = (size - high) // 2
    frame[top : top + high] = pygame.surfarray.array3d(scaled).swapaxes(0, 1)
    return frame


def _draw_ghost(canvas: pygame.Surface, session: Session, size: int) -> None:
    """The rival: a line, and a translucent box."""
    import pygame

    if session.rival is None:
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
    """What to do, over the foot of the map, while no episode runs."""
    import pygame

    saving = session.file is not None and not session.file.is_written()
    start = "Move to start"
    if session.countdown:
        start = f"Starts in {int(np.ceil(session.seconds_left))}"
    text = {
        "ready": "Saving ..." if saving else start,
        "paused": "Paused",
        "complete": "That was the last round" if session.file is None else "All episodes are recorded",
    }.get(session.phase)
    if text is None:
        return
    label = glyphs(text, 24, LIGHT, True)
    pill = pygame.Surface((label.get_width() + 52, label.get_height() + 22), pygame.SRCALPHA)
    pygame.draw.rect(pill, (*BACK, 225), pill.get_rect(), border_radius=pill.get_height() // 2)
    pill.blit(label, (26, 11))
    canvas.blit(pill, pill.get_rect(midbottom=(size // 2, size - 46)))


def _draw_score(canvas: pygame.Surface, session: Session, left: int, right: int, top: int) -> int:
    """Episode, goals, steps, kept; returns where they end."""
    number = min(session.kept + 1, session.episodes or sys.maxsize)
    of = "" if session.episodes is None else f" of {session.episodes}"
    word = "Episode" if session.file is not None else "Round"
    top += 8 + draw_text(canvas, f"{word} {number}{of}", (left, top), 20, bold=True)
    goals, reached = session.num_goals, session.attempt.goals_reached[-1]
    limit = f" of {session.max_steps}" if session.max_steps else ""
    rows = [("Goals", f"{reached} of {goals}", reached / goals, COLORS["reached"])]
    if session.rival is not None:
        rival = session.rival
        rows[0] = ("You", f"{reached} of {goals} goals", reached / goals, TRACE)
        rows.append((rival.name, f"{rival.goals_reached} of {goals} goals", rival.goals_reached / goals, GHOST))
    if session.is_3d:
        rows.append(("Next", session.milestone, -1.0, DIM))
    rows.append(("Steps", f"{session.steps}{limit}", session.steps / (session.max_steps or np.inf), TRACE))
    if session.file is not None:
        total = session.kept / session.episodes if session.episodes else 0.0
        in_file = f"{session.kept}, {len(session.file)} in the file" if session.file.num_before else str(session.kept)
        rows.append(("Kept", in_file, total, COLORS["reached"]))
    elif session.rival is not None:
        rows.append(("You : rival", f"{session.rival.wins} : {session.rival.losses}", -1.0, DIM))
    for name, value, part, colour in rows:
        draw_text(canvas, name, (left, top), 15, DIM, width=(right - left) // 2)
        top += 6 + draw_text(canvas, value, (right, top), 15, align="right")
        if part >= 0:
            draw_bar(canvas, left, right, top, part, colour)
        top += 14
    return top + 4


def _draw_message(canvas: pygame.Surface, message: str, left: int, right: int, top: int, bottom: int) -> None:
    import pygame

    lines = wrap(message, 15, right - left - 28)[: max((bottom - top - 26) // 21, 1)]
    area = pygame.Rect(left, top, right - left, 20 + 21 * len(lines))
    pygame.draw.rect(canvas, RAISED, area, border_radius=9)
    pygame.draw.rect(canvas, TRACE, (left, top, 4, area.height), border_radius=2)
    for index, line in enumerate(lines):
        draw_text(canvas, line, (left + 16, top + 10 + 21 * index), 15)


def _draw_stick(
    canvas: pygame.Surface, is_3d: bool, reading: Reading, mapping: Mapping, left: int, right: int, bottom: int
) -> int:
    """Where the stick is, so that one sees at once whether a device works; returns where it begins."""
    import pygame

    radius = 30
    middle = (left + radius, bottom - radius - 14)
    pygame.draw.aacircle(canvas, RAISED, middle, radius)
    for (x, y), colour in ((reading.camera, GHOST), (reading.stick, TRACE))[0 if is_3d else 1 :]:
        x, y = (min(max(value, -1.0), 1.0) * (radius - 10) for value in (x, y))
        pygame.draw.aacircle(canvas, colour, (middle[0] + round(x), middle[1] + round(y)), 10)
    beside = left + 2 * radius + 16
    draw_text(canvas, reading.device, (beside, middle[1] - 20), 15, width=right - beside)
    how = _movement(mapping) if reading.device == KEYBOARD else f"{mapping.x} and {mapping.y}"
    if (mapping.x, mapping.y) == ("leftx", "lefty") and reading.device != KEYBOARD:
        how = "left stick moves, right stick turns" if is_3d else "left stick moves"
    elif is_3d and reading.device == KEYBOARD:
        how += f", {''.join(_key(mapping.keys[name][0]) for name in CAMERA if mapping.keys[name])} turn"
    draw_text(canvas, how, (beside, middle[1] + 3), 13, DIM, width=right - beside)
    return middle[1] - radius - 10


def _movement(mapping: Mapping) -> str:
    """The keys that move, such as `↑←↓→ or WASD, Shift slows`."""
    sets = zip(*(mapping.keys[name] for name in ("up", "left", "down", "right")), strict=False)
    slow = f", {_key(mapping.keys['slow'][0])} slows" if mapping.keys["slow"] else ""
    return " or ".join("".join(map(_key, each)) for each in sets) + slow


def _draw_commands(
    canvas: pygame.Surface,
    session: Session,
    reading: Reading,
    mapping: Mapping,
    left: int,
    right: int,
    bottom: int,
) -> int:
    """A line a command, key caps first; what does nothing now is left out. Returns where they begin."""
    import pygame

    for command, meaning in reversed(session.meanings().items()):
        if not meaning:
            continue
        caps = [_key(key) for key in mapping.keys[command][:1]]
        if reading.device != KEYBOARD:
            caps = [_button(button, reading.device) for button in mapping.buttons[command][:1]] + caps
        bottom -= 34
        x = left
        for cap in caps:
            label = glyphs(cap, 14, LIGHT, True)
            area = pygame.Rect(x, bottom, max(label.get_width() + 16, 28), 27)
            pygame.draw.rect(canvas, RAISED, area, border_radius=6)
            canvas.blit(label, label.get_rect(center=area.center))
            x = area.right + 6
        draw_text(canvas, meaning, (x + 5, bottom + 4), 15, width=right - x - 5)
    return bottom


def _key(name: str) -> str:
    return KEY_LABELS.get(name, name.capitalize())


def _button(button: str | int, device: str) -> str:
    """What is printed on it, as far as one can know."""
    if isinstance(button, int):
        return f"Button {button}"
    sony = any(word in device.lower() for word in ("ps3", "ps4", "ps5", "dualsense", "dualshock", "playstation"))
    return PLAYSTATION.get(button, button.capitalize()) if sony else button.capitalize()
