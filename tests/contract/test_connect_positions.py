"""Positions of sources: read back as committed, by whoever fenced the writer before."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from support.waiting import wait_until

from suiro.client import Client, NewTopic, TransactionalBatch
from suiro.connect import positions
from suiro.connect.positions import POSITIONS_TOPIC, part_record, position_record, read_parts, read_position
from suiro.errors import ConfigError, DataLossError, FencedError, UsageError
from suiro.protocol.records import Record, encode_batch
from suiro.topic_table import reading


def _write(client: Client, name: str, records: list[tuple[bytes, bytes | None]], *, commit: bool = True) -> None:
    producer = client.transaction(positions.transactional_id(name))
    producer.init()
    partition = positions.position_partition(client, name)
    producer.add_partitions([(POSITIONS_TOPIC, partition)])
    producer.produce([_batch(partition, records)])
    if commit:
        producer.end()
    producer.init()  # ends what is open, and returns only once every marker is written


def _batch(partition: int, records: list[tuple[bytes, bytes | None]]) -> TransactionalBatch:
    made = [Record(offset=at, timestamp=1, key=key, value=value) for at, (key, value) in enumerate(records)]
    return TransactionalBatch(POSITIONS_TOPIC, partition, encode_batch(made), len(made))


@pytest.fixture(params=["one by one", "as columns"])
def both_ways(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "as columns":
        monkeypatch.setattr(reading, "FEW_BYTES", -1)


@pytest.mark.usefixtures("both_ways")
def test_the_last_committed_position_is_read(client: Client, unique: str) -> None:
    assert read_position(client, unique) is None
    _write(client, unique, [position_record(unique, {"line": 1})])
    _write(client, unique, [position_record(unique, {"line": 2, "datei": "ü"})])
    _write(client, unique, [position_record(unique, {"line": 3})], commit=False)
    assert read_position(client, unique) == {"line": 2, "datei": "ü"}
    _write(client, unique, [position_record(unique, None)])
    assert read_position(client, unique) is None


@pytest.mark.usefixtures("both_ways")
def test_a_position_far_back_is_found(client: Client, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(positions, "_FIRST_LOOK", 3)
    _write(client, unique, [position_record(unique, {"at": 7})])
    for _ in range(20):  # written by another of the same partition
        _write(client, unique, [part_record(unique, "other", 0)])
    assert read_position(client, unique) == {"at": 7}


def test_a_large_position_is_read(client: Client, unique: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reading, "FETCH_BYTES", 1_000)
    large = {"files": ["x" * 100] * 1_000}
    _write(client, unique, [position_record(unique, large)])
    assert read_position(client, unique) == large


def test_parts_are_read_together_and_belong_to_one_name(client: Client, unique: str) -> None:
    longer = f"{unique}-2"
    _write(client, longer, [part_record(longer, 0, "not mine")])
    _write(client, unique, [part_record(unique, 0, "a"), part_record(unique, 1, "b")])
    _write(client, unique, [part_record(unique, 0, "c"), part_record(unique, 1, None)])
    assert read_parts(client, unique) == {"0": "c"}
    assert read_position(client, unique) is None


@pytest.mark.usefixtures("both_ways")
def test_who_reads_after_a_fence_cannot_be_overtaken(client: Client, unique: str) -> None:
    partition = positions.position_partition(client, unique)
    old = client.transaction(positions.transactional_id(unique))
    old.init()
    old.add_partitions([(POSITIONS_TOPIC, partition)])
    old.produce([_batch(partition, [position_record(unique, {"by": "old"})])])
    client.transaction(positions.transactional_id(unique)).init()
    assert read_position(client, unique) is None
    with pytest.raises(FencedError):
        old.end()
    assert read_position(client, unique) is None


def test_what_is_not_a_position_is_said(client: Client, unique: str) -> None:
    _write(client, unique, [(unique.encode(), b"[1]")])
    with pytest.raises(DataLossError, match=f"last position of '{unique}'"):
        read_position(client, unique)


@pytest.mark.parametrize("name", ["", "a#b"])
def test_a_name_that_cannot_be_a_key(name: str) -> None:
    with pytest.raises(UsageError, match="no '#'"):
        position_record(name, {})


def test_the_topic_is_compacted(client: Client) -> None:
    positions.create_positions_topic(client)
    found: Mapping[str, str | None] = client.describe_configs([POSITIONS_TOPIC])[POSITIONS_TOPIC]
    assert found["cleanup.policy"] == "compact"


@pytest.mark.parametrize(("policy", "other"), [("delete", "compact"), ("compact,delete", "")])
def test_a_topic_in_which_positions_expire_is_refused(
    client: Client, unique: str, monkeypatch: pytest.MonkeyPatch, policy: str, other: str
) -> None:
    """A node gives a topic no policy if a setting of it cannot be read. Nothing expires then."""
    monkeypatch.setattr(positions, "POSITIONS_TOPIC", unique)
    client.create_topics([NewTopic(unique, 1, configs={"cleanup.policy": policy})])
    with pytest.raises(ConfigError, match=f"cleanup.policy={policy}: positions in it would expire"):
        positions.create_positions_topic(client)
    client.admin.alter_configs("topic", {unique: {"cleanup.policy": other}})
    wait_until(lambda: _is_accepted(client), what="the altered topic")


def _is_accepted(client: Client) -> bool:
    try:
        positions.create_positions_topic(client)
    except ConfigError:  # a broker that has not heard of it yet
        return False
    return True
