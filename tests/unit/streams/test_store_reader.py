"""A store's copy follows its changelog: every kind of store, written here as the runner writes it."""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from suiro.client import Client, NewTopic
from suiro.errors import DeadlineExceededError, UsageError
from suiro.node import InProcessNode
from suiro.protocol.records import Record, encode_batch
from suiro.streams import Materialized, SessionWindows, StreamsBuilder, TimeWindows, Windowed, serdes
from suiro.streams.queries.store_reader import ROW_BYTES, ReadOnlyStore, StoreTooLargeError, changelog_topic
from suiro.streams.topology.topology import Topology
from suiro.streams_spark.plan import plan
from suiro.streams_spark.topics import create_internal_topics
from suiro.testing import node
from suiro.topic_table import table

TEXT = {"key": serdes.string, "value": serdes.string}
Row = tuple[bytes, bytes | None, int]


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with node() as log, Client(log.bootstrap_servers) as made:
        made.address = log.bootstrap_servers  # type: ignore[attr-defined]
        yield made


@pytest.fixture
def opened(client: Client) -> Iterator[Callable[..., ReadOnlyStore]]:
    stores: list[ReadOnlyStore] = []

    def open_(name: str, application: str = "app", **options: Any) -> ReadOnlyStore:
        found = ReadOnlyStore(
            topology(),
            name,
            application_id=application,
            bootstrap_servers=client.address,  # type: ignore[attr-defined]
            **options,
        )
        stores.append(found)
        return found

    yield open_
    for store in stores:
        store.close()


def topology() -> Topology:
    builder = StreamsBuilder()
    words = builder.stream("in", **TEXT).group_by_key()
    words.count(materialized=Materialized.as_("counts"))
    words.windowed_by(TimeWindows.of_size(10)).count(materialized=Materialized.as_("windows"))
    words.windowed_by(SessionWindows.of_gap(10)).count(materialized=Materialized.as_("sessions"))
    builder.table("versions", **TEXT, materialized=Materialized.versioned("versioned", history="1 second"))
    builder.global_table("table", key=serdes.string, value=serdes.json, materialized=Materialized.as_("global"))
    words.reduce(max, materialized=Materialized.as_("unlogged", logged=False))
    return builder.build()


def write(client: Client, topic: str, *rows: Row, partition: int = 0) -> None:
    records = [
        Record(offset=index, timestamp=timestamp, key=key, value=value)
        for index, (key, value, timestamp) in enumerate(rows)
    ]
    client.create_topics([NewTopic(topic, 2, configs={"retention.ms": "-1"})], exist_ok=True)
    client.produce({(topic, partition): encode_batch(records)})


def number(value: int) -> bytes:
    return struct.pack(">q", value)


def test_key_value(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    topic = "app-counts-changelog"
    write(client, topic, (b"a", number(1), 5), (b"ab", number(2), 6), (b"c", number(9), 7))
    write(client, topic, (b"b", number(3), 8), (b"c", None, 9), partition=1)
    store = opened("counts")
    assert store.get("ab").value == 2
    assert store.get("x").value is None
    assert store.all().value == [("a", 1), ("ab", 2), ("b", 3)]
    assert store.range("ab", "b").value == [("ab", 2), ("b", 3)]
    assert store.prefix_scan(b"a").value == [("a", 1), ("ab", 2)]
    assert store.all().offsets == {0: 3, 1: 2}
    write(client, topic, (b"a", number(4), 10))
    store.wait_for({0: 4})
    assert (store.get("a").value, store.get("a").offsets) == (4, {0: 4, 1: 2})


def test_a_copy_holds_no_more_than_it_may(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    """What counts is what is held: not what the topic has had in it, nor rows that were deleted."""
    topic, room = "bounded-counts-changelog", 10 * (ROW_BYTES + 20)
    for n in range(40):
        write(
            client,
            topic,
            (b"%d" % (n % 9), number(n), n),
            (b"gone %d" % n, number(n), n),
            (b"gone %d" % n, None, n),
        )
    small = opened("counts", "bounded", max_bytes=room)
    assert len(small.all().value) == 9
    write(client, topic, *((b"more %d" % n, number(n), n) for n in range(9)))
    with pytest.raises(StoreTooLargeError, match=f"store 'counts' take more than {room:,} bytes"):
        small.wait_for({0: 129})
    with pytest.raises(StoreTooLargeError):
        small.get("1")
    assert len(opened("counts", "bounded").all().value) == 18


def test_windows(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    def row(key: bytes, start: int, value: int) -> Row:
        return key + struct.pack(">qi", start, 0), number(value), start + 3

    topic = "app-windows-changelog"
    write(client, topic, row(b"a", 0, 1), row(b"a", 10, 2), row(b"b", 10, 3))
    store = opened("windows")
    assert store.fetch("a", 10).value == 2
    assert store.fetch("a", 0, 10).value == [(0, 1), (10, 2)]
    assert store.fetch_all(5, 10).value == [(Windowed("a", 10, 20), 2), (Windowed("b", 10, 20), 3)]
    write(client, topic, (b"a" + struct.pack(">qi", 0, 0), None, 30), row(b"a", 20, 4))
    store.catch_up()
    assert store.fetch("a", 0, 30).value == [(10, 2), (20, 4)]
    assert len(store.all().value) == 3


def test_sessions(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    def key(name: bytes, start: int, end: int) -> bytes:
        return name + struct.pack(">qq", end, start)

    topic = "app-sessions-changelog"
    write(client, topic, (key(b"a", 0, 5), number(2), 5), (key(b"b", 7, 7), number(1), 7))
    store = opened("sessions")
    assert store.fetch("a").value == [(Windowed("a", 0, 5), 2)]
    write(client, topic, (key(b"a", 0, 5), None, 9), (key(b"a", 0, 9), number(3), 9))
    store.catch_up()
    assert store.fetch("a").value == [(Windowed("a", 0, 9), 3)]
    assert store.all().value == [(Windowed("a", 0, 9), 3), (Windowed("b", 7, 7), 1)]


def test_versions_have_the_time_of_their_partition(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    def row(key: bytes, timestamp: int, value: bytes | None) -> Row:
        return key + number(timestamp), b"\x00" if value is None else b"\x01" + value, timestamp

    topic = "app-versioned-changelog"
    write(client, topic, row(b"a", 100, b"old"), row(b"a", 200, b"new"), row(b"b", 150, None))
    write(client, topic, row(b"c", 900_000, b"far"), partition=1)
    store = opened("versioned")
    assert store.get("a").value == "new"
    assert store.get("b").value is None
    assert store.get_as_of("a", 150).value == ("old", 100)
    assert store.get_as_of("a", 50).value is None
    assert store.all().value == [("a", "new"), ("c", "far")]
    write(client, topic, (b"a" + number(100), None, 1_300), row(b"a", 1_300, None))
    store.catch_up()
    assert store.get("a").value is None
    assert store.get_as_of("a", 1_250).value == ("new", 200)
    assert store.get_as_of("a", 150).value is None


def test_a_global_table_is_read_from_its_source(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    assert changelog_topic(topology(), "app", "global") == "table"
    write(client, "table", (b"k", b'{"a": 1}', 5), (b"bad", b"{", 6), (b"gone", b"{}", 7), (b"gone", None, 8))
    store = opened("global", application="another")
    assert store.all().value == [("k", {"a": 1})]


def test_partitions_that_the_topic_of_a_global_table_gets_are_read(
    client: Client, opened: Callable[..., ReadOnlyStore], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The pipeline reads them, too, from its next micro-batch on."""
    monkeypatch.setattr(table, "LOOK_S", 3600.0)
    write(client, "growing", (b"k", b"1", 5))
    builder = StreamsBuilder()
    builder.global_table("growing", key=serdes.string, value=serdes.json, materialized=Materialized.as_("global"))
    address = client.address  # type: ignore[attr-defined]
    with ReadOnlyStore(builder.build(), "global", application_id="app", bootstrap_servers=address) as store:
        assert store.all().value == [("k", 1)]
        client.admin.create_partitions({"growing": 3})
        write(client, "growing", (b"new", b"2", 6), partition=2)
        store.catch_up()
        assert store.all().value == [("k", 1), ("new", 2)]


def test_only_what_is_committed_is_seen(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    topic = "tx-counts-changelog"
    write(client, topic, (b"a", number(1), 5))
    store = opened("counts", application="tx")
    batch = encode_batch([Record(offset=0, timestamp=6, key=b"a", value=number(2))])
    transaction = client.transaction("tx")
    transaction.init()
    transaction.add_partitions([(topic, 0)])
    transaction.produce([(topic, 0, batch, 1)])
    assert store.get("a").value == 1
    transaction.end(commit=True)
    store.catch_up()
    assert store.get("a").value == 2


def test_what_cannot_be_asked_is_said(client: Client, opened: Callable[..., ReadOnlyStore]) -> None:
    with pytest.raises(UsageError, match="no store 'nothing'; it has"):
        opened("nothing")
    with pytest.raises(UsageError, match="no changelog topic"):
        opened("unlogged")
    with pytest.raises(UsageError, match="this question is for window, session stores"):
        opened("counts").fetch("a", 5)
    with pytest.raises(DeadlineExceededError, match="Is the pipeline running"):
        opened("counts", application="nobody", timeout_ms=50).get("a")


def test_a_copy_outlives_the_log(tmp_path: Path) -> None:
    """The node goes away and comes back, at the same address and with the same data."""
    topic = "app-counts-changelog"
    with node(data=tmp_path) as log:
        address = log.bootstrap_servers
        with Client(address) as client:
            write(client, topic, (b"a", number(1), 5))
        settings = {"default.api.timeout.ms": "300"}
        store = ReadOnlyStore(topology(), "counts", application_id="app", bootstrap_servers=address, settings=settings)
        assert store.get("a").value == 1
    with store, InProcessNode.start(data=tmp_path, listen=address), Client(address) as client:
        write(client, topic, (b"a", number(2), 6))
        store.wait_for({0: 2})
        assert store.get("a").value == 2


@pytest.mark.parametrize(("name", "topic"), [("global", "table"), ("versioned", "limits-versioned-changelog")])
def test_copies_of_other_kinds_hold_no_more_either(
    client: Client, opened: Callable[..., ReadOnlyStore], name: str, topic: str
) -> None:
    write(client, topic, *((b"key %d" % n, b'"value"', n) for n in range(20)))
    with pytest.raises(StoreTooLargeError):
        opened(name, "limits", max_bytes=10 * ROW_BYTES).all()


@pytest.mark.parametrize("store", ["windows", "sessions"])
def test_rows_of_long_ago_stay_readable(store: str, caplog: pytest.LogCaptureFixture) -> None:
    """Retention goes by the wall clock, and a store's rows by the times of the records: history is read again, too."""
    place = plan(topology(), "app", {"in": 2, "versions": 2, "table": 2})
    topics = [topic for topic in place.internal_topics if topic.name == f"app-{store}-changelog"]
    with node() as log, Client(log.bootstrap_servers) as client:
        create_internal_topics(client, topics)
        key = b"a" + (struct.pack(">qi", 0, 0) if store == "windows" else struct.pack(">qq", 7, 7))
        write(client, f"app-{store}-changelog", (key, number(1), 7))
        log.advance(3_600_000)
        with ReadOnlyStore(topology(), store, application_id="app", bootstrap_servers=log.bootstrap_servers) as opened:
            assert [value for _, value in opened.all().value] == [1]
        create_internal_topics(client, topics, has_state=True)
        assert caplog.messages == []
        client.delete_topics([topics[0].name])
        create_internal_topics(client, topics, has_state=True)
        assert "or it was deleted" in caplog.text
