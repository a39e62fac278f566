"""A page of a log decodes no more of a batch than it shows: a megabyte may unpack to millions of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from suiro.client import Client, NewTopic
from suiro.console import pages
from suiro.console.pages import read_page
from suiro.protocol import records as protocol_records
from suiro.protocol.records import Record, encode_batch


@pytest.fixture(scope="module")
def client(suiro_node: Any) -> Iterator[Client]:
    with Client(suiro_node.bootstrap_servers) as made:
        yield made


def test_a_page_of_one_large_batch(client: Client, monkeypatch: pytest.MonkeyPatch) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    client.create_topics([NewTopic(topic, 1, configs={"retention.ms": "-1"})])
    records = [Record(offset=at, timestamp=at, key=None, value=b"%d" % at) for at in range(3_000)]
    client.produce({(topic, 0): encode_batch(records)})
    decoded = 0
    read_one = protocol_records._get_record

    def counted(*arguments: Any) -> Record:
        nonlocal decoded
        decoded += 1
        return read_one(*arguments)

    monkeypatch.setattr(protocol_records, "_get_record", counted)
    ranges = {0: (0, 3_000)}
    page = read_page(client, topic, positions={0: 0}, ranges=ranges, direction="forward", limit=10)
    assert [one.record.offset for one in page.entries] == list(range(10))
    assert (page.before, page.after, decoded) == ({0: 0}, {0: 10}, 10)
    decoded = 0
    page = read_page(client, topic, positions={0: 1_000}, ranges=ranges, direction="backward", limit=10)
    assert [one.record.offset for one in page.entries] == list(range(990, 1_000))
    assert (page.before, page.after, decoded) == ({0: 990}, {0: 1_000}, 1_001)


@pytest.fixture
def small_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages, "PAGE_BYTES", 64 * 1024)
    monkeypatch.setattr(pages, "FETCH_BYTES", 4 * 1024)


def put(client: Client, partitions: int, count: int, size: int, compression: int = 0) -> str:
    """A topic with so many records in each partition, each in a batch of its own."""
    topic = f"t-{uuid4().hex[:12]}"
    client.create_topics([NewTopic(topic, partitions, configs={"retention.ms": "-1"})])
    for partition in range(partitions):
        for at in range(count):
            record = Record(offset=0, timestamp=at, key=None, value=bytes(size))
            client.produce({(topic, partition): encode_batch([record], compression=compression)})
    return topic


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("size", [3_000, 50_000, 100_000])
def test_the_newest_records_are_shown_however_large_they_are(client: Client, size: int) -> None:
    topic = put(client, 1, 100, size)
    seen: list[int] = []
    position = 100
    while position:
        page = read_page(client, topic, positions={0: position}, ranges={0: (0, 100)}, direction="backward", limit=100)
        assert page.entries
        seen = [one.record.offset for one in page.entries] + seen
        position = page.before[0]
    assert seen == list(range(100))


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_partition_of_large_records_leaves_room_for_the_others(client: Client, direction: Any) -> None:
    topic = put(client, 2, 40, 5_000)
    positions = dict.fromkeys((0, 1), 0 if direction == "forward" else 40)
    page = read_page(
        client, topic, positions=positions, ranges={0: (0, 40), 1: (0, 40)}, direction=direction, limit=100
    )
    assert {one.record.partition for one in page.entries} == {0, 1}


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_what_records_unpack_to_counts(client: Client, direction: Any) -> None:
    """A kilobyte of zeros may be a megabyte, and a page holds all that it shows."""
    topic = put(client, 1, 40, 40_000, compression=4)
    start = 0 if direction == "forward" else 40
    page = read_page(client, topic, positions={0: start}, ranges={0: (0, 40)}, direction=direction, limit=100)
    held = sum(len(one.record.value or b"") for one in page.entries)
    assert 0 < held <= pages.PAGE_BYTES + 40_000


@pytest.mark.usefixtures("small_pages")
@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_many_partitions_share_what_a_page_may_hold(client: Client, direction: Any) -> None:
    count = 40
    topic = put(client, count, 6, 1_000)
    positions = dict.fromkeys(range(count), 0 if direction == "forward" else 6)
    page = read_page(
        client,
        topic,
        positions=positions,
        ranges=dict.fromkeys(range(count), (0, 6)),
        direction=direction,
        limit=count * 6,
    )
    assert {one.record.partition for one in page.entries} == set(range(count))
    held = sum(len(one.record.value or b"") for one in page.entries)
    assert held <= pages.PAGE_BYTES + count * 1_000
