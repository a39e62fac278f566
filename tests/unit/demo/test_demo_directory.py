"""Where the demo keeps everything."""

from __future__ import annotations

import tempfile
from pathlib import Path

import pytest

from suiro.demo.story import _directory
from suiro.errors import UsageError


@pytest.mark.parametrize("name", ["a b", "a'b", "a$b", "a%20b", "a&b"])
def test_a_path_that_postgres_does_not_take_is_refused_at_once(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / name))
    for data in (tmp_path / name, None):
        with pytest.raises(UsageError, match="which the embedded Postgres does not take"):
            _directory(data)
    assert list(tmp_path.iterdir()) == []


def test_other_letters_are_taken(tmp_path: Path) -> None:
    assert _directory(tmp_path / "größe-1.2") == tmp_path / "größe-1.2"
