"""When a micro-batch or a transaction is in the middle, as seen from outside."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suiro.client import LATEST, ListedOffset
from suiro.demo.processes import (
    finished_micro_batches,
    freeze_when,
    open_transaction,
    readable_ends,
    unfinished_micro_batch,
)


@pytest.mark.parametrize(
    ("planned", "finished", "unfinished"),
    [((), (), None), ((0,), (), 0), ((0, 1), (0, 1), None), ((3, 4, 5), (3, 4), 5), ((7,), (6, 7), None)],
)
def test_unfinished_micro_batch(
    tmp_path: Path, planned: tuple[int, ...], finished: tuple[int, ...], unfinished: int | None
) -> None:
    for name, numbers in (("offsets", planned), ("commits", finished)):
        (tmp_path / name).mkdir()
        for number in numbers:
            (tmp_path / name / str(number)).touch()
        (tmp_path / name / ".5.tmp").touch()
    assert unfinished_micro_batch(tmp_path) == unfinished
    assert finished_micro_batches(tmp_path) == max(finished, default=-1) + 1


def test_a_query_that_never_ran_has_nothing(tmp_path: Path) -> None:
    assert unfinished_micro_batch(tmp_path / "absent") is None
    assert finished_micro_batches(tmp_path / "absent") == 0


class ScriptedLog:
    """Answers like `Client.list_offsets`; in each answer a transaction is open, or not, as the script says."""

    def __init__(self, *opened: bool) -> None:
        self._open = list(opened)

    def list_offsets(self, wanted: dict[Any, int], *, read_committed: bool) -> dict[Any, ListedOffset]:
        assert set(wanted.values()) == {LATEST}
        is_open = self._open[0] if read_committed else self._open.pop(0)
        stable = 5 if read_committed and is_open else 8
        return {place: ListedOffset(offset=stable, timestamp=-1, leader_epoch=0) for place in wanted}


class Driver:
    def __init__(self) -> None:
        self.did: list[str] = []
        self.ended = False

    def freeze(self) -> None:
        self.did.append("freeze")

    def resume(self) -> None:
        self.did.append("resume")


def test_a_transaction_is_open_where_the_stable_offset_is_short_of_the_end() -> None:
    assert open_transaction(ScriptedLog(True), "t") == ("t", 0, 5, 8)  # type: ignore[arg-type]
    assert open_transaction(ScriptedLog(False), "t") is None  # type: ignore[arg-type]


def test_the_driver_goes_on_if_the_transaction_ended_before_it_froze() -> None:
    log, driver = ScriptedLog(False, True, False, True, True, True), Driver()
    found = freeze_when(driver, lambda: open_transaction(log, "t"), "transaction")  # type: ignore[arg-type]
    assert found == ("t", 0, 5, 8)
    assert driver.did == ["freeze", "resume", "freeze"]


def test_a_driver_that_ended_by_itself_is_not_hunted() -> None:
    driver = Driver()
    driver.ended = True
    assert freeze_when(driver, lambda: 1, "thing") is None
    assert driver.did == []


def test_a_process_is_frozen_when_there_is_what_was_looked_for_and_still_is() -> None:
    seen, driver = iter([None, 1, None, 2, 3, 4]), Driver()
    assert freeze_when(driver, lambda: next(seen), "thing", settle_s=0) == 4
    assert driver.did == ["freeze", "resume", "freeze"]


def test_moments_shorter_than_a_look_are_found() -> None:
    """They are over before the process is stopped, unless it is stopped before the look."""
    moment, driver = iter([1, None, 1, None, None, 1, 1]), Driver()
    assert freeze_when(driver, lambda: next(moment), "thing", settle_s=0) == 1
    assert driver.did == ["freeze", "resume"] * 3 + ["freeze"]


def test_the_hunt_ends_when_it_is_too_late() -> None:
    driver = Driver()
    assert freeze_when(driver, lambda: 1, "thing", until=lambda: True) is None
    assert driver.did == []


def test_the_readable_ends_are_those_of_all_partitions() -> None:
    assert readable_ends(ScriptedLog(True), "t") == dict.fromkeys(range(4), 5)  # type: ignore[arg-type]
