"""The committer against a coordinator in memory: every failure row that needs no real process."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass, replace
from random import Random
from typing import Any

import pytest

from suiro.clock import ManualClock
from suiro.errors import (
    AbortableError,
    BrokenConnectionError,
    FatalError,
    FencedError,
    RefusedError,
    ReplacedError,
    TransientError,
)
from suiro.spark.committer import ATTEMPTS, MARKER_TOPIC, Committer, Destination, MicroBatch, Outcome
from suiro.spark.decide import Marker, MissingCheckpoint, MissingMarker, Plan
from suiro.spark.waiting import TOLD_EVERY_MS, Waiting
from tests.unit.spark.kafka_double import Committed, KafkaDouble

APP = Destination(application_id="app")
PRODUCED, SUPPRESSED = Outcome.PRODUCED, Outcome.SUPPRESSED


@pytest.fixture(params=[True, False], ids=["v2", "v1"], autouse=True)
def protocol(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(KafkaDouble, "is_v2", request.param)


class PowerCutError(BaseException):
    """The process is gone: no handler of the committer may run after it."""


@dataclass
class Rows:
    rows: list[tuple[str, int, str]]

    @property
    def partitions(self) -> list[tuple[str, int]]:
        return sorted({(topic, partition) for topic, partition, _ in self.rows})

    def batches(self) -> Iterator[tuple[str, int, str, int]]:
        for topic, partition, data in self.rows:
            yield topic, partition, data, 1


def rows_of(number: int) -> Rows:
    return Rows([("out", 0, f"{number}a"), ("out", 1, f"{number}b"), ("other", 0, f"{number}c")])


class Foot:
    """Says what the cluster holds of this micro-batch, open transaction included, when it is made."""

    partition = ("out", 1)

    def __init__(self, kafka: KafkaDouble) -> None:
        self._kafka = kafka
        self.fresh: list[bool] = []

    def batch(self, *, is_fresh: bool) -> tuple[str, int, str, int]:
        self.fresh.append(is_fresh)
        written = [data for item in self._kafka.open.values() for _, _, data in item.records]
        return "out", 1, "foot of " + "".join(written), 1


def micro_batch(
    number: int,
    *,
    run: str = "run-1",
    lineage: str = "q",
    rows: Rows | None = None,
    end: str | None = None,
    trailing_record: Foot | None = None,
) -> MicroBatch:
    plan = Plan(
        batch_id=number,
        lineage=lineage,
        run_id=run,
        start_digest=f"end-{number - 1}" if number else "",
        end_digest=end or f"end-{number}",
    )
    return MicroBatch(
        plan=plan,
        writes=rows_of(number) if rows is None else rows,
        source_offsets={("in", 0): 10 * (number + 1)},
        trailing_record=trailing_record,
    )


def expected(last: int) -> list[str]:
    return [f"{number}{letter}" for number in range(last + 1) for letter in "abc"]


def held(kafka: KafkaDouble) -> list[str]:
    return [data for _, _, data in kafka.records]


def marker_of(kafka: KafkaDouble, group: str = "app") -> Marker:
    return Marker.from_metadata(kafka.offsets[group, (MARKER_TOPIC, 0)].metadata)


def test_records_marker_and_source_offsets_arrive_together() -> None:
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    for number in range(3):
        assert committer.process(micro_batch(number)) is PRODUCED
        assert held(kafka) == expected(number)
        assert marker_of(kafka).batch_id == number
        assert kafka.offsets["app", (MARKER_TOPIC, 0)].offset == number + 1
        assert kafka.offsets["app", ("in", 0)] == Committed(10 * (number + 1), "")


def test_it_fences_before_it_asks_and_bumps_after_each_commit() -> None:
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    committer.process(micro_batch(0))
    assert kafka.calls[:2] == ["init", "offset_fetch"]
    assert kafka.calls[-1:] == (["end"] if kafka.is_v2 else ["init"])
    before = len(kafka.calls)
    committer.process(micro_batch(1))
    assert "offset_fetch" not in kafka.calls[before:], "asks again although it holds the epoch"


def test_an_empty_micro_batch_still_moves_the_marker() -> None:
    kafka = KafkaDouble()
    assert Committer(kafka, APP, clock=ManualClock()).process(micro_batch(0, rows=Rows([]))) is PRODUCED
    assert held(kafka) == []
    assert marker_of(kafka).batch_id == 0


def test_the_trailing_record_is_made_when_all_else_is_written_and_comes_last() -> None:
    kafka = KafkaDouble()
    committer, foot = Committer(kafka, APP, clock=ManualClock()), Foot(kafka)
    committer.process(micro_batch(0, trailing_record=foot))
    assert held(kafka) == ["0a", "0b", "0c", "foot of 0a0b0c"]
    committer.process(micro_batch(1, trailing_record=foot))
    assert held(kafka)[4:] == ["1a", "1b", "1c", "foot of 1a1b1c"]
    assert foot.fresh == [True, False], "told of a look at Kafka exactly where there was one"


def test_a_micro_batch_without_records_still_has_its_trailing_record() -> None:
    kafka = KafkaDouble()
    assert (
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(0, rows=Rows([]), trailing_record=Foot(kafka)))
        is PRODUCED
    )
    assert held(kafka) == ["foot of "]


def test_a_suppressed_micro_batch_makes_no_trailing_record() -> None:
    kafka = KafkaDouble()
    foot = Foot(kafka)
    Committer(kafka, APP, clock=ManualClock()).process(micro_batch(0, trailing_record=foot))
    assert (
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(0, run="run-2", trailing_record=foot))
        is SUPPRESSED
    )
    assert len(foot.fresh) == 1
    assert held(kafka) == ["0a", "0b", "0c", "foot of 0a0b0c"]


def test_any_two_failed_calls_leave_one_trailing_record_made_after_a_look_at_kafka() -> None:
    for faults in itertools.product(itertools.product(CALLS, ["lost request", "lost answer"]), repeat=2):
        kafka = KafkaDouble()
        committer, foot = Committer(kafka, APP, clock=ManualClock()), Foot(kafka)
        committer.process(micro_batch(0, trailing_record=foot))
        kafka.faults += faults
        committer.process(micro_batch(1, trailing_record=foot))
        kafka.faults.clear()
        committer.process(micro_batch(2, trailing_record=foot))
        expected = [row for n in range(3) for row in (f"{n}a", f"{n}b", f"{n}c", f"foot of {n}a{n}b{n}c")]
        assert held(kafka) == expected, faults
        repeated = foot.fresh[2:] if len(foot.fresh) > 3 else []
        assert all(repeated[:-1]), "a repeated attempt began without a look at Kafka"


def test_a_named_sink_has_its_own_group_and_id() -> None:
    kafka = KafkaDouble()
    Committer(kafka, Destination(application_id="app", sink_name="late"), clock=ManualClock()).process(micro_batch(0))
    assert marker_of(kafka, "app/late").batch_id == 0
    assert set(kafka.epochs) == {"app/late"}
    assert APP.transactional_id == "app/sink"


CALLS = ["init", "add_partitions", "add_offsets", "produce", "commit_offsets", "end"]


@pytest.mark.parametrize("when", ["lost request", "lost answer"])
@pytest.mark.parametrize("call", CALLS)
def test_any_one_failed_call_is_survived(call: str, when: str) -> None:
    """Rows 4, 6, 7, 15, 16: fence, ask, and either produce again or see that it was committed."""
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    for number in range(4):
        if number in (0, 2):
            kafka.faults.append((call, when))
        committer.process(micro_batch(number))
        assert held(kafka) == expected(number)
        assert marker_of(kafka).batch_id == number


def test_any_two_failed_calls_are_survived() -> None:
    for faults in itertools.product(itertools.product(CALLS, ["lost request", "lost answer"]), repeat=2):
        kafka = KafkaDouble()
        committer = Committer(kafka, APP, clock=ManualClock())
        committer.process(micro_batch(0))
        kafka.faults += faults
        committer.process(micro_batch(1))
        kafka.faults.clear()
        committer.process(micro_batch(2))
        assert held(kafka) == expected(2), faults


POINTS = [
    "before_fence",
    "after_fence",
    "after_add_partitions",
    "after_first_produce",
    "after_produce",
    "after_commit_offsets",
    "after_end",
    "after_bump",
]


@pytest.mark.parametrize("point", POINTS)
@pytest.mark.parametrize("number", [0, 1, 2])
def test_a_driver_killed_at_any_step_is_followed_by_one_that_ends_exactly(point: str, number: int) -> None:
    """Rows 1, 3 to 8, 10: the next driver runs the same micro-batch again."""
    kafka = KafkaDouble()

    def die(reached: str, batch_id: int) -> None:
        if reached == point and batch_id == number:
            raise PowerCutError

    doomed = Committer(kafka, APP, clock=ManualClock(), reach=die)
    if point in ("before_fence", "after_fence") and number > 0:
        first = Committer(kafka, APP, clock=ManualClock())
        for earlier in range(number):
            first.process(micro_batch(earlier))
    else:
        for earlier in range(number):
            doomed.process(micro_batch(earlier))
    with pytest.raises(PowerCutError):
        doomed.process(micro_batch(number))
    successor = Committer(kafka, APP, clock=ManualClock())
    outcome = successor.process(micro_batch(number, run="run-2"))
    assert outcome is (SUPPRESSED if point in ("after_end", "after_bump") else PRODUCED)
    assert held(kafka) == expected(number)
    assert successor.process(micro_batch(number + 1, run="run-2")) is PRODUCED
    assert held(kafka) == expected(number + 1)


@pytest.mark.parametrize("point", [*POINTS, "after_trailing_record"])
def test_with_a_trailing_record_too(point: str) -> None:
    kafka = KafkaDouble()
    foot = Foot(kafka)

    def die(reached: str, batch_id: int) -> None:
        if reached == point:
            raise PowerCutError

    with pytest.raises(PowerCutError):
        Committer(kafka, APP, clock=ManualClock(), reach=die).process(micro_batch(0, trailing_record=foot))
    successor = Committer(kafka, APP, clock=ManualClock())
    outcome = successor.process(micro_batch(0, run="run-2", trailing_record=foot))
    assert outcome is (SUPPRESSED if point in ("after_end", "after_bump") else PRODUCED)
    successor.process(micro_batch(1, run="run-2", trailing_record=foot))
    assert held(kafka) == ["0a", "0b", "0c", "foot of 0a0b0c", "1a", "1b", "1c", "foot of 1a1b1c"]


def test_a_trailing_record_that_cannot_be_made_fails_the_transaction_and_not_the_next() -> None:
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())

    class Unmade(Foot):
        def batch(self, *, is_fresh: bool) -> tuple[str, int, str, int]:
            if not self.fresh:
                self.fresh.append(is_fresh)
                raise TransientError("a leader moved")
            return super().batch(is_fresh=is_fresh)

    assert committer.process(micro_batch(0, trailing_record=Unmade(kafka))) is PRODUCED
    assert held(kafka) == ["0a", "0b", "0c", "foot of 0a0b0c"]


def test_a_zombie_is_fenced_and_changes_nothing() -> None:
    """Rows 12, 14: whoever fenced last goes on, the other one stops and says why."""
    kafka = KafkaDouble()
    zombie = Committer(kafka, APP, clock=ManualClock())
    zombie.process(micro_batch(0))
    successor = Committer(kafka, APP, clock=ManualClock())
    assert successor.process(micro_batch(1, run="run-2")) is PRODUCED
    with pytest.raises(FencedError, match="another driver took over"):
        zombie.process(micro_batch(1))
    assert held(kafka) == expected(1)
    assert successor.process(micro_batch(2, run="run-2")) is PRODUCED
    assert held(kafka) == expected(2)


def test_a_second_worker_of_the_same_run_takes_over_in_peace() -> None:
    """Spark may commit from another Python worker; what the first one remembers is then old."""
    kafka = KafkaDouble()
    first, second = Committer(kafka, APP, clock=ManualClock()), Committer(kafka, APP, clock=ManualClock())
    for number in range(9):
        worker = first if number % 3 == 0 else second
        assert worker.process(micro_batch(number)) is PRODUCED
        assert held(kafka) == expected(number)


@pytest.mark.parametrize("rival", [True, False], ids=["another driver", "a worker of this run"])
def test_who_fenced_is_asked_until_it_is_answered(rival: bool) -> None:
    """A fence instead would take the id from a rival; giving up would end a query that has none."""
    clock = ManualClock()
    kafka = Outage(clock)
    committer = waits(kafka, clock)
    committer.process(micro_batch(0))
    Committer(kafka, APP, clock=clock).process(micro_batch(1, run="run-2" if rival else "run-1"))
    kafka.away_from, kafka.until_ms = "offset_fetch", clock.monotonic_ms() + 5 * HOUR_MS
    if rival:
        with pytest.raises(FencedError, match="another driver took over"):
            committer.process(micro_batch(1))
    else:
        assert committer.process(micro_batch(2)) is PRODUCED
        assert held(kafka) == expected(2)
    assert clock.monotonic_ms() >= 5 * HOUR_MS


def test_fenced_right_after_its_own_fence_it_gives_up() -> None:
    """Row 13: taking the id back would go on for ever."""
    kafka = KafkaDouble()

    def rival(point: str, batch_id: int) -> None:
        if point == "after_add_partitions":
            kafka.transaction(APP.transactional_id).init()

    with pytest.raises(FencedError, match=r"sink\.name"):
        Committer(kafka, APP, clock=ManualClock(), reach=rival).process(micro_batch(0))
    assert held(kafka) == []


def test_what_no_repetition_mends_is_raised_and_aborted() -> None:
    """Rows 16, 22."""
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    with pytest.raises(RefusedError, match="UNKNOWN_TOPIC"):
        committer.process(micro_batch(0, rows=Rows([("out", 0, "w"), ("gone", 0, "x")])))
    assert not kafka.open
    assert committer.counts.aborts == 1
    assert kafka.calls.count("produce") == (2 if kafka.is_v2 else 0)
    assert committer.process(micro_batch(0)) is PRODUCED
    assert held(kafka) == expected(0)


@pytest.mark.parametrize(
    "error",
    [AbortableError("produce to out-0", "OUT_OF_ORDER_SEQUENCE_NUMBER"), FatalError("a staged file differs")],
)
def test_what_a_failed_attempt_wrote_is_not_in_the_transaction_of_the_next(error: Exception) -> None:
    kafka = KafkaDouble()
    errors = [error]

    def fail(point: str, batch_id: int) -> None:
        if point == "after_produce" and errors:
            raise errors.pop()

    committer = Committer(kafka, APP, clock=ManualClock(), reach=fail)
    with suppress(FatalError):
        committer.process(micro_batch(0))
    committer.process(micro_batch(0))
    assert held(kafka) == expected(0)
    assert committer.counts.aborts == isinstance(error, AbortableError)


HOUR_MS = 3_600_000
CALL_MS = 60_000  # after so long a client gives up a call


class Outage(KafkaDouble):
    """A cluster that nobody reaches from some call on, until the clock says so."""

    def __init__(self, clock: ManualClock) -> None:
        super().__init__()
        self.clock = clock
        self.away_from: str | None = None
        self.until_ms = 0

    def call(self, name: str) -> None:
        super().call(name)
        if name == self.away_from:
            self.away_from = "any"
        if self.away_from == "any":
            if self.clock.monotonic_ms() < self.until_ms:
                self.clock.advance(CALL_MS)
                raise BrokenConnectionError("cannot connect to h:1: Connection refused")
            self.away_from = None


def waits(kafka: KafkaDouble, clock: ManualClock | None = None, **settings: Any) -> Committer:
    clock = clock or ManualClock()
    return Committer(kafka, APP, clock=clock, waiting=Waiting(clock=clock, **settings))


@pytest.mark.parametrize("call", [*CALLS, "offset_fetch"])
def test_an_outage_of_hours_is_waited_out(call: str, caplog: pytest.LogCaptureFixture) -> None:
    clock, noted = ManualClock(), list[int | None]()
    kafka = Outage(clock)
    kafka.away_from, kafka.until_ms = call, 5 * HOUR_MS
    committer = waits(kafka, clock, note=noted.append)
    committer.process(micro_batch(0))
    assert held(kafka) == expected(0)
    expected_wait = call not in ("add_partitions", "add_offsets") or not kafka.is_v2
    assert (clock.monotonic_ms() >= 5 * HOUR_MS) is expected_wait
    told = [record.getMessage() for record in caplog.records]
    assert bool(told) is expected_wait
    if told:
        assert "waiting for the log, for 60 s now, to write micro-batch 0: cannot connect to h:1" in told[0]
        assert "there again after 18" in told[-1]
        assert len(told) <= 5 * HOUR_MS // TOLD_EVERY_MS + 2
        assert noted == [clock.wall_ms() - clock.monotonic_ms(), None]
    committer.process(micro_batch(1))
    assert held(kafka) == expected(1)


def test_hours_of_losing_now_this_call_now_that_one_repeat_and_lose_nothing() -> None:
    kafka, random = KafkaDouble(), Random(7)
    committer = waits(kafka)
    for number in range(3):
        kafka.faults += [(random.choice(CALLS), random.choice(["lost request", "lost answer"])) for _ in range(200)]
        committer.process(micro_batch(number))
        assert held(kafka) == expected(number)


def test_a_limit_to_waiting_is_kept() -> None:
    clock = ManualClock()
    kafka = Outage(clock)
    kafka.away_from, kafka.until_ms = "produce", HOUR_MS
    committer = waits(kafka, clock, limit_ms=600_000)
    with pytest.raises(TransientError, match="Connection refused"):
        committer.process(micro_batch(0))
    assert 600_000 <= clock.monotonic_ms() < 600_000 + 2 * CALL_MS
    assert held(kafka) == []
    clock.advance(HOUR_MS)
    assert committer.process(micro_batch(0)) is PRODUCED
    assert held(kafka) == expected(0)


def test_nothing_is_waited_for_that_nobody_wants_any_more() -> None:
    clock, wanted = ManualClock(), iter([True, True, False])
    kafka = Outage(clock)
    kafka.away_from, kafka.until_ms = "init", HOUR_MS
    with pytest.raises(BrokenConnectionError):
        waits(kafka, clock, is_wanted=lambda: next(wanted)).process(micro_batch(0))
    assert clock.monotonic_ms() < 4 * CALL_MS


def test_what_waiting_does_not_mend_ends_it_at_once() -> None:
    """The log comes back without the topic."""
    clock = ManualClock()
    kafka = Outage(clock)
    kafka.away_from, kafka.until_ms = "init", HOUR_MS
    kafka.topics.discard("out")
    with pytest.raises(RefusedError, match="UNKNOWN_TOPIC"):
        waits(kafka, clock).process(micro_batch(0))
    assert HOUR_MS <= clock.monotonic_ms() < HOUR_MS + 2 * CALL_MS
    assert not kafka.open


@pytest.mark.parametrize("number", [0, 1], ids=["right after a start", "later"])
def test_a_transaction_that_timed_out_during_an_outage_is_written_again(number: int) -> None:
    clock = ManualClock()
    kafka = KafkaDouble()
    outages = iter([True, True, False])

    def outage(point: str, batch_id: int) -> None:
        if (point, batch_id) == ("after_produce", number) and next(outages):
            clock.advance(APP.transaction_timeout_ms)
            kafka.time_out("app/sink")

    committer = Committer(kafka, APP, clock=clock, reach=outage)
    for each in range(number + 2):
        assert committer.process(micro_batch(each)) is PRODUCED
        assert held(kafka) == expected(each)
    assert committer.counts.fences == 2
    assert committer.counts.retries == 2


def test_a_micro_batch_that_never_fits_into_the_timeout_stops_in_the_end() -> None:
    clock = ManualClock()
    kafka = KafkaDouble()

    def slow(point: str, batch_id: int) -> None:
        if point == "after_produce":
            clock.advance(APP.transaction_timeout_ms)
            kafka.time_out("app/sink")

    committer = Committer(kafka, APP, clock=clock, reach=slow)
    with pytest.raises(FencedError, match=r"transaction\.timeout\.ms"):
        committer.process(micro_batch(0))
    assert committer.counts.fences == ATTEMPTS
    assert committer.counts.retries == ATTEMPTS - 1
    assert held(kafka) == []


def test_a_transaction_that_brokers_give_up_time_and_again_is_raised() -> None:
    kafka = KafkaDouble()
    lost: list[str] = []

    def abortable(point: str, batch_id: int) -> None:
        if point == "after_produce":
            lost.append(point)
            raise AbortableError("produce to out-0", "OUT_OF_ORDER_SEQUENCE_NUMBER")

    with pytest.raises(AbortableError, match="OUT_OF_ORDER"):
        Committer(kafka, APP, clock=ManualClock(), reach=abortable).process(micro_batch(0))
    assert len(lost) == ATTEMPTS
    assert held(kafka) == []


def test_a_rolled_back_checkpoint_stops_before_anything_is_written() -> None:
    """Row 18."""
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    for number in range(3):
        committer.process(micro_batch(number))
    with pytest.raises(FatalError, match="rolled back"):
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(1, run="run-2"))
    with pytest.raises(FatalError, match="rolled back"):
        committer.process(micro_batch(1))
    assert held(kafka) == expected(2)


def test_a_new_checkpoint_of_the_same_application_begins_only_if_told_to() -> None:
    """Row 17."""
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    committer.process(micro_batch(0))
    with pytest.raises(FatalError, match=r"this checkpoint is new.*checkpoint\.missing"):
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(0, lineage="other", run="run-2"))
    committer.process(micro_batch(1))  # whom the newcomer fenced goes on
    assert marker_of(kafka).lineage == "q"
    told = replace(APP, missing_checkpoint=MissingCheckpoint.BEGIN)
    fresh = Committer(kafka, told, clock=ManualClock())
    assert fresh.process(micro_batch(0, lineage="other", run="run-2")) is PRODUCED
    assert marker_of(kafka).lineage == "other"
    with pytest.raises(FatalError, match="lineages"):
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(2, run="run-3"))


def test_a_topology_that_wrote_nothing_since_its_start_says_that_it_was_replaced() -> None:
    """It has no transactional id yet that the other one could fence."""
    kafka, topology = KafkaDouble(), replace(APP, begins_after="")
    Committer(kafka, topology, clock=ManualClock()).process(micro_batch(0))
    other = replace(APP, begins_after=marker_of(kafka).to_metadata())
    Committer(kafka, other, clock=ManualClock()).process(micro_batch(0, lineage="other", run="run-2"))
    started = Committer(kafka, topology, clock=ManualClock())
    with pytest.raises(ReplacedError, match="application 'app' was replaced"):
        started.process(micro_batch(1, run="run-3"))
    assert marker_of(kafka).lineage == "other"


def test_a_missing_marker_follows_its_policy() -> None:
    """Row 19."""
    kafka = KafkaDouble()
    with pytest.raises(FatalError, match=r"marker\.missing"):
        Committer(kafka, APP, clock=ManualClock()).process(micro_batch(5))
    produce = Destination(application_id="app", missing_marker=MissingMarker.PRODUCE)
    assert Committer(kafka, produce, clock=ManualClock()).process(micro_batch(5)) is PRODUCED
    suppress = Destination(application_id="other", missing_marker=MissingMarker.SUPPRESS)
    assert Committer(kafka, suppress, clock=ManualClock()).process(micro_batch(5)) is SUPPRESSED
    assert held(kafka) == ["5a", "5b", "5c"]


@pytest.mark.parametrize(
    "fault", [None, *itertools.product(["commit_offsets", "end"], ["lost request", "lost answer"])]
)
def test_a_start_that_suppresses_without_a_marker_suppresses_that_micro_batch_only(
    fault: tuple[str, str] | None,
) -> None:
    kafka = KafkaDouble()
    suppress = Destination(application_id="app", missing_marker=MissingMarker.SUPPRESS)
    kafka.faults += [] if fault is None else [fault]
    committer = Committer(kafka, suppress)
    foot = Foot(kafka)
    assert committer.process(micro_batch(5, trailing_record=foot)) is SUPPRESSED
    assert held(kafka) == []
    assert not foot.fresh
    assert marker_of(kafka).batch_id == 5
    assert kafka.offsets["app", ("in", 0)].offset == 60
    assert committer.process(micro_batch(6)) is PRODUCED
    assert held(kafka) == ["6a", "6b", "6c"]
    again = Committer(kafka, suppress)
    assert again.process(micro_batch(6, run="run-2")) is SUPPRESSED
    assert again.process(micro_batch(7, run="run-2")) is PRODUCED
    assert len(held(kafka)) == 6


def test_a_new_run_in_the_same_process_asks_again() -> None:
    kafka = KafkaDouble()
    committer = Committer(kafka, APP, clock=ManualClock())
    committer.process(micro_batch(0))
    before = len(kafka.calls)
    assert committer.process(micro_batch(0, run="run-2")) is SUPPRESSED
    assert kafka.calls[before:] == ["init", "offset_fetch"]
    assert committer.process(micro_batch(1, run="run-2")) is PRODUCED
    assert held(kafka) == expected(1)
