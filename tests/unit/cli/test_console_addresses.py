"""The addresses of other servers that `suiro console` takes."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.cli.console import _remote
from suiro.console.web import Remote
from suiro.errors import ConfigError


def test_an_address_may_stand_in_a_file(tmp_path: Path) -> None:
    file = tmp_path / "views"
    file.write_text("https://ada:a%2Fb@views.example:8085\n")
    wanted = Remote(url="https://views.example:8085", user="ada", password="a/b")
    assert _remote(f"@{file}", "--views") == wanted == _remote(file.read_text().strip(), "--views")


def test_a_file_that_cannot_be_used_is_named_and_not_shown(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=f"--views @{tmp_path}/none: .*No such file"):
        _remote(f"@{tmp_path}/none", "--views")
    (tmp_path / "bad").write_text("ada:secret")
    with pytest.raises(ConfigError) as refused:
        _remote(f"@{tmp_path}/bad", "--views")
    assert "secret" not in str(refused.value)
