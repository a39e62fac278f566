"""Replaces segments by cleaned ones, so that a crash at any file operation loses nothing.

Kafka's three steps, by file names. All files of the new segment lose `.cleaned` for `.swap`: from then on it
counts, and a start completes what follows. The old segments' files get `.deleted`. The new ones lose `.swap`.
A start (`complete_swaps`) finds:

- `.cleaned`: a cleaning that was not finished. It goes, and so does a `.swap` at its offset or later, whose
  other files were not renamed yet;
- `.swap`: the segments whose offsets it holds go, and it loses the suffix;
- `.deleted`: it goes.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path

from suiro.log.compaction import CLEANED_SUFFIX, SWAP_SUFFIX

DELETED_SUFFIX = ".deleted"
_PASSING = (CLEANED_SUFFIX, SWAP_SUFFIX, DELETED_SUFFIX)
SEGMENT_SUFFIXES = (".log", ".index", ".timeindex", ".txnindex")

EndOf = Callable[[Path], int]


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


def complete_swaps(directory: Path, names: Iterable[str], end_of: EndOf) -> bool:
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
