"""Text, bars and colours of the recorder's panel."""

from __future__ import annotations

from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from pidm_nav.world2d.drawing import Color

if TYPE_CHECKING:
    import pygame

BACK: Color = (24, 27, 34)
RAISED: Color = (42, 47, 58)
DIM: Color = (148, 155, 170)
LIGHT: Color = (238, 240, 244)


def draw_bar(canvas: pygame.Surface, left: int, right: int, top: int, part: float, colour: Color) -> None:
    """A line of which a part is coloured."""
    import pygame

    pygame.draw.rect(canvas, RAISED, (left, top, right - left, 6), border_radius=3)
    if part > 0:
        width = max(round((right - left) * min(part, 1.0)), 6)
        pygame.draw.rect(canvas, colour, (left, top, width, 6), border_radius=3)


def draw_text(
    canvas: pygame.Surface,
    text: str,
    place: tuple[int, int],
    size: int,
    colour: Color = LIGHT,
    bold: bool = False,
    align: str = "left",
    width: int | None = None,
) -> int:
    """Write a line, shortened to a width; returns its height."""
    while width is not None and len(text) > 2 and glyphs(text, size, colour, bold).get_width() > width:
        text = text.rstrip("…")[:-1] + "…"
    line = glyphs(text, size, colour, bold)
    x, y = place
    canvas.blit(line, (x - line.get_width() if align == "right" else x, y))
    return line.get_height()


def wrap(text: str, size: int, width: int) -> list[str]:
    """Lines no wider than that, broken at spaces."""
    lines = [""]
    for word in text.split():
        longer = f"{lines[-1]} {word}".strip()
        if lines[-1] and _font(size, False).size(longer)[0] > width:
            lines.append(word)
        else:
            lines[-1] = longer
    return lines


@lru_cache(maxsize=512)
def glyphs(text: str, size: int, colour: Color, bold: bool) -> pygame.Surface:
    """A picture of a line of text."""
    return _font(size, bold).render(text, True, colour)


@lru_cache(maxsize=16)
def _font(size: int, bold: bool) -> pygame.font.Font:
    """Matplotlib's font, which is legible and has arrows; found without importing matplotlib."""
    import pygame

    pygame.font.init()
    spec = find_spec("matplotlib")
    name = "DejaVuSans-Bold.ttf" if bold else "DejaVuSans.ttf"
    path = Path((spec.origin if spec else None) or "").parent / "mpl-data" / "fonts" / "ttf" / name
    return pygame.font.Font(path, size) if path.is_file() else pygame.font.Font(None, round(size * 1.4))
