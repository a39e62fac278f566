"""Replaces segments by cleaned ones, and deletes files, so that a crash at any file operation loses nothing.

A replacement has Kafka's three steps, by file names. All files of the new segment lose `.cleaned` for `.swap`: from
then on it counts, and a start completes what follows. The old segments' files get `.deleted`. The new ones lose
`.swap`. A start (`complete_swaps`) finds:

- `.cleaned`: a cleaning that was not finished. It goes, and so does a `.swap` at its offset or later, whose
  other files were not renamed yet;
- `.swap`: the segments whose offsets it holds go, and it loses the suffix;
- `.deleted`: it goes.

Deleted files keep their content under another name until `file.delete.delay.ms` is over: those of a segment with the
suffix `.deleted`, the folder of a partition with `-delete`. Removing a large file takes time, so the owner does it in a
thread.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import shutil
import uuid
from collections.abc import Callable, Iterable
from pathlib import Path

from suiro.log.compaction import CLEANED_SUFFIX, SWAP_SUFFIX

DELETED_SUFFIX = ".deleted"
DELETED_FOLDER_SUFFIX = "-delete"
_PASSING = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")


def change_suffix(directory: Path, base_offset: int, old: str, new: str) -> None:
    """Rename a segment's files, the log first: the others without it are nothing."""
    for suffix in SEGMENT_SUFFIXES:
        path = directory / f"{base_offset:020d}{suffix}"
        try:
            os.rename(f"{path}{old}", f"{path}{new}")
        except FileNotFoundError:
            if suffix == ".log":
                raise


def discard_unfinished(directory: Path) -> None:
    """Before a cleaning: remove what a cleaner that was killed in this node's life has left.

    A start takes any `.cleaned` file for the sign that the swaps from its offset on had not begun in earnest, and
    would drop the only copy of a segment that is cleaned later.
    """
    for name in os.listdir(directory):
        if name.endswith(CLEANED_SUFFIX):
            os.unlink(directory / name)


def begin_swap(directory: Path, base_offset: int) -> None:
    change_suffix(directory, base_offset, CLEANED_SUFFIX, SWAP_SUFFIX)


def end_swap(directory: Path, base_offset: int) -> None:
    change_suffix(directory, base_offset, SWAP_SUFFIX, "")


def complete_swaps(directory: Path, names: Iterable[str], end_of: Callable[[Path], int]) -> bool:
    """Finish or undo what a crash interrupted; whether there was anything. `names` are the directory's files.

    `end_of(path)` tells the offset behind the last batch of a log file.
    """
    if not any(name.endswith(_PASSING) for name in names):
        return False
    cleaned = [name for name in names if name.endswith(CLEANED_SUFFIX)]
    swaps = [name for name in names if name.endswith(SWAP_SUFFIX)]
    deleted = [name for name in names if name.endswith(DELETED_SUFFIX)]
    earliest = min((_offset(name) for name in cleaned), default=None)
    undone = [name for name in swaps if earliest is not None and _offset(name) >= earliest]
    # The doomed `.swap` files go before the `.cleaned` ones that condemn them.
    for name in (*deleted, *undone, *cleaned):
        os.unlink(directory / name)
    swaps = [name for name in swaps if name not in undone]
    for log in (name for name in swaps if name == f"{_offset(name):020d}.log{SWAP_SUFFIX}"):
        first, end = _offset(log), end_of(directory / log)
        for name in names:
            if name.endswith(SEGMENT_SUFFIXES) and first <= _offset(name) < max(end, first + 1):
                os.unlink(directory / name)
    # The log first: once it stands, a start that is interrupted here again has no range to delete.
    for name in sorted(swaps, key=lambda name: f".log{SWAP_SUFFIX}" not in name):
        os.rename(directory / name, directory / name.removesuffix(SWAP_SUFFIX))
    return True


def _offset(name: str) -> int:
    """The base offset in a file's name; -1 where there is none."""
    stem = name.split(".", 1)[0]
    return int(stem) if stem.isdigit() else -1


class DeletedFiles:
    """The files to remove, by the monotonic time when they are due. Only the result of `due` may be called in another
    thread."""

    def __init__(self) -> None:
        self._waiting: list[tuple[int, str]] = []

    def __len__(self) -> int:
        return len(self._waiting)

    def delete_segment(self, log_path: Path, *, due_ms: int) -> None:
        """Rename a segment's files; the log first, for indexes without a log are swept at the next start."""
        for suffix in SEGMENT_SUFFIXES:
            path = log_path.with_suffix(suffix)
            doomed = f"{path}{DELETED_SUFFIX}"
            try:
                os.rename(path, doomed)
            except FileNotFoundError:
                continue
            heapq.heappush(self._waiting, (due_ms, doomed))

    def delete_folder(self, directory: Path, *, due_ms: int) -> None:
        """Rename a partition's folder, so that a crash leaves nothing half there."""
        suffix = f".{uuid.uuid4().hex}{DELETED_FOLDER_SUFFIX}"
        doomed = directory.with_name(directory.name[: 255 - len(suffix)] + suffix)
        os.rename(directory, doomed)
        heapq.heappush(self._waiting, (due_ms, str(doomed)))

    def due(self, now_ms: int) -> Callable[[], None] | None:
        """A function that removes everything that is due, for any thread. None if nothing is due."""
        doomed = []
        while self._waiting and self._waiting[0][0] <= now_ms:
            doomed.append(heapq.heappop(self._waiting)[1])
        return (lambda: _remove(doomed)) if doomed else None


def _remove(paths: list[str]) -> None:
    for path in paths:
        if path.endswith(DELETED_FOLDER_SUFFIX):
            shutil.rmtree(path, ignore_errors=True)
        else:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(path)
