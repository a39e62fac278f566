"""Identifies files: growing, rotated and rewritten files are distinguished by inode and by fingerprints.

A name does not identify a file: today's `app.log` is not yesterday's, which is `app.log.1` now. The state of a file has
its inode, a hash of its first bytes, and a hash of the bytes directly before the place that was read:

| found | means |
|---|---|
| same inode, both hashes fit | the same file, perhaps renamed, perhaps longer: continue |
| same inode, a hash does not fit, or it is shorter | rewritten, or the inode was reused: from the start |
| new inode under a known name, the old one is gone, both hashes fit | replaced by a copy (rsync, an editor): continue |
| anything else | a new file: from the start |

For formats that are read whole, the first hash covers all bytes, because another content may have the same size,
beginning and end. The hash is computed again only if the time of the last change differs.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

from suiro.connect.positions import known_fields

HEAD_BYTES = 1_024
TAIL_BYTES = 256
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """How far a file was read. `at`: a place in bytes or, for formats that are read whole, a number of records."""

    path: str  # relative to the folder: the last known name
    at: int = 0
    line: int = 0  # the number of lines, or records, before `at`
    head: tuple[int, str] = (0, "")  # a number of first bytes, and their hash
    tail: tuple[int, str] = (0, "")  # a place, and the hash of the bytes before it
    columns: tuple[str, ...] = ()  # from the header of a CSV file
    changed_ns: int = 0  # for formats that are read whole: the last change of the content that was hashed
    skipping: bool = False  # `at` is within a line that is too long
    done: bool = False  # this content was read, or cannot be read

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FileState:
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return cls(**known_fields(cls, data | lists))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file as it was found in the folder."""

    path: Path
    key: str  # device and inode: the name of its part of the position
    size: int
    changed_ns: int


def file_info(path: Path) -> FileInfo | None:
    """Returns None if it does not exist, or is not a file."""
    try:
        found = path.stat()
    except OSError:
        return None
    if not os.path.isfile(path):
        return None
    return FileInfo(path=path, key=_key(found), size=found.st_size, changed_ns=found.st_mtime_ns)


def _key(found: os.stat_result) -> str:
    return f"{found.st_dev}:{found.st_ino}"


def opened(info: FileInfo) -> BinaryIO:
    """Opens the file. Raises `FileNotFoundError` also if another file has the name now."""
    file = info.path.open("rb")
    if _key(os.fstat(file.fileno())) != info.key:
        file.close()
        raise FileNotFoundError(f"{info.path} is another file by now")
    return file


def is_same(file: BinaryIO, info: FileInfo) -> bool:
    """Whether the file is as it was found in the folder."""
    found = os.fstat(file.fileno())
    return (found.st_size, found.st_mtime_ns) == (info.size, info.changed_ns)


def fingerprints(file: BinaryIO, state: FileState, offset: int) -> FileState:
    """Returns the state with the hashes of a file that was read up to this byte."""
    return _with_hashes(file, state, min(HEAD_BYTES, offset), offset)


def fingerprints_of_all(file: BinaryIO, state: FileState, info: FileInfo) -> FileState:
    """Returns the state with the hashes of a file that is read whole."""
    return replace(_with_hashes(file, state, info.size, info.size), changed_ns=info.changed_ns)


def _with_hashes(file: BinaryIO, state: FileState, head: int, offset: int) -> FileState:
    return replace(
        state,
        head=(head, _hash(file, 0, head)),
        tail=(offset, _hash(file, max(0, offset - TAIL_BYTES), offset)),
    )


def fits(info: FileInfo, state: FileState, *, whole: bool) -> bool:
    """Whether the file has the content of the state. A file that is read whole must not be longer. Raises
    `FileNotFoundError` also if another file has the name now."""
    offset = state.tail[0]
    if info.size < offset or (whole and info.size != offset):
        return False
    with opened(info) as file:
        return holds(file, state)


def holds(file: BinaryIO, state: FileState) -> bool:
    """Whether both hashes fit. Does not move the position in the file."""
    offset = state.tail[0]
    return (
        _hash(file, 0, state.head[0]) == state.head[1]
        and _hash(file, max(0, offset - TAIL_BYTES), offset) == state.tail[1]
    )


def _hash(file: BinaryIO, start: int, end: int) -> str:
    if start == end:
        return ""
    digest = hashlib.sha256()
    while start < end and (piece := os.pread(file.fileno(), min(PIECE_BYTES, end - start), start)):
        digest.update(piece)
        start += len(piece)
    return digest.hexdigest()[:32]
