"""Safe reading of npz files: sizes are checked before memory is allocated."""

from __future__ import annotations

import io
import zipfile
from pathlib import Path
from typing import IO, Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from pidm_nav.demos.formats.schema import TooLarge, check_size

MAX_MEMBERS = 256  # arrays in a file
MAX_DIRECTORY = 2**20  # bytes of the zip directory
MAX_HEADER = 10_000  # bytes of an array's header; NumPy would allocate whatever a file claims


def read_arrays(path: Path) -> dict[str, NDArray[Any]]:
    """Read all arrays of an npz file without pickle; files beyond the limits raise ValueError."""
    arrays = {}
    with path.open("rb") as file:
        try:
            _check_directory(file)
            with zipfile.ZipFile(file) as archive:
                members = archive.infolist()
                if len(members) > MAX_MEMBERS:
                    raise TooLarge(f"it has {len(members):,} arrays, and at most {MAX_MEMBERS} are read")
                check_size(_read_header(archive, member) for member in members)
                for member in members:
                    with archive.open(member) as stream:
                        arrays[member.filename.removesuffix(".npy")] = npy.read_array(stream, allow_pickle=False)
                        if stream.read(1):  # reading to the end also tests the checksum
                            raise ValueError(f"{member.filename} is longer than its header says")
        except TooLarge as error:
            raise ValueError(f"'{path}' cannot be read: {error}") from None
        except Exception as error:  # a damaged file can fail anywhere in zipfile, zlib or NumPy's header parser
            pickled = isinstance(error, ValueError) and "allow_pickle" in str(error)
            kind = "holds pickled objects, which are never loaded" if pickled else "is truncated or not an npz file"
            raise ValueError(f"'{path}' cannot be read: it {kind}") from None
    return arrays


def _check_directory(file: IO[bytes]) -> None:
    """Raise TooLarge for a long zip directory before zipfile reads it; zip64, which adds another one, is too large."""
    file.seek(max(file.seek(0, io.SEEK_END) - 2**16 - 42, 0))
    tail = file.read()
    end = tail.rfind(b"PK\5\6")
    size = int.from_bytes(tail[end + 12 : end + 16], "little")
    if end >= 0 and (size > MAX_DIRECTORY or tail[max(end - 20, 0) : end].startswith(b"PK\6\7")):
        raise TooLarge(f"it has too many arrays: at most {MAX_MEMBERS} are read")


def _read_header(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of an array."""
    if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):  # others decompress without limit
        raise zipfile.BadZipFile
    with archive.open(member) as stream:
        start = stream.read(12)  # magic (6), version (2), and the header's length (2 in version 1, else 4)
        first = start[6:8] == b"\x01\x00"
        length = int.from_bytes(start[8 : 10 if first else 12], "little")
        if length > MAX_HEADER:
            raise TooLarge(f"a header has {length:,} bytes, and at most {MAX_HEADER:,} are read")
        header = io.BytesIO(start + stream.read(length))
    npy.read_magic(header)
    shape, _, dtype = (npy.read_array_header_1_0 if first else npy.read_array_header_2_0)(header)
    return shape, dtype
