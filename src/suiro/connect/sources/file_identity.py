"""Which file is which: growing, rotated and rewritten files are told apart by inode and by fingerprints.

A name says nothing: `app.log` of today is another file than that of yesterday, which is `app.log.1` now. What was read
is remembered with the inode, a hash of the first bytes, and a hash of the bytes right before the place reached:

| found | means |
|---|---|
| same inode, both hashes fit | the same file, perhaps under a new name, perhaps longer: go on |
| same inode, a hash does not fit, or it is shorter | written anew, or the inode was reused: from the start |
| new inode under a known name, the old one is gone, both hashes fit | replaced by a copy (rsync, an editor): go on |
| anything else | a new file: from the start |

Of a format that is read whole, the first hash is of all bytes: another content may well have the same size, beginning
and end. It is made again only where the time of the last change is another one.
"""

from __future__ import annotations

import hashlib
import os
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, BinaryIO

HEAD_BYTES = 1_024
TAIL_BYTES = 256
PIECE_BYTES = 1024 * 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class FileState:
    """How far a file was read. `at`: bytes; of formats that are read whole, records."""

    path: str  # relative to the folder, as it was called last
    at: int = 0
    line: int = 0  # lines, or records, before `at`
    head: tuple[int, str] = (0, "")  # of so many first bytes
    tail: tuple[int, str] = (0, "")  # of the bytes before this place
    columns: tuple[str, ...] = ()  # of a CSV file's header
    changed_ns: int = 0  # of formats that are read whole: the last change of what the hashes are of
    skipping: bool = False  # inside of a line that is too long
    done: bool = False  # nothing more is taken of this content

    def to_json(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.__slots__}

    @classmethod
    def from_json(cls, data: dict[str, Any]) -> FileState:
        lists = {name: tuple(value) for name, value in data.items() if isinstance(value, list)}
        return cls(**(data | lists))


@dataclass(frozen=True, slots=True, kw_only=True)
class FileInfo:
    """A file as the folder shows it."""

    path: Path
    key: str  # device and inode: the name of its part of the position
    size: int
    changed_ns: int


def file_info(path: Path) -> FileInfo | None:
    """None: it is gone, or no file."""
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
    """Raises `FileNotFoundError` also where another file has the name by now."""
    file = info.path.open("rb")
    if _key(os.fstat(file.fileno())) != info.key:
        file.close()
        raise FileNotFoundError(f"{info.path} is another file by now")
    return file


def is_same(file: BinaryIO, info: FileInfo) -> bool:
    """Whether the file is as the folder showed it."""
    found = os.fstat(file.fileno())
    return (found.st_size, found.st_mtime_ns) == (info.size, info.changed_ns)


def fingerprints(file: BinaryIO, state: FileState, offset: int) -> FileState:
    """The state with hashes for a file that was read up to this byte."""
    return _with_hashes(file, state, min(HEAD_BYTES, offset), offset)


def fingerprints_of_all(file: BinaryIO, state: FileState, info: FileInfo) -> FileState:
    """The same for a file that is read whole."""
    return replace(_with_hashes(file, state, info.size, info.size), changed_ns=info.changed_ns)


def _with_hashes(file: BinaryIO, state: FileState, head: int, offset: int) -> FileState:
    return replace(
        state,
        head=(head, _hash(file, 0, head)),
        tail=(offset, _hash(file, max(0, offset - TAIL_BYTES), offset)),
    )


def fits(info: FileInfo, state: FileState, *, whole: bool) -> bool:
    """Whether this is the content that the state speaks of. A format that is read whole does not grow."""
    offset = state.tail[0]
    if info.size < offset or (whole and info.size != offset):
        return False
    with info.path.open("rb") as file:
        return holds(file, state)


def holds(file: BinaryIO, state: FileState) -> bool:
    """Whether both hashes fit. Whoever reads the file stays where he is in it."""
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
