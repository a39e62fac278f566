"""Deleted files, which keep their content under another name until `file.delete.delay.ms` is over.

The files of a deleted segment get the suffix `.deleted`, the folder of a partition `-delete`. A start after a crash
removes them by these names. Removing a large file takes time, so the owner does it in a thread.
"""

from __future__ import annotations

import contextlib
import heapq
import os
import shutil
import uuid
from collections.abc import Callable
from pathlib import Path

from suiro.log.swap import DELETED_SUFFIX, SEGMENT_SUFFIXES

DELETED_FOLDER_SUFFIX = "-delete"


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
