"""Keeps damaged bytes: those that recovery removes from a log, and small files that cannot be read.

They stay in the partition's folder, or beside the checkpoint, under names that end in `.damaged`, which neither this
node nor Apache Kafka reads. The node's log names each. Nobody needs them but the operator, who may remove them. What
one recovery takes out is kept whole; what earlier ones have left goes, the oldest first, beyond `KEPT_FILES_MAX` files
or `KEPT_BYTES_MAX` bytes of a partition.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Iterator, Sequence
from pathlib import Path

from suiro.log.files import FileHandle

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
    """Rename a whole segment's log file. Its indexes tell nothing more, and are the caller's to remove."""
    aside = _name(log_path, 0, now_ms)
    os.rename(log_path, aside)
    return aside


def keep_tail(log_path: Path, handle: FileHandle, position: int, size: int, *, now_ms: int) -> Path | None:
    """Copy a segment's bytes from a position on; None where they are nothing but zeros, which takes no room on the
    disk. Raises OSError."""
    if all(chunk.count(0) == len(chunk) for chunk in _chunks(handle, position, size)):
        return None
    aside = _name(log_path, position, now_ms)
    with aside.open("xb") as target:
        try:
            for chunk in _chunks(handle, position, size):
                target.write(chunk)
            target.flush()
            os.fsync(target.fileno())
        except OSError:
            aside.unlink()
            raise
    return aside


def _chunks(handle: FileHandle, position: int, size: int) -> Iterator[bytes]:
    while position < size and (chunk := os.pread(handle, _CHUNK_BYTES, position)):
        yield chunk
        position += len(chunk)


def forget_older(directory: Path, kept: Sequence[Path]) -> None:
    """Hold the limits: remove what earlier recoveries have left, the oldest first. `kept` are this recovery's own."""
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
    """The segment, the byte that the content began at, and when (milliseconds since the epoch)."""
    while True:
        aside = log_path.with_name(f"{log_path.name}.{position}.{now_ms}{DAMAGED_SUFFIX}")
        if not aside.exists():
            return aside
        now_ms += 1
