"""The input of a view as it is read for an explanation: from a real log, up to a cut, in the pipeline's order."""

from __future__ import annotations

import json
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from suiro.client import Client, NewTopic
from suiro.errors import DataLossError, UsageError
from suiro.lineage import Inputs
from suiro.protocol.records import Record, encode_batch
from suiro.streams import StreamsBuilder, serdes
from suiro.views.analysis.compare.values import Comparator
from suiro.views.analysis.explain.replay import Side
from suiro.views.analysis.explain.rows import explain
from suiro.views.definition import RowCodec, topology_of, view


def produce(client: Client, topic: str, partition: int, *records: tuple[int, str, Any]) -> None:
    batch = [
        Record(
            offset=n,
            timestamp=time,
            key=key.encode(),
            value=json.dumps(value).encode(),
            headers=(("h", b"1"),),
        )
        for n, (time, key, value) in enumerate(records)
    ]
    client.produce({(topic, partition): encode_batch(batch)})


def version(number: int, topic: str, *, keeps_all: bool) -> Side:
    @view("counts", key="carrier")
    def counts(builder: StreamsBuilder) -> Any:
        names = builder.global_table(f"{topic}.names", key=serdes.string, value=serdes.json)
        flights = builder.stream(topic, key=serdes.string, value=serdes.json)
        if not keeps_all:
            flights = flights.filter(lambda key, value: value["delay"] is not None)
        named = flights.left_join(names, lambda key, value: value["carrier"], lambda value, name: value | {"is": name})
        return named.group_by(lambda key, value: value["carrier"]).aggregate(
            list, lambda key, value, row: [*row, [value["delay"], value["is"]]]
        )

    topology = topology_of(counts.definition, f"{topic}.v{number}")  # type: ignore[attr-defined]
    return Side(version=number, topology=topology, codec=RowCodec(topology, ("carrier",)))


@pytest.fixture
def flights(suiro_node: Any) -> Any:
    topic = f"explain.{uuid4().hex[:8]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 2), NewTopic(f"{topic}.names", 1)])
        produce(
            client,
            topic,
            0,
            (10, "a", {"carrier": "AA", "delay": 1}),
            (40, "b", {"carrier": "AA", "delay": 4}),
        )
        produce(
            client,
            topic,
            1,
            (20, "c", {"carrier": "AA", "delay": None}),
            (30, "d", {"carrier": "UA", "delay": 3}),
        )
        produce(
            client,
            topic,
            1,
            (35, "e", {"carrier": "AA", "delay": 9}),
            (50, "f", {"carrier": "AA", "delay": 5}),
        )
        produce(client, f"{topic}.names", 0, (99, "AA", "American"))
        yield client, topic


ENDS = {0: 2, 1: 3}


def test_records_of_several_partitions_come_by_time_and_only_up_to_the_cut(flights: Any) -> None:
    client, topic = flights
    ends = {**{(topic, partition): end for partition, end in ENDS.items()}, (f"{topic}.names", 0): 1}
    read = list(Inputs(client, ends).read(version(1, topic, keeps_all=True).topology))
    assert [(record.topic, record.timestamp) for record in read] == [
        (f"{topic}.names", 99),
        *((topic, time) for time in (10, 20, 30, 35, 40)),
    ]
    assert tuple(read[1].headers) == (("h", b"1"),)
    assert [record.offset for record in read if record.partition == 1] == [0, 1, 2]


def test_a_row_is_explained_from_the_log(flights: Any) -> None:
    client, topic = flights
    ends = {**{(topic, partition): end for partition, end in ENDS.items()}, (f"{topic}.names", 0): 1}
    sides = version(1, topic, keeps_all=True), version(2, topic, keeps_all=False)
    (found,) = explain([("AA",)], *sides, Inputs(client, ends), Comparator())
    assert found.is_explained
    american = [[delay, "American"] for delay in (1, None, 9, 4)]
    assert found.old_row == {"value": american}
    assert found.new_row == {"value": [each for each in american if each[0] is not None]}
    assert found.parting.place == (topic, 1, 0)
    assert set(found.named) == {
        (f"{topic}.names", 0, 0),
        (topic, 0, 0),
        (topic, 0, 1),
        (topic, 1, 0),
        (topic, 1, 2),
    }
    assert found.read == 1  # the carrier's name


def test_more_records_than_memory_holds_are_not_explained(flights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """The process would be killed, and in a container the host with it."""
    monkeypatch.setattr("suiro.views.analysis.explain.replay.KEPT_BYTES_MAX", 1_500)
    client, topic = flights
    sides = version(1, topic, keeps_all=True), version(2, topic, keeps_all=False)
    ends = {**{(topic, partition): end for partition, end in ENDS.items()}, (f"{topic}.names", 0): 1}
    with pytest.raises(UsageError, match="more than 2 records may belong to these rows of version 1"):
        explain([("AA",)], *sides, Inputs(client, ends), Comparator())


def test_headers_count_among_what_memory_holds(flights: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("suiro.views.analysis.explain.replay.KEPT_BYTES_MAX", 10_000)
    client, topic = flights
    value = json.dumps({"carrier": "AA", "delay": 1}).encode()
    large = Record(offset=0, timestamp=60, key=b"g", value=value, headers=(("h", bytes(10_000)),))
    client.produce({(topic, 0): encode_batch([large])})
    sides = version(1, topic, keeps_all=True), version(2, topic, keeps_all=False)
    ends = {(topic, 0): 3, (topic, 1): 3, (f"{topic}.names", 0): 1}
    with pytest.raises(UsageError, match="records may belong to these rows of version 1"):
        explain([("AA",)], *sides, Inputs(client, ends), Comparator())


def test_what_retention_has_taken_cannot_be_explained(suiro_node: Any) -> None:
    topic = f"explain.{uuid4().hex[:8]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1), NewTopic(f"{topic}.names", 1)])
        produce(
            client,
            topic,
            0,
            (10, "a", {"carrier": "AA", "delay": 1}),
            (40, "b", {"carrier": "AA", "delay": 4}),
        )
        admin = AdminClient({"bootstrap.servers": suiro_node.bootstrap_servers})
        for future in admin.delete_records([TopicPartition(topic, 0, 1)]).values():
            future.result()
        with pytest.raises(DataLossError, match=f"{topic}-0 begins at offset 1"):
            explain(
                [("AA",)],
                version(1, topic, keeps_all=True),
                version(2, topic, keeps_all=False),
                Inputs(client, {(topic, 0): 2}),
                Comparator(),
            )
