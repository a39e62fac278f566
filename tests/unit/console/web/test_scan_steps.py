"""A search ends within a step of its reader's going, also without records to show. Partitions without a leader."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.client import EARLIEST, Fetched, ListedOffset, PartitionInfo, TopicInfo
from suiro.clock import ManualClock
from suiro.console.web import Masks
from suiro.console.web.api import records
from suiro.console.web.api.records import _Scan
from suiro.console.web.endpoint import Call
from suiro.errors import DeadlineExceededError, TransientError
from suiro.foundation.http import Role
from suiro.protocol.records import control_batch

MARKERS = 100
FETCH_MS = 50


class Markers:
    """A partition of ends of transactions, one a fetch."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def metadata(self, topics: Any = None) -> dict[str, TopicInfo]:
        partitions = (PartitionInfo(partition=0, leader=1, leader_epoch=0),)
        return {"t": TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)}

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else MARKERS, timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        self._clock.advance(FETCH_MS)
        ((place, at),) = offsets.items()
        data = control_batch(
            commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=at
        )
        return {
            place: Fetched(
                data=memoryview(data),
                aborted=(),
                high_watermark=MARKERS,
                last_stable_offset=MARKERS,
                log_start_offset=0,
            )
        }


def test_steps_through_what_has_nothing_to_show() -> None:
    clock = ManualClock()

    @contextmanager
    def client() -> Iterator[Any]:
        yield Markers(clock)

    settings = SimpleNamespace(registry=None, masks=Masks())
    console = SimpleNamespace(client=client, clock=clock, settings=settings)
    call: Any = SimpleNamespace(console=console, query={}, role=Role.ADMIN, number=lambda name, *rest: None)
    scan = _Scan(call, "t", limit=10)
    shares = [scan.progress.share for _ in scan.steps()]
    assert len(shares) > 10
    assert shares == sorted(shares)


class OneLed:
    """A topic of two partitions, of which the second has no leader, so that nothing can be asked of it."""

    def __init__(self, *leaders: int) -> None:
        self.leaders = list(leaders or (1, -1))
        self.fetched: list[list[Any]] = []

    def metadata(self, topics: Any = None) -> dict[str, TopicInfo]:
        partitions = tuple(
            PartitionInfo(partition=number, leader=leader, leader_epoch=0)
            for number, leader in enumerate(self.leaders)
        )
        return {"t": TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)}

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        for topic, partition in wanted:
            if self.leaders[partition] < 0:
                raise DeadlineExceededError(f"list offsets: {topic}-{partition} has no leader")
        return {place: ListedOffset(offset=0, timestamp=-1, leader_epoch=-1) for place in wanted}

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        self.fetched.append(list(offsets))
        return {}


def asking(of: OneLed | None = None, **query: str) -> Call:
    cluster = of or OneLed()

    @contextmanager
    def client() -> Iterator[Any]:
        yield cluster

    console = SimpleNamespace(
        client=client, clock=ManualClock(), settings=SimpleNamespace(registry=None, masks=Masks())
    )
    return Call(
        console=console,  # type: ignore[arg-type]
        path={"topic": "t"},
        query=query,
        body=None,
        user=None,
        role=Role.ADMIN,
        gone=threading.Event(),
    )


def test_a_partition_without_a_leader_hides_no_record_of_the_others() -> None:
    """Pages and tails of the whole topic failed after 20 s, until it had a leader again."""
    assert records._page(asking()).ranges == {0: (0, 0)}
    assert records._page(asking(positions="0:0,1:5")).ranges == {0: (0, 0)}
    assert next(iter(records._tail(asking()).parts)) is not None  # type: ignore[arg-type]


@pytest.mark.parametrize("endpoint", [records._page, records._tail])
def test_a_topic_without_any_leader_is_not_shown_as_empty(endpoint: Any) -> None:
    """Its page said that it has no records, and its tail asked for nothing, without a pause."""
    with pytest.raises(TransientError, match="2 of 2 partitions of t have no leader"):
        endpoint(asking(OneLed(-1, -1)))


def test_a_tail_follows_a_partition_once_it_has_a_leader() -> None:
    """It left that partition out until it was started again."""
    cluster = OneLed(1, -1)
    parts: Any = iter(records._tail(asking(cluster)).parts)
    next(parts)
    next(parts)
    assert cluster.fetched == [[("t", 0)]]
    cluster.leaders[1] = 2
    next(parts)
    next(parts)
    assert cluster.fetched[1:] == [[("t", 0), ("t", 1)]] * 2


def test_a_tail_of_one_partition_stays_with_it() -> None:
    cluster = OneLed(1, 1, 1)
    parts: Any = iter(records._tail(asking(cluster, partition="1")).parts)
    next(parts)
    next(parts)
    assert cluster.fetched == [[("t", 1)]]


@pytest.mark.parametrize("endpoint", [records._scan, records._export])
def test_what_reads_all_records_says_at_once_that_it_cannot(endpoint: Any) -> None:
    """A file without some partitions must not look whole."""
    with pytest.raises(TransientError, match="1 of 2 partitions of t have no leader"):
        endpoint(asking())


def test_a_file_has_all_records_where_nobody_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the first ten million, and did not say that there were more."""
    limits: list[int | None] = []
    monkeypatch.setattr(records, "_Scan", lambda call, topic, *, limit: limits.append(limit))
    for query in ({}, {"limit": "7"}, {"limit": "20000000"}):
        records._export(
            Call(
                console=SimpleNamespace(),  # type: ignore[arg-type]
                path={"topic": "t"},
                query=query,
                body=None,
                user=None,
                role=Role.VIEWER,
                gone=threading.Event(),
            )
        )
    assert limits == [None, 7, 20_000_000]
