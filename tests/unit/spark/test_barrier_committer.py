"""The driver where tasks send: what it takes for a micro-batch that was sent, and what it does about the rest."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from suiro.clock import ManualClock
from suiro.errors import (
    BrokenConnectionError,
    ConfigError,
    DeadlineExceededError,
    FatalError,
    FencedError,
    RefusedError,
    TransientError,
)
from suiro.spark.barrier import BarrierCommitter, Report, Ticket, open_transaction, owner_of, send
from suiro.spark.committer import MARKER_TOPIC, Destination, Outcome
from suiro.spark.decide import Marker, MissingMarker, Plan
from suiro.spark.options import SinkOptions
from suiro.spark.waiting import Waiting
from tests.unit.spark.kafka_double import KafkaDouble

APP = Destination(application_id="app")
HOURS_MS = 2 * 3_600_000
OWNED = [[("out", 0, b"a", 1), ("out", 0, b"b", 1), ("out", 2, b"c", 1)], [("out", 1, b"d", 1)]]


def nothing(point: str, batch_id: int) -> None: ...


def plan(batch_id: int = 0, lineage: str = "q") -> Plan:
    digests = ("" if batch_id == 0 else f"end{batch_id - 1}", f"end{batch_id}")
    return Plan(batch_id=batch_id, lineage=lineage, run_id="run", start_digest=digests[0], end_digest=digests[1])


def stage(kafka: KafkaDouble, of: Plan, owned: Sequence[Sequence[Any]] = OWNED) -> list[Report]:
    ticket = open_transaction(kafka, APP, of, reach=nothing)
    if not ticket.says_send:
        return [Report(task=task, ticket=ticket) for task in range(len(owned))]
    return [
        send(kafka, APP, ticket, batches, task=task, batch_id=of.batch_id, reach=nothing)
        for task, batches in enumerate(owned)
    ]


@pytest.fixture(params=[True, False], ids=["V2", "V1"])
def kafka(request: pytest.FixtureRequest) -> KafkaDouble:
    double = KafkaDouble()
    double.is_v2 = request.param
    return double


def process(
    kafka: KafkaDouble, of: Plan, run: Callable[[], Sequence[Report]], waiting: Waiting | None = None
) -> Outcome:
    committer = BarrierCommitter(kafka, APP, tasks=2, waiting=waiting)
    return committer.process(of, {("source", 0): 7}, run)[0]


def marker(kafka: KafkaDouble) -> int:
    return Marker.from_metadata(kafka.offsets["app", (MARKER_TOPIC, 0)].metadata).batch_id


def test_what_the_tasks_sent_is_committed_once(kafka: KafkaDouble) -> None:
    assert process(kafka, plan(), lambda: stage(kafka, plan())) is Outcome.PRODUCED
    assert process(kafka, plan(), lambda: stage(kafka, plan())) is Outcome.SUPPRESSED
    assert [data for *_, data in kafka.records] == [b"a", b"b", b"c", b"d"]
    assert marker(kafka) == 0
    assert kafka.offsets["app", ("source", 0)].offset == 7


def test_reports_of_two_attempts_are_no_micro_batch(kafka: KafkaDouble) -> None:
    attempts = iter([None, None])

    def run() -> list[Report]:
        old = stage(kafka, plan())
        new = stage(kafka, plan())
        return new if next(attempts, 0) == 0 else [old[0], new[1]]

    assert process(kafka, plan(), run) is Outcome.PRODUCED
    assert sorted(data for *_, data in kafka.records) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize(
    "cut",
    [
        pytest.param(lambda reports: reports[:1], id="a task is missing"),
        pytest.param(lambda reports: [reports[0], reports[0]], id="a task twice"),
        pytest.param(lambda reports: [Report(task=n, ticket=None) for n in range(2)], id="no task 0"),
    ],
)
def test_anything_but_all_reports_of_one_attempt_is_done_again_and_then_given_up(
    kafka: KafkaDouble, cut: Callable[[list[Report]], list[Report]]
) -> None:
    with pytest.raises(TransientError, match="attempts of their stage"):
        process(kafka, plan(), lambda: cut(stage(kafka, plan())))
    assert kafka.records == []


def test_a_log_that_is_away_is_waited_for_as_long_as_it_takes(kafka: KafkaDouble) -> None:
    clock, attempts, away = ManualClock(), 0, BrokenConnectionError("cannot connect to h:1")

    def run() -> list[Report]:
        nonlocal attempts
        attempts += 1
        clock.advance(60_000)
        if clock.monotonic_ms() < HOURS_MS:
            # It goes away now before task 0 has begun, now while they send.
            ticket = Ticket(failure=away) if attempts % 2 else stage(kafka, plan())[0].ticket
            return [Report(task=task, ticket=ticket, failure=away) for task in range(2)]
        return stage(kafka, plan())

    waiting = Waiting(clock=clock)
    assert process(kafka, plan(), run, waiting) is Outcome.PRODUCED
    assert attempts > 100
    assert sorted(data for *_, data in kafka.records) == [b"a", b"b", b"c", b"d"]


@pytest.mark.parametrize("took_ms", [59_000, 61_000])
def test_a_transaction_that_timed_out_is_sent_again(kafka: KafkaDouble, took_ms: int) -> None:
    """Who fenced cannot be seen; within the timeout it was no coordinator."""
    clock, attempts = ManualClock(), 0

    def run() -> list[Report]:
        nonlocal attempts
        attempts += 1
        reports = stage(kafka, plan())
        if attempts == 1:
            clock.advance(took_ms)
            kafka.transaction(APP.transactional_id).init()
        return reports

    committer = BarrierCommitter(kafka, APP, tasks=2, clock=clock)
    if took_ms < APP.transaction_timeout_ms:
        with pytest.raises(FencedError, match="took over"):
            committer.process(plan(), {}, run)
        return
    assert committer.process(plan(), {}, run)[0] is Outcome.PRODUCED
    assert sorted(data for *_, data in kafka.records) == [b"a", b"b", b"c", b"d"]


def test_a_limit_to_waiting_is_kept(kafka: KafkaDouble) -> None:
    clock = ManualClock()

    def run() -> list[Report]:
        clock.advance(60_000)
        return [Report(task=task, ticket=Ticket(failure=DeadlineExceededError("no"))) for task in range(2)]

    with pytest.raises(DeadlineExceededError):
        process(kafka, plan(), run, Waiting(clock=clock, limit_ms=150_000))
    assert 150_000 <= clock.monotonic_ms() <= 250_000


def test_no_tasks_at_all_commit_the_marker(kafka: KafkaDouble) -> None:
    assert process(kafka, plan(), list) is Outcome.PRODUCED
    assert (kafka.records, marker(kafka)) == ([], 0)


def test_what_no_repetition_mends_is_raised_and_aborted(kafka: KafkaDouble) -> None:
    with pytest.raises(RefusedError):
        process(kafka, plan(), lambda: stage(kafka, plan(), [[("nowhere", 0, b"x", 1)], OWNED[1]]))
    assert kafka.records == []
    assert kafka.open == {}


def test_a_marker_that_contradicts_the_checkpoint_stops(kafka: KafkaDouble) -> None:
    process(kafka, plan(), lambda: stage(kafka, plan()))
    with pytest.raises(FatalError, match="rolled back"):
        process(kafka, plan(5), lambda: stage(kafka, plan(5)))


def test_a_marker_that_was_lost_is_written_anew_without_the_records(kafka: KafkaDouble) -> None:
    destination = Destination(application_id="app", missing_marker=MissingMarker.SUPPRESS)
    committer = BarrierCommitter(kafka, destination, tasks=2)

    def run() -> list[Report]:
        ticket = open_transaction(kafka, destination, plan(4), reach=nothing)
        assert not ticket.says_send
        return [Report(task=task, ticket=ticket) for task in range(2)]

    assert committer.process(plan(4), {}, run)[0] is Outcome.SUPPRESSED
    assert (kafka.records, marker(kafka)) == ([], 4)
    assert process(kafka, plan(5), lambda: stage(kafka, plan(5))) is Outcome.PRODUCED


def test_who_is_fenced_before_the_commit_stops(kafka: KafkaDouble) -> None:
    def run() -> list[Report]:
        reports = stage(kafka, plan())
        open_transaction(kafka, APP, plan(), reach=nothing)  # somebody else's task 0
        return reports

    with pytest.raises(FencedError, match="took over"):
        process(kafka, plan(), run)
    assert kafka.records == []


def test_a_partition_has_one_owner_and_neighbours_have_others() -> None:
    assert {owner_of("out", partition, 4) for partition in range(8)} == {0, 1, 2, 3}
    assert owner_of("out", 5, 1) == 0


def test_the_option_is_of_exactly_once_only() -> None:
    options = {"kafka.bootstrap.servers": "h:1", "producer.tasks": "4"}
    assert SinkOptions.parse(options).producer_tasks == 4
    with pytest.raises(ConfigError, match="foreachBatch"):
        SinkOptions.parse(options).for_format()
    with pytest.raises(ConfigError, match=r"producer\.tasks"):
        SinkOptions.parse(options | {"producer.tasks": "0"})
