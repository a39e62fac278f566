"""Who is answered by which version, while that changes under a reader's hands."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from suiro.errors import UsageError
from suiro.views.control import lifecycle
from suiro.views.control.host import Host
from suiro.views.state import ALL, UnknownViewError, View


def shifted() -> View:
    view = View(name="delays")
    for number in (1, 2):
        view = lifecycle.deploy(view, key=("id",), spec={}).view
        view = lifecycle.caught_up(view, number).view
    return lifecycle.shift(view, ALL, lag_ms=0).view


class Log:
    """A journal whose view changes right after it was looked at."""

    def __init__(self, *states: View) -> None:
        self._states = list(states)

    def view(self, name: str) -> View:
        return self._states.pop(0) if len(self._states) > 1 else self._states[0]


def host_of(journal: Log, *running: int) -> Host:
    host: Any = object.__new__(Host)
    host._journal = journal
    versions = {number: SimpleNamespace(served=number) for number in running}
    host._keepers = {"delays": SimpleNamespace(running=versions.get)}
    made: Host = host
    return made


def test_a_version_that_is_retired_between_routing_and_reading() -> None:
    """The reader gets the version that answers now, not that the other one has no rows any more."""
    before = lifecycle.rollback(shifted()).view  # version 1 answers
    after = lifecycle.retire(shifted(), 1).view  # version 2 does, and 1 is gone
    assert host_of(Log(before, after), 2).serving("delays", "ada") == 2
    with pytest.raises(UnknownViewError, match="version 1 of view delays is retired"):
        host_of(Log(after), 2).version("delays", 1)


def test_consumers_are_not_moved_to_what_is_being_built() -> None:
    alone = lifecycle.retire(shifted(), 1).view
    building = lifecycle.deploy(alone, key=("id",), spec={}).view
    with pytest.raises(UsageError, match=r"version 3 of view delays is still being built; group 'billing'"):
        host_of(Log(building), 2).move_consumers("delays", "billing", 3)
