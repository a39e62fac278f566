"""A page of a log decodes no more of a batch than it shows: a megabyte may unpack to millions of records."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from suiro.client import Client, NewTopic
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
