"""The matrix's checker finds every anomaly that is planted, by its name, and nothing in a clean log."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace

import pytest

from tests.matrix.checker import Footer, Observation, Raw, Record, check
from tests.support.exactly_once import Place

PLACES = (("even", 0), ("odd", 0))
FOOT = ("foot", 0)
BATCHES, ROWS = 3, 2


@dataclass
class Log:
    """What the planted anomalies change before it is observed."""

    visible: dict[Place, list[Record]] = field(default_factory=dict)
    raw: dict[Place, list[Raw]] = field(default_factory=dict)
    marker: int = BATCHES - 1
    committed: dict[Place, int] = field(default_factory=lambda: {("source", 0): BATCHES * ROWS})
    noted: int = BATCHES - 1
    stable: dict[Place, tuple[int, int]] = field(default_factory=lambda: dict.fromkeys(PLACES, (9, 9)))
    footers: list[Footer] | None = None

    def observed(self) -> Observation:
        return Observation(
            expected=[
                (batch, topic, "k", f"{batch}:0:{batch * ROWS + row}")
                for batch in range(BATCHES)
                for topic, _ in PLACES
                for row in range(ROWS)
            ],
            ends=[{("source", 0): (batch + 1) * ROWS} for batch in range(BATCHES)],
            visible=self.visible,
            raw=self.raw,
            marker=self.marker,
            committed=self.committed,
            noted=self.noted,
            stable=self.stable,
            footers=None if self.footers is None else (FOOT, self.footers),
        )


def clean() -> Log:
    """Three micro-batches of two records to each of two partitions; an aborted attempt of the second before it."""
    log = Log()
    for place in PLACES:
        raw = log.raw.setdefault(place, [])
        visible = log.visible.setdefault(place, [])
        for epoch, (batch, fate) in enumerate([(0, "commit"), (1, "abort"), (1, "commit"), (2, "commit")]):
            for row in range(ROWS):
                if fate == "commit":
                    visible.append(Record(len(raw), "k", f"{batch}:0:{batch * ROWS + row}", f"run {epoch}"))
                raw.append(Raw(len(raw), (7, epoch)))
            raw.append(Raw(len(raw), (7, epoch), "commit" if fate == "commit" else "abort"))
    return log


def with_footers() -> Log:
    """As `clean`; each transaction, the aborted one too, ends with a record that says where the data ended."""
    log = clean()
    log.footers, raw = [], log.raw.setdefault(FOOT, [])
    for epoch, (batch, fate) in enumerate([(0, "commit"), (1, "abort"), (1, "commit"), (2, "commit")]):
        end = (epoch + 1) * (ROWS + 1) - 1
        if fate == "commit":
            log.footers.append(Footer(len(raw), batch, batch, dict.fromkeys(PLACES, end)))
        raw += [
            Raw(len(raw), (7, epoch)),
            Raw(len(raw) + 1, (7, epoch), "commit" if fate == "commit" else "abort"),
        ]
    return log


def test_nothing_is_found_in_a_clean_log() -> None:
    assert check(clean().observed()) == []
    assert check(with_footers().observed()) == []


def test_nothing_is_found_where_nothing_was_written_yet() -> None:
    log = Log(marker=-1, noted=-1, committed={}, stable={})
    assert check(log.observed()) == []


def lost_write(log: Log) -> None:
    for place in PLACES:
        del log.visible[place][2:4]


def lost_at_the_end(log: Log) -> None:
    """Spark noted it; marker and offsets agree with the data that is left."""
    for place in PLACES:
        del log.visible[place][4:]
    log.marker, log.committed = 1, {("source", 0): 4}


def torn(log: Log) -> None:
    del log.visible["odd", 0][-1]


def torn_decision(log: Log) -> None:
    log.raw["odd", 0][2] = Raw(2, (7, 0), "abort")


def made_of_two_attempts(log: Log) -> None:
    first = log.visible["odd", 0][0]
    log.visible["odd", 0][0] = first._replace(attempt="another run")


def duplicate(log: Log) -> None:
    """The aborted attempt was committed."""
    for place in PLACES:
        log.raw[place][5] = Raw(5, (7, 1), "commit")
        log.visible[place] += [Record(offset, "k", f"1:0:{offset - 1}", "run 2") for offset in (3, 4)]


def aborted_read(log: Log) -> None:
    """A reader was given the aborted attempt in place of the committed one."""
    for place in PLACES:
        log.visible[place][2:4] = [Record(offset, "k", f"1:0:{offset - 1}", "run 1") for offset in (3, 4)]


def undecided_read(log: Log) -> None:
    """A reader was given a transaction that has not ended."""
    for place in PLACES:
        del log.raw[place][-1]


def order(log: Log) -> None:
    records = log.visible["even", 0]
    records[0], records[1] = (
        records[0]._replace(value=records[1].value),
        records[1]._replace(value=records[0].value),
    )


def order_over_micro_batches(log: Log) -> None:
    records = log.visible["even", 0]
    records[2], records[4] = (
        records[2]._replace(value=records[4].value),
        records[4]._replace(value=records[2].value),
    )


def marker_ahead(log: Log) -> None:
    for place in PLACES:
        del log.visible[place][4:]
    log.noted = 1


def offsets_ahead(log: Log) -> None:
    log.committed["source", 0] += 1


def offsets_behind(log: Log) -> None:
    log.committed["source", 0] -= 1


def no_offsets(log: Log) -> None:
    log.committed.clear()


def marker_behind(log: Log) -> None:
    log.marker -= 1


def stranger(log: Log) -> None:
    log.visible["even", 0].append(Record(2, "k", "9:0:99", "run 0"))


def wrong_topic(log: Log) -> None:
    record = log.visible["even", 0][0]
    log.visible["even", 0][0] = record._replace(key="other")


def blocked(log: Log) -> None:
    log.stable["odd", 0] = (8, 9)


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (lost_write, "lost write"),
        (lost_at_the_end, "lost write"),
        (torn, "torn transaction"),
        (torn_decision, "torn transaction"),
        (made_of_two_attempts, "torn transaction"),
        (duplicate, "duplicate"),
        (aborted_read, "aborted read"),
        (undecided_read, "aborted read"),
        (order, "order inversion"),
        (order_over_micro_batches, "order inversion"),
        (marker_ahead, "offsets ahead of data"),
        (offsets_ahead, "offsets ahead of data"),
        (offsets_behind, "offsets behind data"),
        (no_offsets, "offsets behind data"),
        (marker_behind, "offsets behind data"),
        (stranger, "unknown record"),
        (wrong_topic, "unknown record"),
        (blocked, "blocked readers"),
    ],
)
def test_a_planted_anomaly_is_found_by_its_name(plant: Callable[[Log], None], name: str) -> None:
    log = clean()
    plant(log)
    found = check(log.observed())
    assert name in {one.name for one in found}, found


def test_an_open_transaction_is_no_anomaly_while_somebody_is_at_work() -> None:
    log = clean()
    for place in PLACES:
        log.raw[place].append(Raw(len(log.raw[place]), (7, 4)))
    assert check(replace(log.observed(), stable={})) == []


def footer_lost(log: Log) -> None:
    del log.footers[-1]


def footer_without_data(log: Log) -> None:
    for place in PLACES:
        del log.visible[place][4:]
    log.marker, log.noted, log.committed = 1, 1, {("source", 0): 4}


def footer_twice(log: Log) -> None:
    log.footers[2] = log.footers[2]._replace(batch_id=1)


def footer_of_an_aborted_attempt(log: Log) -> None:
    log.footers[1] = log.footers[1]._replace(offset=2)


def footer_number_left_out(log: Log) -> None:
    log.footers[1] = log.footers[1]._replace(number=2)


def footer_that_says_too_much(log: Log) -> None:
    log.footers[0] = log.footers[0]._replace(ends=dict.fromkeys(PLACES, 8))


def footer_that_says_too_little(log: Log) -> None:
    log.footers[1] = log.footers[1]._replace(ends=dict.fromkeys(PLACES, 7))


def footer_of_nobody(log: Log) -> None:
    log.footers.append(Footer(6, -1, 3, {}))


@pytest.mark.parametrize(
    ("plant", "name"),
    [
        (footer_lost, "torn transaction"),
        (footer_without_data, "torn transaction"),
        (footer_twice, "duplicate"),
        (footer_of_an_aborted_attempt, "aborted read"),
        (footer_number_left_out, "order inversion"),
        (footer_that_says_too_much, "offsets ahead of data"),
        (footer_that_says_too_little, "offsets behind data"),
        (footer_of_nobody, "unknown record"),
    ],
)
def test_a_planted_lie_of_a_footer_is_found_by_its_name(plant: Callable[[Log], None], name: str) -> None:
    log = with_footers()
    plant(log)
    found = check(log.observed())
    assert name in {one.name for one in found}, found
