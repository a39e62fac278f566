"""The checker of the soak finds what it is there to find; and a soak of a few seconds, with one kill of everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suiro.demo.anomalies import Anomaly
from tests.soak import report
from tests.soak.ledger import Application, Offsets
from tests.soak.records import COPIED, SOURCE, number_of, value_of, word_of
from tests.support.exactly_once import Numbers, Place, Transactions

IN, OUT = (SOURCE, 0), (COPIED, 0)


def names(found: list[Anomaly | None]) -> list[str]:
    return [one.name for one in found if one is not None]


def take(numbers: list[int], first: int = 0) -> list[str]:
    made = Numbers(COPIED, first=first)
    return names([made.take("k1", number, "here") for number in numbers])


def test_numbers_of_a_key_go_up_by_one() -> None:
    assert take([0, 1, 2]) == []
    assert take([1, 2, 3], first=1) == []
    assert take([0, 2]) == ["lost write"]
    assert take([0, 1, 1]) == ["duplicate"]
    assert take([0, 1, 0]) == ["duplicate"]
    assert take([0, 2, 1]) == ["lost write", "order inversion"]
    assert take([1]) == ["lost write"]


def test_keys_are_counted_each_for_itself() -> None:
    numbers = Numbers(COPIED, first=1)
    assert [numbers.take(key, number, "") for key, number in [("a", 1), ("b", 1), ("a", 2)]] == [None] * 3
    assert numbers.counts() == {"a": 2, "b": 1}


def test_a_record_is_made_of_its_number_alone() -> None:
    text = value_of("k7", 12)
    assert (number_of(text), word_of(text)) == (12, text.split(":")[1])
    assert text != value_of("k8", 12) != value_of("k8", 13)


def read(*offsets: int, position: int | None = None) -> Offsets:
    made = Offsets()
    for offset in offsets:
        made.add(offset)
    made.position = position if position is not None else made.position
    return made


def test_records_below_an_offset_are_counted_without_the_markers_between() -> None:
    made = read(0, 1, 2, 4, 5, 9, position=11)
    assert [made.below(offset) for offset in range(12)] == [0, 1, 2, 3, 3, 4, 5, 5, 5, 5, 6, 6]
    made.forget_below(8)
    assert [made.below(offset) for offset in (8, 9, 10)] == [5, 5, 6]
    with pytest.raises(ValueError, match="forgotten"):
        made.below(3)


def application(inputs: Offsets, outputs: int) -> Application:
    numbers = Numbers(COPIED, first=0)
    numbers.total = outputs
    return Application(name="copy", inputs={IN: inputs}, outputs=[numbers], settles_s=60)


def looked(made: Application, committed: int, visible: int, *, now: float = 0, calm_since: float = 0) -> list[str]:
    place: dict[Place, int] = {IN: committed}
    return names([*made.look(place, visible, 0), *made.settle(now, calm_since)])


def test_what_is_committed_and_what_can_be_read_agree() -> None:
    made = application(read(*range(10)), outputs=7)
    assert looked(made, committed=7, visible=7) == []
    assert made.checked == 1


def test_what_waits_past_a_repartition_may_come_later_but_not_sooner() -> None:
    made = application(read(*range(10)), outputs=7)
    made.later = [Numbers("words", first=1)]
    made.later[0].total = 5
    assert looked(made, committed=7, visible=7, now=90) == []
    assert looked(made, committed=7, visible=8, now=90) == ["offsets behind data"]


def test_offsets_behind_data() -> None:
    assert looked(application(read(*range(10)), outputs=7), committed=6, visible=7) == ["offsets behind data"]
    made = application(read(*range(10)), outputs=7)
    assert looked(made, committed=7, visible=7) == []
    assert looked(made, committed=5, visible=5) == ["offsets behind data"]  # they went back


def test_what_may_be_read_again_begins_before_the_last_change() -> None:
    made = application(read(*range(10)), outputs=9)
    for committed in (0, 4, 7, 7, 9):
        looked(made, committed=committed, visible=0)
    assert made.before == {IN: 7}


def test_offsets_ahead_of_data_once_it_had_time_to_settle() -> None:
    made = application(read(*range(10)), outputs=7)
    assert looked(made, committed=8, visible=7, now=30) == []
    assert names(list(made.settle(70, calm_since=20))) == []  # the log was away until 20
    assert names(list(made.settle(90, calm_since=20))) == ["offsets ahead of data"]


def test_offsets_that_arrive_before_the_data_are_none() -> None:
    made = application(read(*range(10)), outputs=7)
    assert looked(made, committed=8, visible=7, now=30) == []
    made.outputs[0].total = 8
    assert names(list(made.settle(90, calm_since=0))) == []
    assert made.checked == 1


def test_an_offset_beyond_the_source() -> None:
    made = application(read(*range(10)), outputs=10)
    assert looked(made, committed=12, visible=10, now=10) == []  # not read so far yet
    assert names(list(made.settle(90, calm_since=0))) == ["offsets ahead of data"]


def test_a_transaction_has_one_fate_in_all_partitions() -> None:
    made = Transactions[int]()
    other = (COPIED, 1)
    assert [made.data(OUT, (5, 3), [10]), made.data(other, (5, 3), [4])] == [None, None]
    assert made.marker(OUT, 5, "commit") == ([10], None)
    decided, wrong = made.marker(other, 5, "abort")
    assert (decided, names([wrong])) == ([4], ["torn transaction"])
    assert (made.committed, made.aborted) == (1, 0)
    assert made.marker(other, 5, "commit") == ([], None)  # of a transaction that wrote nothing here


def test_an_epoch_has_one_transaction() -> None:
    made = Transactions[int]()
    assert names([made.data(OUT, (5, 3), [1]), made.data(OUT, (5, 4), [1])]) == ["torn transaction"]
    assert made.open_in(OUT)


RUN: dict[str, Any] = {
    "broker": "suiro node",
    "seed": 1,
    "minutes": 45.0,
    "records_in": 1000,
    "records_out": 3000,
    "micro_batches": 70,
    "aborted": 3,
    "faults": {"kill -9 of the log": 2},
    "restarts": 4,
    "ends": {"fenced": 1, "restarted": 2},
    "offsets_checked": 500,
    "longest_stall_s": 12.0,
    "recovery_s": [3.0, 9.0],
    "memory": {"log": [40.0, 41.0, 30.0, 31.0, 20.0, 44.0]},
    "trouble": "",
}


def test_the_page_has_the_totals_of_all_runs() -> None:
    text = report.section([RUN, RUN | {"minutes": 15.0, "recovery_s": [], "trouble": "duplicate"}])
    assert "| minutes | 60 |" in text
    assert "| runs with an anomaly | 1 |" in text
    assert "| kill -9 of the log | 4 |" in text
    page = report.with_section(f"before\n{report.BEGIN}\nold\n{report.END}\nafter\n", [RUN])
    assert page.startswith("before\n")
    assert page.endswith("\nafter\n")
    assert "old" not in page


@pytest.mark.soak
@pytest.mark.spark
def test_a_soak_of_a_few_seconds(tmp_path: Path) -> None:
    from tests.soak.__main__ import soak

    made = soak(broker="node", directory=tmp_path, seed=3, minutes=0.1, rate=300, stall_s=120)
    assert made.trouble == ""
    assert made.records_out == 4 * made.records_in > 0
    assert made.offsets_checked > 0
    assert made.micro_batches > 0
