"""Damage done to files: a mutation takes a file's bytes and a generator, and returns other bytes and what was done."""

from __future__ import annotations

import io
import json
import struct
import zipfile
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import yaml

Rng = np.random.Generator
Changed = tuple[bytes, str]
DEEP = 100_000
NESTED, MISSING, EXTRA = "\0nested", "\0missing", "\0extra"  # places that the text of a document is changed at
HOSTILE: tuple[Any, ...] = (
    None,
    -1,
    0,
    1.5,
    1e308,
    float("nan"),
    float("inf"),
    2**70,
    True,
    "",
    "x",
    "../x",
    "/",
    "[/red]",
    "\x1b[31m",
    "this:Zen-v0",
    "\ud800",
    "nul\0byte",
    "9" * 5000,
    "long " * 40_000,
    [],
    [[]],
    {},
    {"a": []},
    [1e308] * 3,
    NESTED,
    MISSING,
    EXTRA,
)


def flip_bits(content: bytes, rng: Rng) -> Changed:
    """Flip one to eight bits."""
    changed = bytearray(content or b"\0")
    places = rng.integers(0, len(changed), int(rng.integers(1, 9)))
    for place in places:
        changed[place] ^= 1 << int(rng.integers(8))
    return bytes(changed), f"bits flipped in bytes {places.tolist()}"


def cut(content: bytes, rng: Rng) -> Changed:
    """Cut the end off."""
    length = int(rng.integers(0, max(len(content), 1)))
    return content[:length], f"cut to {length} of {len(content)} bytes"


def grow(content: bytes, rng: Rng) -> Changed:
    """Append bytes, or put them in front."""
    more = rng.bytes(int(rng.integers(1, 5000)))
    return (content + more, f"{len(more)} bytes appended") if rng.random() < 0.7 else (more + content, "bytes in front")


def replace_block(content: bytes, rng: Rng) -> Changed:
    """Replace a block by zeros or by random bytes."""
    begin = int(rng.integers(0, max(len(content), 1)))
    size = min(int(rng.integers(1, 2000)), len(content) - begin)
    block = bytes(size) if rng.random() < 0.5 else rng.bytes(size)
    return content[:begin] + block + content[begin + size :], f"bytes {begin} to {begin + size} replaced"


RAW: tuple[Callable[[bytes, Rng], Changed], ...] = (flip_bits, cut, grow, replace_block)


# ---- documents


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Return the path of every value in a document, itself first."""
    yield path
    if isinstance(value, dict):
        for key in value:
            yield from places(value[key], (*path, key))
    elif isinstance(value, list):
        for index in range(min(len(value), 3)):
            yield from places(value[index], (*path, index))


def put(document: Any, path: tuple[Any, ...], value: Any) -> Any:
    """Return a document with another value at a path."""
    if not path:
        return value
    first, *rest = path
    copy = dict(document) if isinstance(document, dict) else list(document)
    if value == MISSING and not rest:
        del copy[first]
    elif value == EXTRA and not rest:
        if isinstance(copy, dict):
            copy["an extra key"] = {"[/red]": "\x1b[31m"}
        else:
            copy.append(copy[first])
    else:
        copy[first] = put(copy[first], tuple(rest), value)
    return copy


def brief(value: Any) -> str:
    """A value in a few characters."""
    text = repr(value)
    return text if len(text) < 40 else f"{text[:20]}... ({len(text)} characters)"


def change_document(document: Any, rng: Rng) -> tuple[Any, str]:
    """Return a document with one hostile value."""
    every = list(places(document))
    path = every[int(rng.integers(len(every)))]
    value = HOSTILE[int(rng.integers(len(HOSTILE)))]
    if not path and value in (MISSING, EXTRA):
        value = []
    return put(document, path, value), f"{'.'.join(map(str, path)) or 'all of it'} = {brief(value)}"


def to_json(document: Any) -> str:
    """Write JSON text, in which the mark for deep nesting becomes brackets."""
    return json.dumps(document).replace(json.dumps(NESTED), "[" * DEEP + "]" * DEEP)


def change_json(content: bytes, rng: Rng) -> Changed:
    """Put a hostile value into a JSON document."""
    document, told = change_document(json.loads(content), rng)
    text = to_json(document)
    return text.encode(errors="surrogatepass"), told


def change_nested_json(content: bytes, rng: Rng) -> Changed:
    """Put a hostile value into a JSON document that is a text in a JSON document."""
    document = json.loads(content)
    texts = [key for key, value in document.items() if isinstance(value, str) and value.startswith("{")]
    if not texts:
        return change_json(content, rng)
    key = texts[int(rng.integers(len(texts)))]
    inner, told = change_document(json.loads(document[key]), rng)
    return json.dumps({**document, key: to_json(inner)}).encode(), f"in {key}: {told}"


YAML_BOMB = "a0: &a0 [x, x, x, x, x, x, x, x, x]\n" + "".join(
    f"a{level + 1}: &a{level + 1} [{', '.join([f'*a{level}'] * 9)}]\n" for level in range(9)
)


def change_yaml(content: bytes, rng: Rng) -> Changed:
    """Put a hostile value into a YAML document, or a tag, an alias to itself, or a few letters that grow large."""
    choice = int(rng.integers(12))
    if choice == 0:
        return YAML_BOMB.encode() + content, "a document that grows when it is read"
    if choice == 1:
        return b"seed: !!python/object/apply:os.system ['touch ../evil']\n" + content, "a tag that names a function"
    if choice == 2:
        return b"layout: &a [*a]\n", "a list in itself"
    document, told = change_document(yaml.safe_load(content), rng)
    text = yaml.safe_dump(document, allow_unicode=True)
    text = text.replace(yaml.safe_dump(NESTED).removesuffix("...\n").strip(), "[" * DEEP + "]" * DEEP)
    return text.encode(errors="surrogatepass"), told


def change_lines(content: bytes, rng: Rng) -> Changed:
    """Change characters and lines of a text."""
    lines = content.decode().splitlines() or [""]
    line = int(rng.integers(len(lines)))
    kind = int(rng.integers(9))
    if kind == 0:
        del lines[line]
        return "\n".join(lines).encode(), f"line {line} dropped"
    if kind == 1:
        return "\n".join(lines * 400).encode(), "400 times as many lines"
    if kind == 2:
        return "\n".join(each * 400 for each in lines).encode(), "lines 400 times as long"
    if kind == 3:
        return ("#" * 3000 + "\n").encode() * 3000, "3,000 x 3,000 walls"
    if kind == 4:
        middle = ("#" + "." * 2998 + "#\n") * 2997
        return ("#" * 3000 + "\n#A1" + "." * 2996 + "#\n" + middle + "#" * 3000 + "\n").encode(), "3,000 x 3,000 free"
    if kind == 5:
        return b"", "empty"
    if kind == 6:
        return b"\n" * 1000, "only line breaks"
    if kind == 7:
        return "\n".join([*lines, lines[line]]).encode(), f"line {line} twice"
    characters = "#.A1G29z \t\x1b\0é\u2028[/red]"
    column = int(rng.integers(max(len(lines[line]), 1)))
    mark = characters[int(rng.integers(len(characters)))]
    lines[line] = lines[line][:column] + mark + lines[line][column + 1 :]
    return "\n".join(lines).encode(), f"line {line}, column {column} is {mark!r}"


# ---- npz


def read_zip(content: bytes) -> dict[str, bytes]:
    """The members of a zip file."""
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def write_zip(members: dict[str, bytes]) -> bytes:
    """A zip file of members."""
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(zipfile.ZipInfo(name), content, zipfile.ZIP_DEFLATED)
    return file.getvalue()


def npy(array: Any) -> bytes:
    """An array as a npy file."""
    file = io.BytesIO()
    np.lib.format.write_array(file, np.asarray(array), allow_pickle=False)
    return file.getvalue()


def npy_header(descr: str, shape: str, fortran: bool = False, data: bytes = bytes(64)) -> bytes:
    """A npy file with a header of one's own."""
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}".encode()
    header += b" " * (63 - (len(header) + 10) % 64) + b"\n"
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header)) + header + data


def change_members(content: bytes, rng: Rng) -> Changed:
    """Drop, rename, swap or repeat members."""
    members = read_zip(content)
    names = list(members)
    name, other = (names[int(rng.integers(len(names)))] for _ in range(2))
    kind = int(rng.integers(5))
    if kind == 0:
        del members[name]
        return write_zip(members), f"{name} dropped"
    if kind == 1:
        target = ("../evil.npy", "/etc/evil.npy", "x\x1b[31m.npy", "[/red].npy")[int(rng.integers(4))]
        renamed = {target if each == name else each: value for each, value in members.items()}
        return write_zip(renamed), f"{name} renamed to {target!r}"
    if kind == 2:
        return write_zip({**members, name: members[other]}), f"{name} is {other}"
    if kind == 3:
        return write_zip({**members, "more/" + name: members[name], "x.txt": b"no array"}), "more members"
    return write_zip({**members, name: rng.bytes(100)}), f"{name} is no array"


VALUES: tuple[tuple[str, bytes], ...] = (
    ("objects", npy_header("'|O'", "(3,)", data=b"\x80\x04cos\nsystem\n.")),
    ("structured", npy_header("[('a', '<f8'), ('b', '<i4')]", "(2,)")),
    ("a huge shape", npy_header("'<f8'", "(10000000000,)")),
    ("huge shapes", npy_header("'<f4'", "(4000000000, 4000000000, 4000000000)")),
    ("a negative shape", npy_header("'<f8'", "(-1,)")),
    ("no rows of many columns", npy_header("'<f4'", "(0, 1000000000)")),
    ("many rows of no columns", npy_header("'<f4'", "(1000000000, 0)")),
    ("a huge text", npy_header("'<U500000000'", "()")),
    ("no bytes each", npy_header("'|V0'", "(1000000000,)")),
    ("dates", npy_header("'<M8[s]'", "(2,)")),
    ("complex numbers", npy_header("'<c16'", "(2,)")),
    ("a deep header", npy_header("(" * 9000 + ")" * 9000, "(1,)")),
    ("a float", npy(1.5)),
    ("a negative number", npy(-1)),
    ("a large number", npy(2**62)),
    ("large numbers", npy([2**62, 2**62, 2**62])),
    ("infinity", npy([np.inf] * 3)),
    ("large floats", npy([1e308] * 3)),
    ("nothing", npy([])),
    ("texts", npy(["a", "b"])),
    ("bytes", npy(b"[/red]\x1b[31m")),
    ("truth", npy([True, False])),
    ("a cube", npy(np.zeros((3, 3, 3)))),
    ("many dimensions", npy(np.zeros((1,) * 32))),
)


def change_array(content: bytes, rng: Rng) -> Changed:
    """Replace a member by a hostile array."""
    members = read_zip(content)
    names = list(members)
    name = names[int(rng.integers(len(names)))]
    told, value = VALUES[int(rng.integers(len(VALUES)))]
    return write_zip({**members, name: value}), f"{name} is {told}"


def change_numbers(content: bytes, rng: Rng) -> Changed:
    """Change the numbers of an array: to extremes, to another type or to another shape."""
    members = read_zip(content)
    names = [name for name, value in members.items() if b"'<U" not in value[:100]]
    name = names[int(rng.integers(len(names)))]
    array = np.lib.format.read_array(io.BytesIO(members[name]), allow_pickle=False)
    kind = int(rng.integers(7))
    if kind == 0:
        array = array.astype(np.float64) * 1e30
    elif kind == 1:
        array = np.where(rng.random(array.shape) < 0.1, np.nan, array)
    elif kind == 2:
        array = array[..., None]
    elif kind == 3:
        array = array.ravel()
    elif kind == 4:
        array = array.astype("U8")
    elif kind == 5:
        array = array[: len(array) // 2] if array.ndim else array
    else:
        array = array.astype(np.int8)
    return write_zip({**members, name: npy(array)}), f"{name} is {array.dtype} {array.shape} ({kind})"


def change_metadata(content: bytes, rng: Rng) -> Changed:
    """Put a hostile value into the JSON text of an npz file."""
    members = read_zip(content)
    text = str(np.lib.format.read_array(io.BytesIO(members["metadata.npy"]), allow_pickle=False))
    document, told = change_document(json.loads(text), rng)
    return write_zip({**members, "metadata.npy": npy(np.array(to_json(document)))}), f"metadata: {told}"


def inflate(content: bytes, rng: Rng) -> Changed:
    """Replace a member by 1.2 GB of zeros, which compress to a megabyte."""
    members = read_zip(content)
    names = list(members)
    name = names[int(rng.integers(len(names)))]
    block, times = bytes(1 << 24), 72
    header = npy_header("'|u1'", f"({len(block) * times},)", data=b"")
    packer = zlib.compressobj(6, zlib.DEFLATED, -15)
    first = packer.compress(header) + packer.flush(zlib.Z_FULL_FLUSH)
    middle = packer.compress(block) + packer.flush(zlib.Z_FULL_FLUSH)
    packed = first + middle * times + packer.flush(zlib.Z_FINISH)
    checksum = zlib.crc32(header)
    for _ in range(times):
        checksum = zlib.crc32(block, checksum)
    size, encoded = len(header) + len(block) * times, name.encode()
    common = struct.pack("<HHHHHIIIHH", 20, 0, 8, 0, 33, checksum, len(packed), size, len(encoded), 0)
    others = write_zip({each: value for each, value in members.items() if each != name})
    end = others.rindex(b"PK\x05\x06")
    count, length, start = struct.unpack("<HII", others[end + 10 : end + 20])
    local = b"PK\x03\x04" + common[:26] + encoded + packed
    central = b"PK\x01\x02" + struct.pack("<H", 20) + common + struct.pack("<HHHII", 0, 0, 0, 0, start) + encoded
    central = others[start : start + length] + central
    tail = struct.pack("<HHHHIIH", 0, 0, count + 1, count + 1, len(central), start + len(local), 0)
    return others[:start] + local + central + b"PK\x05\x06" + tail, f"{name} is 1.2 GB of zeros"


NPZ: tuple[Callable[[bytes, Rng], Changed], ...] = (change_members, change_array, change_numbers)


# ---- safetensors


def change_tensors(content: bytes, rng: Rng) -> Changed:
    """Change the header of a safetensors file, which is JSON, or a number of its tensors."""
    (size,) = struct.unpack("<Q", content[:8])
    header, data = json.loads(content[8 : 8 + size]), content[8 + size :]
    kind = int(rng.integers(4))
    if kind == 0:
        return struct.pack("<Q", 2 ** int(rng.integers(20, 63))) + content[8:], "a huge header"
    if kind == 1 and data:
        place = int(rng.integers(len(data)))
        return content[: 8 + size] + data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], "a number changed"
    if kind == 2 and "__metadata__" in header:
        metadata = {key: str(int(rng.integers(100))) for key in header["__metadata__"]}
        key = list(metadata)[int(rng.integers(len(metadata)))]
        header["__metadata__"] = {**header["__metadata__"], key: metadata[key]}
        told = f"metadata {key} = {metadata[key]}"
    else:
        header, told = change_document(header, rng)
    text = to_json(header).encode(errors="surrogatepass")
    return struct.pack("<Q", len(text)) + text + data, told
