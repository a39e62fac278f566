"""How declared commands are parsed: types, limits, files, variables, order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suiro.cli.command_groups import Group, argument, option, options

found: dict[str, Any] = {}
group = Group("things")


@options
class Place:
    room: str = argument("ROOM")
    shelf: int = option(1, min=1)


@group.command
def move(place: Place, name: str = argument("NAME"), quick: bool = option(False)) -> None:
    """Move a thing."""
    found.clear()
    found.update(locals())


@group.command
def make(
    name: str = argument("NAME"),
    parts: list[str] | None = argument("[PART...]", default=None),
    count: int = option(1, min=1),
    share: float | None = option(None, also=("-s",)),
    file: Path | None = option(None, path="existing file"),
    folder: Path | None = option(None, path="folder"),
    kind: str = option("a", choices=("a", "b")),
    set_: list[str] | None = option(None),
    token: str | None = option(None, env="THINGS_TOKEN"),
    wait: bool = option(True),
    dry_run: bool = option(False),
) -> None:
    """Make a thing. It is 100 % done."""
    found.clear()
    found.update(locals())


def made(*words: str) -> dict[str, Any]:
    assert group.main(["make", *words]) == 0
    return dict(found)


def refused(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    with pytest.raises(SystemExit) as stop:
        group.main(["make", *words])
    assert stop.value.code == 2
    return capsys.readouterr().err


def test_options_and_arguments_come_in_any_order(tmp_path: Path) -> None:
    assert made("n")["count"] == 1
    one = made("--set", "a=1", "n", "--count", "3", "p", "q", "--set", "b=2", "--no-wait", "--dry-run")
    assert (one["name"], one["parts"], one["count"], one["set_"]) == ("n", ["p", "q"], 3, ["a=1", "b=2"])
    assert (one["wait"], one["dry_run"]) == (False, True)
    assert made("n", "--token=--", "--set=--")["set_"] == ["--"]
    assert found["token"] == "--"
    assert made("n", "-s", "-0.5", "--folder", str(tmp_path / "new"))["share"] == -0.5


def test_options_that_several_commands_have_are_one_parameter(capsys: pytest.CaptureFixture[str]) -> None:
    assert group.main(["move", "hall", "n", "--quick", "--shelf", "3"]) == 0
    assert found == {"name": "n", "place": Place("hall", 3), "quick": True}
    assert group.main(["move", "hall", "n"]) == 0
    assert found["place"] == Place("hall", 1)
    with pytest.raises(SystemExit):
        group.main(["move", "hall", "n", "--shelf", "0"])
    assert "--shelf: 0: give at least 1" in capsys.readouterr().err


def test_a_variable_is_taken_where_the_option_is_not_given(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("THINGS_TOKEN", "from outside")
    assert made("n")["token"] == "from outside"
    assert made("n", "--token", "mine")["token"] == "mine"
    monkeypatch.setenv("THINGS_TOKEN", "")
    assert made("n")["token"] is None


def test_what_does_not_fit_is_named(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    assert "--count: 0: give at least 1" in refused(capsys, "n", "--count", "0")
    assert "--count: invalid int value: 'x'" in refused(capsys, "n", "--count", "x")
    assert f"{tmp_path / 'no'} does not exist" in refused(capsys, "n", "--file", str(tmp_path / "no"))
    assert "--folder: the path is empty" in refused(capsys, "n", "--folder", "")
    assert "is a directory; give a file" in refused(capsys, "n", "--file", str(tmp_path))
    path = tmp_path / "file"
    path.touch()
    assert "is a file; give a directory" in refused(capsys, "n", "--folder", str(path))
    assert "invalid choice: 'c'" in refused(capsys, "n", "--kind", "c")
    assert "--coun" in refused(capsys, "n", "--coun", "3"), "options are not abbreviated"
    assert "--count: invalid int value: '--'" in refused(capsys, "n", "--count=--")
    assert "invalid choice: '--'" in refused(capsys, "n", "--kind=--")
    assert r"unrecognized arguments: --\x1b[2J" in refused(capsys, "n", "--\x1b[2J")
    assert "NAME" in refused(capsys)


def test_help_lists_the_commands_and_says_what_they_do(capsys: pytest.CaptureFixture[str]) -> None:
    assert group.main([]) == 2
    assert "make Make a thing. It is 100 % done." in " ".join(capsys.readouterr().out.split())
    with pytest.raises(SystemExit) as stop:
        group.main(["make", "--help"])
    assert stop.value.code == 0
    shown = capsys.readouterr().out
    assert "Also THINGS_TOKEN." in shown
    for said in ("--count VALUE         Default: 1.\n", "--kind a|b            Default: a.\n"):
        assert said in shown
