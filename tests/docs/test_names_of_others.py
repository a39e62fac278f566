"""docs/migrate: what the tables call suiro's own is there, by that name."""

from __future__ import annotations

import re
from importlib import import_module
from inspect import signature

from suiro import streams, testing
from tests.docs.test_documents import ROOT

PAGES = sorted((ROOT / "docs" / "migrate").glob("*.md"))
COMMANDS = ROOT / "docs" / "reference" / "commands.md"


def cells() -> list[tuple[str, str]]:
    """What stands in the second column, whose heading is suiro, and where."""
    found = []
    for page in PAGES:
        column = False
        for line in page.read_text(encoding="utf-8").splitlines():
            parts = [part.strip() for part in line.strip("|").split(" | ")]
            if not line.startswith("|"):
                column = False
            elif len(parts) > 1 and parts[1] == "suiro":
                column = True
            elif column and not line.startswith("|---"):
                found.append((f"{page.name}: {parts[0]}", parts[1]))
    return found


def test_every_name_of_ours_is_there() -> None:
    found = cells()
    assert len(found) > 70
    wrong = [
        f"{where}: {name}" for where, cell in found for name in re.findall(r"`([^`]+)`", cell) if not is_there(name)
    ]
    assert wrong == []


def is_there(name: str) -> bool:
    """Classes and their members, commands, options, arguments; of other words nothing is known here."""
    first, _, member = name.partition("(")[0].partition(".")
    commands = COMMANDS.read_text(encoding="utf-8")
    if first == "suiro" and member:
        return hasattr(import_module("suiro.spark"), member.removeprefix("spark."))
    if first[:1].isupper() and first.isidentifier():
        return hasattr(PYTHON[first], member) if member else first in PYTHON
    if first == "serdes":
        return hasattr(streams.serdes, member)
    if command := re.match(r"suiro [a-z]+( [a-z]+)?", name):
        return command[0] in commands
    if name.startswith("--"):
        return f"`{name.split()[0]} " in commands
    if argument := re.match(r"(\w+)=", name):
        return argument[1] in ARGUMENTS
    return True


PYTHON = {name: getattr(module, name) for module in (streams, testing) for name in module.__all__ if name[0].isupper()}
ARGUMENTS = {
    argument
    for function in (streams.KafkaStreams, streams.StreamsBuilder.stream, streams.KTable.join)
    for argument in signature(function).parameters
}
