"""A file is replaced whole, or stays as it was."""

from __future__ import annotations

import errno
import os
import stat
from pathlib import Path

import pytest
from support.full_disk import no_space

from suiro.errors import FatalError
from suiro.foundation.files import is_of_the_disk, replace_file
from suiro.streams.errors import ProcessingError


def test_a_file_is_replaced_and_nothing_is_left_beside_it(tmp_path: Path) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "ä", mode=0o600)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    replace_file(path, b"new", sync=False)
    assert path.read_bytes() == b"new"
    assert list(tmp_path.iterdir()) == [path]


def test_a_file_that_cannot_be_written_stays_as_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "state.json"
    replace_file(path, "old")

    monkeypatch.setattr(os, "fsync", no_space)
    with pytest.raises(OSError, match="No space"):
        replace_file(path, "new")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_record_that_tells_of_a_full_disk_is_no_full_disk() -> None:
    """A version that was being built tried again for ever, and was not told as failed."""
    said = os.strerror(errno.ENOSPC)
    assert is_of_the_disk(OSError(errno.ENOSPC, said))
    assert is_of_the_disk(OSError(errno.ENOSPC, "Auf dem Gerät ist kein Speicherplatz mehr verfügbar"))
    assert is_of_the_disk(FatalError(f"java.io.IOException: {said}"))
    assert not is_of_the_disk(ProcessingError(f"offset 7: ValueError: no JSON: {said}"))
