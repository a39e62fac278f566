"""A search ends within a step of its reader's going, also without records to show. Partitions without a leader."""

from __future__ import annotations

import json
import struct
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from support.waiting import wait_until

from suiro import registry
from suiro.client import EARLIEST, NO_LEADER, Fetched, ListedOffset, PartitionInfo, TopicInfo
from suiro.clock import ManualClock
from suiro.console import formats, pages, registry_waits
from suiro.console.pages import LEADER_WAIT_MS
from suiro.console.records import read_records
from suiro.console.web import Masks, streams
from suiro.console.web.api import records, tails
from suiro.console.web.api.records import _Scan
from suiro.console.web.endpoint import Call
from suiro.console.web.streams import KEEP_ALIVE
from suiro.errors import (
    OffsetOutOfRangeError,
    RegistryRefusedError,
    RegistryUnavailableError,
    RetriableKafkaError,
    TransientError,
    UnknownTopicError,
    UsageError,
)
from suiro.foundation.http import Role
from suiro.protocol.records import Record, control_batch, encode_batch
from suiro.registry.codecs import wire

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


def page(call: Call) -> records.RecordsPage:
    with call.console.client() as client:
        return records._page(call, client)


def tailed(call: Call) -> Any:
    with call.console.client() as client:
        return tails._tail(call, client)


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
    """A topic of two partitions, of which the second has no leader, so that nothing can be asked of it. Each has a
    record, unless `records` is 0. `loses` is a partition that loses its leader at the first fetch."""

    def __init__(self, *leaders: int, records: int = 0, loses: int | None = None) -> None:
        self.leaders = list(leaders or (1, -1))
        self.fetched: list[list[Any]] = []
        self.positions: dict[Any, int] = {}
        self.waits: set[Any] = set()
        self.waits_for_records: set[int] = set()
        self.value = b"{}"
        self.topic_id = uuid4()
        self.is_behind = False
        self._records = records
        self._loses = loses

    def _ask(self, wanted: Mapping[Any, int], what: str, more: Mapping[str, Any]) -> None:
        self.waits.add(more.get("leader_wait_ms"))
        for topic, partition in wanted:
            if partition >= len(self.leaders):
                raise UnknownTopicError(f"{what} {topic}-{partition}", "UNKNOWN_TOPIC_OR_PARTITION")
            if self.leaders[partition] < 0:
                raise RetriableKafkaError(f"{what} {topic}-{partition}: it has no leader", NO_LEADER)

    def metadata(self, topics: Any = None) -> dict[str, TopicInfo]:
        partitions = tuple(
            PartitionInfo(partition=number, leader=leader, leader_epoch=0) for number, leader in enumerate(self.leaders)
        )
        return {"t": TopicInfo(name="t", topic_id=self.topic_id, internal=False, partitions=partitions)}

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        self._ask(wanted, "list offsets", more)
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else self._records, timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        if self._loses is not None and ("t", self._loses) in offsets:
            self.leaders[self._loses], self._loses = -1, None
        self._ask(offsets, "fetch", more)
        self.waits_for_records.add(more["max_wait_ms"])
        if self.is_behind and any(offsets.values()):
            raise OffsetOutOfRangeError("t", 0, 1, 0, 0)
        self.fetched.append(list(offsets))
        self.positions |= offsets
        if not self._records:
            return {}
        data = encode_batch([Record(offset=0, timestamp=1, key=None, value=self.value)])
        return {
            place: Fetched(
                data=memoryview(data if at == 0 else b""),
                aborted=(),
                high_watermark=1,
                last_stable_offset=1,
                log_start_offset=0,
            )
            for place, at in offsets.items()
        }


def asking(of: OneLed | None = None, registry: str | None = None, **query: str) -> Call:
    cluster = of or OneLed()

    @contextmanager
    def client() -> Iterator[Any]:
        yield cluster

    console = SimpleNamespace(
        client=client, clock=ManualClock(), settings=SimpleNamespace(registry=registry, masks=Masks())
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
    assert page(asking()).ranges == {0: (0, 0)}
    assert page(asking(positions="0:0,1:5")).ranges == {0: (0, 0)}
    assert next(iter(tailed(asking()).parts)) is not None


@pytest.mark.parametrize("endpoint", [page, tailed])
def test_a_topic_without_any_leader_is_not_shown_as_empty(endpoint: Any) -> None:
    """Its page said that it has no records, and its tail asked for nothing, without a pause."""
    with pytest.raises(TransientError, match="2 of 2 partitions of t have no leader"):
        endpoint(asking(OneLed(-1, -1)))


def test_a_tail_follows_a_partition_once_it_has_a_leader() -> None:
    """It left that partition out until it was started again."""
    cluster = OneLed(1, -1)
    parts: Any = iter(tailed(asking(cluster)).parts)
    next(parts)
    next(parts)
    assert cluster.fetched == [[("t", 0)]]
    cluster.leaders[1] = 2
    next(parts)
    next(parts)
    assert cluster.fetched[1:] == [[("t", 0), ("t", 1)]] * 2


def test_a_tail_of_one_partition_stays_with_it() -> None:
    """A fetch that waits costs the node time at each write."""
    cluster = OneLed(1, 1, 1)
    call = asking(cluster, partition="1")
    parts: Any = iter(tailed(call).parts)
    next(parts)
    next(parts)
    cluster.leaders.append(1)
    call.console.clock.advance(tails.TAIL_LOOKS_MS)  # type: ignore[attr-defined]
    next(parts)
    assert cluster.fetched == [[("t", 1)]] * 2
    assert cluster.waits_for_records == {0}
    assert call.console.clock.monotonic_ms() == tails.TAIL_LOOKS_MS + 2 * tails.TAIL_WAIT_MS


def test_tabs_that_follow_the_same_ask_the_cluster_once() -> None:
    """Each asked four times a second: with twenty, producers waited behind them."""
    cluster = OneLed(1)
    call = asking(cluster)
    tabs: list[Any] = [iter(tailed(call).parts) for _ in range(20)]
    for tab in tabs:
        assert b'"dropped":0' in next(tab)
    for tab in (*tabs, *tabs):
        assert b"event" not in next(tab)
    cluster._records = 1
    cluster.fetched.clear()
    told = [next(tab) for tab in tabs]
    assert b'"offset":0' in told[0]
    assert set(told) == {told[0]}
    assert len(cluster.fetched) == 1


def test_a_tab_gets_all_that_comes_behind_its_first_event() -> None:
    """What another tab had fetched before it asked for the next event was lost."""
    cluster = OneLed(1)
    call = asking(cluster)
    tabs: list[Any] = [iter(tailed(call).parts) for _ in range(2)]
    for tab in (tabs[0], *tabs):
        next(tab)
    cluster._records = 1
    assert all(b'"offset":0' in next(tab) for tab in tabs)


def test_what_a_tab_is_too_slow_for_is_counted() -> None:
    cluster = OneLed(1)
    call = asking(cluster)
    quick, slow = iter(tailed(call).parts), iter(tailed(call).parts)
    for tab in (quick, slow, quick, slow):
        next(tab)  # type: ignore[call-overload]
    cluster._records = 1
    for _ in range(streams.KEPT + 2):
        next(quick)  # type: ignore[call-overload]
    assert b'"records":[],"dropped":1' in next(slow)  # type: ignore[call-overload]
    assert next(slow) == KEEP_ALIVE  # type: ignore[call-overload]


def test_tabs_that_follow_something_else_have_their_own_tail() -> None:
    cluster = OneLed(1, 1)
    call = asking(cluster)
    others = [{"partition": "1"}, {"value": "hex"}, {"filter": "a == 1"}, {"filter": "a == 1"}]
    calls = [call, *(replace(call, query=query) for query in others), replace(call, role=Role.VIEWER)]
    tabs: list[Any] = [iter(tailed(one).parts) for one in calls]
    for tab in tabs:
        next(tab)
        next(tab)
    assert len(cluster.fetched) == len(tabs)
    del tabs, tab
    assert not tails._tails._streams


def test_a_tail_that_fails_ends_for_all_tabs() -> None:
    cluster = OneLed(1)
    call = asking(cluster)
    tabs: list[Any] = [iter(tailed(call).parts) for _ in range(2)]
    for tab in (*tabs, *tabs, tabs[0]):
        next(tab)
    cluster.leaders.clear()
    assert all(b"event: failed" in next(tab) for tab in tabs)
    assert [next(tab, None) for tab in tabs] == [None, None]
    cluster.leaders.append(1)
    again: Any = iter(tailed(call).parts)
    assert [b"dropped" in next(again), next(again)] == [True, KEEP_ALIVE]


def test_a_tail_follows_new_partitions_from_their_first_record() -> None:
    """Their records never came."""
    cluster = OneLed(1, records=1)
    call = asking(cluster)
    parts: Any = iter(tailed(call).parts)
    next(parts)
    next(parts)
    cluster.leaders += [1, -1]
    call.console.clock.advance(tails.TAIL_LOOKS_MS)  # type: ignore[attr-defined]
    assert b'"partition":1,"offset":0' in next(parts)
    cluster.leaders[2] = 1
    assert b'"partition":2,"offset":0' in next(parts)


def test_a_look_at_the_topic_takes_no_time_from_the_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a log that is far away, the records of every look were left out."""
    cluster = OneLed(1)
    call: Any = asking(cluster)
    found = cluster.metadata()

    def slow(topics: Any = None) -> dict[str, TopicInfo]:
        call.console.clock.advance(tails.STEP_MS + tails.TAIL_WAIT_MS)
        return found

    monkeypatch.setattr(cluster, "metadata", slow)
    parts: Any = iter(tailed(call).parts)
    next(parts)
    monkeypatch.setattr(cluster, "_records", 1)
    assert b'"partition":0,"offset":0' in next(parts)


@pytest.mark.parametrize("before", [(1,), (1, 1)], ids=["as many partitions", "fewer partitions"])
@pytest.mark.parametrize("is_behind", [False, True])
def test_a_tail_begins_anew_in_a_topic_that_is_created_again(is_behind: bool, before: tuple[int, ...]) -> None:
    """It failed, or left out as many records as the topic before had."""
    cluster = OneLed(*before, records=1)
    call = asking(cluster)
    parts: Any = iter(tailed(call).parts)
    next(parts)
    assert b"keep-alive" in next(parts)
    cluster.topic_id = uuid4()
    cluster.leaders = [1]
    cluster.is_behind = is_behind
    if not is_behind:
        call.console.clock.advance(tails.TAIL_LOOKS_MS)  # type: ignore[attr-defined]
    told = [next(parts) for _ in range(2)]
    assert b'"partition":0,"offset":0' in b"".join(told)


def events_of(answer: Any) -> list[tuple[str, Any]]:
    found = []
    for part in answer.parts:
        for one in filter(None, part.decode().split("\n\n")):
            name, data = one.split("\n")
            found.append((name.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def test_a_page_lacks_the_partition_that_loses_its_leader_and_says_so() -> None:
    """It failed after 20 s."""
    cluster = OneLed(1, 1, records=1, loses=0)
    shown = page(asking(cluster, **{"from": "earliest"}))
    assert [one.partition for one in shown.records] == [1]
    assert (shown.leaderless, list(shown.positions)) == ((0,), [1])
    assert cluster.waits == {LEADER_WAIT_MS}


def test_a_page_of_the_partition_that_loses_its_leader_fails_and_names_it() -> None:
    with pytest.raises(RetriableKafkaError, match="t-0"):
        page(asking(OneLed(1, 1, records=1, loses=0), partition="0"))


def test_a_search_goes_on_in_the_other_partitions_and_does_not_look_whole() -> None:
    """It failed after 20 s."""
    cluster = OneLed(1, 1, 1, records=1, loses=1)
    *told, (name, end) = events_of(records._scan(asking(cluster)))
    assert [one["partition"] for kind, found in told if kind == "records" for one in found] == [0, 2]
    assert (name, end["reason"], end["leaderless"], end["matched"]) == ("end", "leaderless", [1], 2)
    assert cluster.waits == {LEADER_WAIT_MS}


@pytest.mark.parametrize("endpoint", [records._scan, records._export])
def test_each_partition_without_a_leader_is_a_step(endpoint: Any) -> None:
    """Each takes two seconds. A reader that had gone was noticed after the last one."""
    cluster = OneLed(1, 1, 1, records=1)
    parts = endpoint(asking(cluster)).parts
    cluster.leaders[:2] = [-1, -1]
    if endpoint is records._export:
        with pytest.raises(TransientError, match="partition 0"):
            list(parts)
    else:
        next(parts)
        next(parts)
    assert cluster.fetched == []


def test_a_search_ends_where_the_records_are_gone() -> None:
    """It asked for them for ever, as after a topic was deleted and made anew."""
    cluster = OneLed(1, records=3)  # of the three, one arrives
    *_, (name, said) = events_of(records._scan(asking(cluster)))
    assert (name, "no more records of t-0 arrive from offset 1 on" in said["message"]) == ("failed", True)


class Shortened(OneLed):
    """Its records from `first` on are there: retention deletes those before once a search has begun."""

    first = 0
    end = 3

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        found = super().list_offsets(wanted, **more)
        self.first = 2
        return found

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        ((place, at),) = offsets.items()
        if at < self.first:
            raise OffsetOutOfRangeError(*place, at, self.first, 3)
        data = encode_batch([Record(offset=at, timestamp=1, key=None, value=b"{}")], base_offset=at)
        return {
            place: Fetched(
                data=memoryview(data),
                aborted=(),
                high_watermark=self.end,
                last_stable_offset=self.end,
                log_start_offset=self.first,
            )
        }


BOMBS = {
    "values": b"[" + b"[]," * 300_000 + b"[]]",
    "bytes": b"a" * (formats.BYTES_MAX + 1),
    "schema": struct.pack(">bI", 0, 7) + b"\0" * formats.SCHEMA_BYTES_MAX,
}


@pytest.mark.parametrize("bomb", BOMBS)
@pytest.mark.parametrize("kind", ["auto", "json", "avro"])
def test_a_small_batch_that_becomes_a_large_value_is_not_parsed(bomb: str, kind: str) -> None:
    """A kilobyte of a producer's batch stopped the console for as long as it parsed a hundred megabytes."""
    decoded = formats.decoder(kind, "mock://of-a-test", is_patient=False)(BOMBS[bomb])
    as_text = (bomb, kind) == ("values", "auto")
    assert (decoded.format, decoded.error is None) == (("string", True) if as_text else ("hex", False))


def test_a_page_and_a_tail_hold_few_large_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of each of 200 partitions, and forty of a tail, were in memory at once, of 128 MiB each."""
    monkeypatch.setattr(pages, "HELD_BYTES", 1_500)
    monkeypatch.setattr(tails, "TAIL_BYTES", 1_500)
    cluster = OneLed(1, 1, 1, 1, records=1)
    cluster.value = b"x" * 1_000
    shown = page(asking(cluster, **{"from": "earliest"}))
    assert [one.partition for one in shown.records] == [0, 1]
    assert {number: edges.after for number, edges in shown.positions.items()} == {0: 1, 1: 1, 2: 0, 3: 0}
    cluster = OneLed(1, 1, 1, 1, records=0)
    cluster.value = b"x" * 1_000
    parts: Any = iter(tailed(asking(cluster)).parts)
    next(parts)
    cluster._records = 1
    told = next(parts)
    assert (told.count(b'"offset":0'), b'"dropped":3' in told) == (1, True)


def test_a_file_of_csv_says_which_values_it_has_not_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formats, "BYTES_MAX", 1_500)
    cluster = OneLed(1, records=1)
    cluster.value = b"x" * 2_000
    told = b"".join(records._export(asking(cluster, format="csv")).parts)
    assert b"7878... (has 2000 bytes, more than the 1500 that are decoded here)" in told


def test_retention_ends_neither_a_search_nor_a_file() -> None:
    """Of a topic whose records are always deleted somewhere, none was ever complete."""
    *told, (name, end) = events_of(records._scan(asking(Shortened(1, 1, records=3))))
    found = [(one["partition"], one["offset"]) for kind, said in told if kind == "records" for one in said]
    assert (found, name, end["reason"], end["deleted"]) == ([(0, 2), (1, 2)], "end", "end", 4)
    assert b"".join(records._export(asking(Shortened(1, records=3))).parts).count(b"\n") == 1
    behind = Shortened(1, records=1)  # nothing of what was there at the beginning is left
    *_, (_, end) = events_of(records._scan(asking(behind)))
    assert (end["reason"], end["matched"], end["deleted"]) == ("end", 0, 1)


class Losing(OneLed):
    """It says of each offset that the records before the next one are deleted."""

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else 1 << 62, timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        ((place, at),) = offsets.items()
        raise OffsetOutOfRangeError(*place, at, at + 1, 1 << 62)


def test_a_broker_that_loses_records_without_end_holds_no_reader() -> None:
    """Neither a search nor a reader of a whole topic ended, and whoever had asked could not leave."""
    parts = iter(records._scan(asking(Losing(1))).parts)
    assert all(b"progress" in next(parts) for _ in range(100))
    with pytest.raises(OffsetOutOfRangeError):
        list(read_records(Losing(1), "t", start={0: 0}))  # type: ignore[arg-type]


class Long(OneLed):
    """A partition of ten records, one a fetch."""

    def __init__(self) -> None:
        super().__init__(1, records=10)
        self.asked: list[int] = []

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        ((place, at),) = offsets.items()
        self.asked.append(at)
        data = encode_batch([Record(offset=at, timestamp=1, key=None, value=b"{}")], base_offset=at)
        return {
            place: Fetched(
                data=memoryview(data), aborted=(), high_watermark=10, last_stable_offset=10, log_start_offset=0
            )
        }


def test_a_search_asks_for_what_follows_while_it_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A broker that is far away, or slow, and the search waited for each other."""
    cluster = Long()
    seen = []
    look = records.Matching.look

    def looked_at(self: Any, record: Any) -> Any:
        seen.append(record.offset)
        wait_until(lambda: min(record.offset + 1, 9) in cluster.asked, what="the next part is asked for")
        return look(self, record)

    monkeypatch.setattr(records.Matching, "look", looked_at)
    *_, (_, end) = events_of(records._scan(asking(cluster)))
    assert (end["matched"], seen, cluster.asked) == (10, list(range(10)), list(range(10)))


def test_a_search_that_is_left_leaves_no_thread() -> None:
    parts: Any = iter(records._export(asking(Long())).parts)
    next(parts)
    parts.close()
    left: Any = iter(records._scan(asking(Long(), limit="1")).parts)
    next(left)
    left.close()
    assert not [one for one in threading.enumerate() if one.name.startswith("console-fetch")]


def test_retention_does_not_end_a_tail() -> None:
    parts: Any = iter(tailed(asking(Shortened(1, records=1))).parts)
    told = [next(parts) for _ in range(3)]
    assert b'"offset":2' in told[-1]


def test_a_tail_does_not_wait_for_records_that_are_there() -> None:
    """It read four fetches a second at most, and left out what it could not keep up with."""
    cluster = Shortened(1, records=1)
    cluster.end = 5
    call = asking(cluster)
    parts: Any = iter(tailed(call).parts)
    told = [next(parts) for _ in range(5)]
    assert b'"offset":4' in told[-1]
    assert call.console.clock.monotonic_ms() <= 2 * tails.TAIL_WAIT_MS


@pytest.mark.parametrize("endpoint", [records._scan, records._export])
def test_a_topic_that_is_created_again_does_not_look_whole(endpoint: Any) -> None:
    """Half of the records were of the topic before."""
    cluster = OneLed(1, 1, records=1)
    answer = endpoint(asking(cluster))
    cluster.topic_id = uuid4()
    if endpoint is records._export:
        with pytest.raises(UsageError, match="created again"):
            list(answer.parts)
    else:
        *_, (name, said) = events_of(answer)
        assert (name, "created again" in said["message"]) == ("failed", True)


def test_a_file_does_not_look_whole_where_a_partition_loses_its_leader() -> None:
    download = records._export(asking(OneLed(1, 1, 1, records=1, loses=1)))
    with pytest.raises(TransientError, match="partition 1"):
        list(download.parts)


@pytest.mark.parametrize("query", [{}, {"filter": "record_timestamp() > 0"}, {"format": "csv"}])
def test_a_file_waits_for_its_schemas(monkeypatch: pytest.MonkeyPatch, unique: str, query: dict[str, str]) -> None:
    """Records that had come while the registry was slow were in the file as bytes, or as other numbers."""
    answers: list[registry.Schema] = []

    def schema(number: int) -> registry.Schema:
        if not answers:
            raise RegistryUnavailableError("the registry is away", 503, 0)
        return answers[0]

    client = SimpleNamespace(schema=schema)
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    monkeypatch.setattr(registry_waits, "PAUSE_MS", 0)
    cluster = OneLed(1, records=1)
    cluster.value = struct.pack(">bI", 0, 7) + b"\x04ab"  # also a long
    parts = iter(records._export(asking(cluster, f"http://{unique}", **query)).parts)
    assert [next(parts) for _ in range(4)][1:] == [b""] * 3
    answers.append(registry.Schema('"string"'))
    assert b"ab" in b"".join(parts)
    answers.clear()
    download = records._export(asking(cluster, f"http://{unique}-2", **query))
    with pytest.raises(TransientError, match="t-0 offset 0 cannot be decoded: the registry is away"):
        list(download.parts)


def test_a_file_does_not_wait_for_a_schema_that_the_registry_refuses(
    monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """Each second record of it took ten seconds."""

    def schema(number: int) -> registry.Schema:
        raise RegistryRefusedError("you may not read it", 403, 40301)

    monkeypatch.setattr(registry, "registry_client", lambda url: SimpleNamespace(schema=schema))
    cluster = OneLed(1, records=1)
    cluster.value = struct.pack(">bI", 0, 7) + b"\x06abc"
    for _ in range(2):
        call = asking(cluster, f"http://{unique}")
        file = b"".join(records._export(call).parts)
        assert b"you may not read it" in file
        assert call.console.clock.monotonic_ms() == 0


def test_a_tail_goes_on_without_the_partition_that_loses_its_leader_and_then_where_it_was() -> None:
    """It failed after 20 s. To begin at the end once there is a leader again would leave records out."""
    cluster = OneLed(1, 1)
    tail = tailed(asking(cluster))
    parts: Any = iter(tail.parts)
    next(parts)
    next(parts)
    cluster.positions.clear()
    cluster.leaders[0] = -1
    told = next(parts)
    assert b'"leaderless":[0]' in told
    next(parts)
    assert cluster.positions == {("t", 1): 0}
    cluster.leaders[0] = 1
    cluster._records = 1  # the end is now behind a record that came meanwhile
    assert b'"partition":0,"offset":0' in next(parts)
    assert cluster.positions["t", 0] == 0


def test_a_tail_of_a_partition_without_a_leader_waits_for_it() -> None:
    cluster = OneLed(1, 1, 1)
    call = asking(cluster, partition="1")
    parts: Any = iter(tailed(call).parts)
    next(parts)
    cluster.leaders[1] = -1
    next(parts)
    before = call.console.clock.monotonic_ms()
    next(parts)
    assert call.console.clock.monotonic_ms() > before  # not asked again without a pause
    cluster.leaders[1] = 1
    assert b'"leaderless":[]' in next(parts)


@pytest.mark.parametrize("endpoint", [records._scan, records._export])
def test_what_reads_all_records_says_at_once_that_it_cannot(endpoint: Any) -> None:
    """A file without some partitions must not look whole."""
    with pytest.raises(TransientError, match="1 of 2 partitions of t have no leader"):
        endpoint(asking())


def test_a_file_has_all_records_where_nobody_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the first ten million, and did not say that there were more."""
    limits: list[int | None] = []
    monkeypatch.setattr(records, "_Scan", lambda call, topic, *, limit, is_exact: limits.append(limit))
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
