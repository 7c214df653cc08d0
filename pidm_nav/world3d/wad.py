"""WAD files of levels for the engine: the map as text, and the objects of its milestones.

The map is one `TEXTMAP` lump (UDMF). Cells of one zone share a sector. The border between a free cell and a wall is a
one-sided line, the border between different zones a two-sided line. The engine builds the search tree.

Each milestone is an object of its own class that counts the walker's tokens, which the environment gives. With one
token per earlier milestone, it is the current milestone and shines; with one more, it is reached and disappears.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator

import numpy as np

from pidm_nav.world3d.levels import WALL, Level, Milestone

TOKEN = "MilestoneToken"
FIRST_TYPE = 31000  # first object type that the game does not use
EVERYWHERE = "skill1=true;skill2=true;skill3=true;skill4=true;skill5=true;single=true;"
LOOKS = {  # frames of the current milestone by kind, and its scale
    "reach": ("TRED AAAABBBBCCCCDDDD", 1.8),
    "turn": ("TBLU AAAABBBBCCCCDDDD", 1.8),
    "pick up": ("SOUL AAAABBBBCCCCDDDDCCCCBBBB", 1.6),
    "look up": ("PINV AAAABBBBCCCCDDDD", 2.5),
    "stand still": ("TGRN AAAABBBBCCCCDDDD", 1.8),
}

Point = tuple[float, float]


def build_wad(level: Level) -> bytes:
    """Return the level as the bytes of a WAD file."""
    token = f"ACTOR {TOKEN} : Inventory {{ Inventory.MaxAmount {len(level.milestones) + 1} }}"
    objects = [token, *(_milestone(*each) for each in enumerate(level.milestones))]
    lumps = {"MAP01": "", "TEXTMAP": _text_map(level), "ENDMAP": "", "DECORATE": "\n".join(objects) + "\n"}
    body, directory = b"", b""
    for name, text in lumps.items():
        content = text.encode("ascii")
        directory += struct.pack("<ii8s", 12 + len(body), len(content), name.encode("ascii"))
        body += content
    return b"PWAD" + struct.pack("<ii", len(lumps), 12 + len(body)) + body + directory


def _text_map(level: Level) -> str:
    vertices: dict[Point, int] = {}
    lines: list[str] = []
    sides: list[str] = []
    for start, end, front, back in _lines(level):
        ends = [vertices.setdefault(point, len(vertices)) for point in (start, end)]
        fields = f"v1={ends[0]};v2={ends[1]};sidefront={len(sides)};"
        sides.append(_side(level, front, back, start, end))
        if back == WALL:
            fields += "blocking=true;"
        else:
            fields += f"sideback={len(sides)};twosided=true;"
            sides.append(_side(level, back, front, end, start))
        lines.append(f"linedef{{{fields}}}")
    points = [f"vertex{{x={x:.3f};y={y:.3f};}}" for x, y in vertices]
    sectors = [
        f"sector{{heightfloor={zone.floor_height};heightceiling={zone.ceiling_height};"
        f'texturefloor="{zone.floor}";textureceiling="{zone.ceiling}";lightlevel={zone.light};}}'
        for zone in level.zones
    ]
    return "\n".join(['namespace="zdoom";', *points, *lines, *sides, *sectors, *_things(level)]) + "\n"


def _lines(level: Level) -> Iterator[tuple[Point, Point, int, int]]:
    """Yield start, end, right zone and left zone of every border; the right zone is never a wall."""
    xs, ys = (edges.tolist() for edges in level.edges)
    cells = np.pad(level.cells, 1, constant_values=WALL)  # a map without a border wall ends at its edge
    for line, column in np.argwhere(cells[:, 1:] != cells[:, :-1]).tolist():
        west, east = cells[line, column : column + 2].tolist()
        lower, upper = (xs[column], ys[line]), (xs[column], ys[line - 1])
        yield (lower, upper, east, west) if east != WALL else (upper, lower, west, east)
    for line, column in np.argwhere(cells[1:] != cells[:-1]).tolist():
        north, south = cells[line : line + 2, column].tolist()
        left, right = (xs[column - 1], ys[line]), (xs[column], ys[line])
        yield (right, left, north, south) if north != WALL else (left, right, south, north)


def _side(level: Level, zone: int, behind: int, start: Point, end: Point) -> str:
    """Return one side of a line; its texture is anchored to the map, so that it continues on the next line."""
    way = [(b > a) - (b < a) for a, b in zip(start, end, strict=True)]  # 1, 0 or -1 along x and y
    along = start[0] * way[0] + start[1] * way[1]
    here = level.zones[zone]
    if behind == WALL:
        textures = f'texturemiddle="{here.wall}";'
    else:
        textures = f'texturebottom="{level.zones[behind].riser}";texturetop="{here.wall}";'
    return f"sidedef{{sector={zone};offsetx={round(along) % 1024};{textures}}}"


def _things(level: Level) -> Iterator[str]:
    x, y = level.start
    yield f"thing{{x={x:.1f};y={y:.1f};angle={level.start_angle};type=1;{EVERYWHERE}}}"
    for index, milestone in enumerate(level.milestones):
        x, y = milestone.marker
        place = f"x={x:.1f};y={y:.1f};height={milestone.marker_height:.1f};"
        yield f"thing{{{place}type={FIRST_TYPE + index};{EVERYWHERE}}}"


def _milestone(index: int, milestone: Milestone) -> str:
    frames, scale = LOOKS[milestone.kind]
    if index:
        spawn = f"CBRA A 1 NODELAY {_if_tokens(index, 'Current')}\nLoop"
    else:
        spawn = f"{frames.split()[0]} A 1 Bright NODELAY"  # the first milestone is current without tokens
    return (
        f"ACTOR Milestone{index} {FIRST_TYPE + index}\n{{\n+NOBLOCKMAP\n+NOGRAVITY\nScale {scale}\nStates\n{{\n"
        f"Spawn:\n{spawn}\nCurrent:\n{frames} 1 Bright {_if_tokens(index + 1, 'Reached')}\nLoop\n"
        f"Reached:\nTNT1 A -1\nStop\n}}\n}}"
    )


def _if_tokens(number: int, state: str) -> str:
    return f'A_JumpIfInventory("{TOKEN}", {number}, "{state}", AAPTR_PLAYER1)'
