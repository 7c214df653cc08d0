"""What a person sees while playing: the world, and beside it the score, the stick and what each key does now."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from functools import cache, lru_cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pygame

from pidm_nav.console import counted
from pidm_nav.demos.recorder.controls import KEYBOARD, Action, Axes, Controls, Reading
from pidm_nav.demos.recorder.players import Player, Rival
from pidm_nav.demos.recorder.session import Session
from pidm_nav.limits import MAX_SIDE, check_number
from pidm_nav.video import Frame
from pidm_nav.world2d.drawing import COLORS, TRACE, Color, view_room
from pidm_nav.world2d.layout import BOX, Layout
from pidm_nav.world2d.render import render_state

LOW, HIGH, MOST = 640, 800, 1600  # sides of the world between which lengths are meant, and the largest to choose
PANEL, EDGE = 330, 24  # the width of the panel beside the world, and of its margins, in pixels
RECENT = 90  # steps of the trace that are drawn: older ones would cost more time than a frame has
BACK: Color = (24, 27, 34)
RAISED: Color = (42, 47, 58)
DIM: Color = (148, 155, 170)
LIGHT: Color = (238, 240, 244)
GHOST: Color = (234, 118, 0)
SUCCESS: Color = (24, 121, 60)
FAILURE: Color = (217, 60, 48)

Style = tuple[int, Color, bool]  # the size of a text, its color and whether it is bold
TITLE, HEADING, BANNER, CAP = ((size, LIGHT, True) for size in (27, 20, 24, 14))
NORMAL, LABEL, SMALL = (15, LIGHT, False), (15, DIM, False), (13, DIM, False)
Row = tuple[str, str, float | None, Color]  # a name, its value, and the part of a bar that has this color

ARROWS = {"left": "←", "right": "→", "up": "↑", "down": "↓"}
KEY_LABELS = {**ARROWS, "return": "Enter", "escape": "Esc", "left shift": "Shift"}
PLAYSTATION = {"a": "Cross", "b": "Circle", "x": "Square", "y": "Triangle", "back": "Share", "start": "Options"}


class Screen:
    """Draws a session: the world in a square, whose size in pixels fits the desktop by default, beside a panel."""

    def __init__(self, title: str, subtitle: str, controls: Controls, size: int | None = None) -> None:
        if size is None:
            width, height = pygame.display.get_desktop_sizes()[0]
            widest = min(width - 40 - PANEL, (width - 40) * HIGH // (HIGH + PANEL))
            size = max(min(widest, height - 120, MOST), 480)
        check_number("size", size, 480, MAX_SIDE)
        self.title, self.subtitle, self.controls, self.size = title, subtitle, controls, size
        self._scale = size / min(max(size, LOW), HIGH)  # beside a small world all must fit, beside a large one be seen
        self.width = size + self._px(PANEL)
        self._panel = pygame.Rect(size + self._px(EDGE), 0, self._px(PANEL - 2 * EDGE), size)
        _font.cache_clear()  # environments that draw with pygame end it, with its fonts, when they are closed

    def draw(self, session: Session, reading: Reading) -> Frame:
        """Draw a session as a (size, width, 3) frame."""
        frame = np.empty((self.size, self.width, 3), dtype=np.uint8)
        # The canvas shares the frame's memory: what is drawn on it is in the array.
        self._canvas = pygame.image.frombuffer(frame.data, (self.width, self.size), "RGB")
        self._canvas.fill(BACK)
        if session.layout is None:
            picture = pygame.surfarray.make_surface(session.person.rollout.picture(0).swapaxes(0, 1))
            area = picture.get_rect().fit((0, 0, self.size, self.size))
            self._canvas.blit(pygame.transform.smoothscale(picture, area.size), area)
        else:
            place, trace = (self.size, self.size), session.person.trace[-RECENT:]
            frame[:, : self.size] = render_state(session.layout, session.person.state, place, trace)
            if session.rival is not None:
                self._draw_ghost(session.rival, session.layout)
        self._draw_banner(session)
        top = self._px(20) + self._write(self.title, self._px(18), TITLE)
        top += self._px(14) + self._write(self.subtitle, top, SMALL)
        top = self._draw_score(session, top)
        bottom = self._draw_commands(session, reading.device)
        bottom = self._draw_sticks(reading, session.person.has_camera, bottom)
        if (session.problem or session.message) and bottom - top > self._px(40):
            self._draw_message(session, top, bottom)
        return frame

    def _px(self, length: int) -> int:
        """Return a length that is meant for a world between LOW and HIGH."""
        return round(length * self._scale)

    def _text(self, text: str, style: Style, width: int = 0) -> pygame.Surface:
        """Return a picture of a text, folded at this width."""
        size, color, bold = style
        return _glyphs(text, (self._px(size), color, bold), width)

    def _draw_ghost(self, rival: Rival, layout: Layout) -> None:
        """Draw the rival on the map: a line, and a ring, in which a player at the same place is seen."""
        view = view_room(layout.room_size, (self.size, self.size))
        points = np.stack(rival.trace[-RECENT:]) * view.scale + (view.left, view.top)
        if len(points) > 1:
            pygame.draw.aalines(self._canvas, GHOST, False, points.tolist())
        radius = max(round(0.7 * BOX * view.scale), 4)
        pygame.draw.aacircle(self._canvas, GHOST, points[-1].tolist(), radius, max(radius // 2, 2))

    def _draw_banner(self, session: Session) -> None:
        """Say what to do while no episode runs, over the foot of the world."""
        start = f"Starts in {int(np.ceil(session.seconds_left))}" if session.rules.countdown else "Move to start"
        text = {
            "ready": start,
            "paused": "Paused",
            "waiting": "Your rival plays on",
            "complete": "That was the last round" if session.file is None else "All episodes are recorded",
        }.get(session.phase)
        if text is None:
            return
        if session.file is not None and not session.file.is_written():
            text = "Not saved" if session.problem else "Saving ..."
        bottom = self._draw_pill(text, BACK, self.size - self._px(46))
        if session.outcome == "success":
            self._draw_pill("All goals reached!" if session.rival is None else "You win!", SUCCESS, bottom)

    def _draw_pill(self, text: str, color: Color, bottom: int) -> int:
        """Draw a text over the world that ends at a height; return where one above it may end."""
        label = self._text(text, BANNER)
        area = label.get_rect().inflate(self._px(52), self._px(22))
        pill = pygame.Surface(area.size, pygame.SRCALPHA)
        pygame.draw.rect(pill, (*color, 240), pill.get_rect(), border_radius=area.height // 2)
        pill.blit(label, label.get_rect(center=pill.get_rect().center))
        area.midbottom = (self.size // 2, bottom)
        self._canvas.blit(pill, area)
        return area.top - self._px(8)

    def _draw_score(self, session: Session, top: int) -> int:
        """Draw the episode's number and the rows of its score; return where they end."""
        wanted = session.rules.episodes
        number, of = min(session.kept + 1, wanted or sys.maxsize), f" of {wanted}" if wanted else ""
        heading = f"{'Round' if session.file is None else 'Episode'} {number}{of}"
        top += self._px(8) + self._write(heading, top, HEADING)
        for name, value, part, color in _score(session):
            label = self._text(value, NORMAL)
            self._canvas.blit(label, label.get_rect(topright=(self._panel.right, top)))
            top += self._px(8) + self._write(name, top, LABEL)
            if part is not None:
                bar = pygame.Rect(self._panel.left, top - 2, self._panel.width, self._px(6))
                pygame.draw.rect(self._canvas, RAISED, bar, border_radius=bar.height // 2)
                if part > 0:
                    bar.width = max(round(bar.width * min(part, 1.0)), bar.height)
                    pygame.draw.rect(self._canvas, color, bar, border_radius=bar.height // 2)
                top += self._px(12)
        return top + self._px(4)

    def _draw_message(self, session: Session, top: int, bottom: int) -> None:
        """Draw a message in a box, as many lines of it as there is room for."""
        text = self._text(session.problem or session.message, NORMAL, self._panel.width - self._px(28))
        line = self._text(" ", NORMAL).get_height()
        height = min(text.get_height(), max((bottom - top - self._px(26)) // line, 1) * line)
        area = pygame.Rect(self._panel.left, top, self._panel.width, self._px(20) + height)
        color = FAILURE if session.problem or session.outcome == "failure" else TRACE
        pygame.draw.rect(self._canvas, RAISED, area, border_radius=self._px(9))
        pygame.draw.rect(self._canvas, color, (area.left, top, self._px(4), area.height), border_radius=2)
        self._canvas.blit(text, (area.left + self._px(16), top + self._px(10)), (0, 0, text.get_width(), height))

    def _draw_sticks(self, reading: Reading, has_camera: bool, bottom: int) -> int:
        """Draw where the sticks are, so that one sees at once whether a device works; return where that begins."""
        radius, indent, dot = self._px(30), self._px(76), self._px(10)
        name = self._text(reading.device, NORMAL, self._panel.width - indent)
        how = self._text(self._movement(reading.device, has_camera), SMALL, self._panel.width - indent)
        height = name.get_height() + self._px(4) + how.get_height()
        area = pygame.Rect(self._panel.left, 0, self._panel.width, max(2 * radius, height))
        area.bottom = bottom - self._px(14)
        x, y = area.left + radius, area.centery
        pygame.draw.aacircle(self._canvas, RAISED, (x, y), radius)
        sticks = ((reading.camera, GHOST), (reading.stick, TRACE))
        for stick, color in sticks if has_camera else sticks[1:]:
            right, down = (round(min(max(value, -1.0), 1.0) * (radius - dot)) for value in stick)
            pygame.draw.aacircle(self._canvas, color, (x + right, y + down), dot)
        self._canvas.blit(name, (area.left + indent, y - height // 2))
        self._canvas.blit(how, (area.left + indent, y + height // 2 - how.get_height()))
        return area.top - self._px(10)

    def _movement(self, device: str, has_camera: bool) -> str:
        """Say what moves and turns, such as `↑←↓→ or WASD move, Shift slows`."""
        axes = self.controls.stick
        slow = [f"{_key(key)} slows" for key in self.controls.keys_for("slow")[:1] if device == KEYBOARD]
        if device == KEYBOARD:
            turn = self._keys("look_up", "turn_left", "look_down", "turn_right")
            said = [f"{self._keys('up', 'left', 'down', 'right')} move", f"{turn} turn"]
        elif axes == Axes():
            said = ["left stick moves", "right stick turns"]
        else:
            said = [f"axes {axes.x} and {axes.y} move", f"axes {axes.turn} and {axes.look} turn"]
        return ", ".join(said[: 1 + has_camera] + slow)

    def _keys(self, *actions: Action) -> str:
        """Return the keys of these actions, such as `↑←↓→ or WASD`."""
        sets = zip(*map(self.controls.keys_for, actions), strict=False)
        return " or ".join("".join(map(_key, each)) for each in sets)

    def _draw_commands(self, session: Session, device: str) -> int:
        """Draw a line per command, key caps first, without those that do nothing now; return where they begin."""
        bottom = self.size - self._px(16)
        for command, meaning in reversed(session.meanings().items()):
            if not meaning:
                continue
            caps = [_key(key) for key in self.controls.keys_for(command)[:1]]
            if device != KEYBOARD:
                caps = [_button(button, device) for button in self.controls.buttons_for(command)[:1]] + caps
            bottom -= self._px(34)
            x = self._panel.left
            for cap in caps:
                label = self._text(cap, CAP)
                area = pygame.Rect(x, bottom, max(label.get_width() + self._px(16), self._px(28)), self._px(27))
                pygame.draw.rect(self._canvas, RAISED, area, border_radius=self._px(6))
                self._canvas.blit(label, label.get_rect(center=area.center))
                x = area.right + self._px(6)
            self._canvas.blit(self._text(meaning, NORMAL), (x + self._px(5), bottom + self._px(4)))
        return bottom

    def _write(self, text: str, top: int, style: Style) -> int:
        """Write a text on the panel, folded where it is too long, and return its height."""
        label = self._text(text, style, self._panel.width)
        self._canvas.blit(label, (self._panel.left, top))
        return label.get_height()


def _score(session: Session) -> Iterator[Row]:
    """Yield goals or return of every player, steps, and how many episodes are kept or rounds won."""
    person, rival, file, wanted = session.person, session.rival, session.file, session.rules.episodes
    players: list[tuple[str, Player, Color]] = [("", person, COLORS["reached"])]
    if rival is not None:
        players = [("You", person, TRACE), (rival.name, rival, GHOST)]
    for name, player, color in players:
        if person.num_goals:
            of = str(person.num_goals) if rival is None else counted(person.num_goals, "goal")
            yield name or "Goals", f"{player.goals_reached} of {of}", player.goals_reached / person.num_goals, color
        else:
            yield name or "Return", f"{'' if rival is None else 'return '}{player.total:.1f}", None, color
    milestone = str(person.info("milestone", ""))
    if milestone:
        yield "Next", milestone, None, DIM
    limit = session.task.max_steps
    yield "Steps", f"{person.steps} of {limit}", person.steps / limit, TRACE
    if file is not None:
        kept = f"{session.kept}, {len(file)} in the file" if file.num_before else str(session.kept)
        yield "Kept", kept, session.kept / wanted if wanted else 0.0, COLORS["reached"]
    elif rival is not None:
        yield "You : rival", f"{rival.wins} : {rival.losses}", None, DIM


def _key(name: str) -> str:
    return KEY_LABELS.get(name, name.capitalize())


def _button(button: str | int, device: str) -> str:
    """Return what is printed on a button, as far as that can be known."""
    if isinstance(button, int):
        return f"Button {button}"
    sony = any(word in device.lower() for word in ("ps3", "ps4", "ps5", "dualsense", "dualshock", "playstation"))
    return PLAYSTATION.get(button, button.capitalize()) if sony else button.capitalize()


@lru_cache(maxsize=512)
def _glyphs(text: str, style: Style, width: int) -> pygame.Surface:
    size, color, bold = style
    return _font(size, bold).render(text, True, color, wraplength=width)


@cache
def _font(size: int, bold: bool) -> pygame.font.Font:
    """Load matplotlib's font, which is legible and has arrows, without importing matplotlib."""
    pygame.font.init()
    spec = find_spec("matplotlib")
    assert spec is not None and spec.origin is not None  # it is one of our dependencies
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    return pygame.font.Font(Path(spec.origin).parent / "mpl-data" / "fonts" / "ttf" / name, size)
