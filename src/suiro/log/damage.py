"""Keeps damaged bytes: those that recovery removes from a log, and small files that cannot be read.

They stay in the partition's folder, or beside the checkpoint, under names that end in `.damaged`, which neither this
node nor Apache Kafka reads. The node's log names each. Only the operator needs them, and may remove them. Everything
that one recovery removes is kept. Files of earlier recoveries are removed, the oldest first, beyond `KEPT_FILES_MAX`
files or `KEPT_BYTES_MAX` bytes of a partition.
"""

from __future__ import annotations

import errno
import logging
import os
from collections.abc import Sequence
from pathlib import Path

from suiro.log.files import FileHandle, open_handle, write_all

logger = logging.getLogger(__name__)

DAMAGED_SUFFIX = ".damaged"
KEPT_FILES_MAX = 64
KEPT_BYTES_MAX = 1 << 30
_CHUNK_BYTES = 1 << 20


def set_aside(path: Path, why: str) -> None:
    """Rename a small file that cannot be read; one that was set aside before is replaced."""
    aside = path.with_name(path.name + DAMAGED_SUFFIX)
    os.replace(path, aside)
    logger.error("%s; the file is %s from now on", why, aside)


def keep_segment(log_path: Path, *, now_ms: int) -> Path:
    """Rename a whole segment's log file. The caller removes its indexes."""
    aside = _name(log_path, 0, now_ms)
    os.rename(log_path, aside)
    return aside


def keep_tail(log_path: Path, handle: FileHandle, position: int, size: int, *, now_ms: int) -> Path | None:
    """Copy a segment's bytes from a position on, or move them if the disk has no room for both. Returns the file, or
    None if the bytes are nothing but zeros, which need not be kept. Raises OSError."""
    starts = range(position, size, _CHUNK_BYTES)
    if all(chunk.count(0) == len(chunk) for chunk in (_chunk(handle, start, size) for start in starts)):
        return None
    aside = _name(log_path, position, now_ms)
    target = open_handle(aside, create=True)
    try:
        for start in starts:
            _write(target, start - position, _chunk(handle, start, size))
        os.fsync(target)
    except OSError as error:
        os.ftruncate(target, 0)
        if error.errno not in (errno.ENOSPC, errno.EDQUOT):
            aside.unlink()
            raise
        _move_tail(aside, target, handle, position, size)
    return aside


def _move_tail(aside: Path, target: FileHandle, handle: FileHandle, position: int, size: int) -> None:
    """Move the chunks from the last to the first. Each is cut off before it is written, which makes room for it, and
    synced before the next one is cut off, so a power failure may lose one chunk. Raises OSError; what could not be
    written is then in its old place."""
    for start in reversed(range(position, size, _CHUNK_BYTES)):
        chunk = _chunk(handle, start, size)
        os.ftruncate(handle, start)
        try:
            _write(target, start - position, chunk)
            os.fsync(target)
        except OSError:
            _write(handle, start, chunk)
            if start + len(chunk) == size:
                aside.unlink()
            raise


def _chunk(handle: FileHandle, start: int, size: int) -> bytes:
    return os.pread(handle, min(_CHUNK_BYTES, size - start), start)


def _write(handle: FileHandle, position: int, chunk: bytes) -> None:
    write_all(handle, [chunk], position, len(chunk))


def forget_older(directory: Path, kept: Sequence[Path]) -> None:
    """Remove files of earlier recoveries, the oldest first, down to the limits. `kept` are this recovery's own."""
    older = [path for path in directory.glob(f"*{DAMAGED_SUFFIX}") if path not in kept]
    older.sort(key=lambda path: (path.stat().st_mtime_ns, path.name))
    size = sum(path.stat().st_size for path in (*older, *kept))
    count = len(older) + len(kept)
    while older and (count > KEPT_FILES_MAX or size > KEPT_BYTES_MAX):
        oldest = older.pop(0)
        size -= oldest.stat().st_size
        count -= 1
        oldest.unlink()
        logger.warning(
            "%s: removed, %s holds more damaged bytes than are kept (%d files, %d bytes)",
            oldest,
            directory,
            KEPT_FILES_MAX,
            KEPT_BYTES_MAX,
        )


def _name(log_path: Path, position: int, now_ms: int) -> Path:
    """Returns a new name of the segment, the byte at which the content began, and the time in milliseconds."""
    while True:
        aside = log_path.with_name(f"{log_path.name}.{position}.{now_ms}{DAMAGED_SUFFIX}")
        if not aside.exists():
            return aside
        now_ms += 1
