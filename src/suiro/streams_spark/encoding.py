"""Encodes blocks of records, for the topic of a sink or for the task after a repartition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from suiro.errors import UnknownTopicError
from suiro.protocol.murmur2 import partition_for_key
from suiro.streams.blocks import Block, Parcel
from suiro.streams.operators.functions import partition_of, topic_of
from suiro.streams.records import Windowed
from suiro.streams.serdes import natural
from suiro.streams.serdes.block_forms import Failed, encode_rows
from suiro.streams.sources import DeadLetter
from suiro.streams.topology.nodes import Repartition, Sink
from suiro.streams_spark.changes import write_changes

Failing = Callable[[int, Exception], None]
"""Is told of a row that cannot be encoded; raises where the policy is to fail."""


def encoded_for(sink: Sink, block: Block, failed: Failing, partition_count: Callable[[str], int]) -> list[Parcel]:
    """One parcel for each topic."""
    if isinstance(sink.topic, str):
        return [encoded(sink, sink.topic, block, None, failed, partition_count)]
    rows: dict[str, list[int]] = {}
    for row in range(len(block)):
        try:
            topic = topic_of(sink, block.record(row))
        except Exception as error:  # noqa: BLE001 - a user's function raises anything
            failed(row, error)
            continue
        rows.setdefault(topic, []).append(row)
    return [encoded(sink, topic, block, own, failed, partition_count) for topic, own in rows.items()]


def encoded(
    operator: Sink | Repartition,
    topic: str,
    block: Block,
    rows: list[int] | None,
    failed: Failing,
    partition_count: Callable[[str], int],
) -> Parcel:
    """`rows`: those that go to this topic; None: all."""
    own_keys, own_values = _at(block.keys, rows), _at(block.values, rows)
    keys, wrong = encode_rows(operator.key or natural, own_keys, topic)
    partitions = _partitions(operator, topic, own_keys, own_values, wrong, partition_count)
    is_change = isinstance(operator, Repartition) and operator.is_change
    values, wrong_values = (write_changes if is_change else encode_rows)(operator.value or natural, own_values, topic)
    wrong = wrong_values | wrong  # of a record, the key is written first
    sound: list[int] | None = None
    at = rows
    if wrong:
        for row in sorted(wrong):
            failed(row if rows is None else rows[row], wrong[row])
        sound = [row for row in range(len(keys)) if row not in wrong]
        at = sound if rows is None else [rows[row] for row in sound]
    return Parcel(
        topic=topic,
        keys=_at(keys, sound),
        values=_at(values, sound),
        timestamps=_at(block.timestamps, at),
        headers=None if block.headers is None else _at(block.headers, at),
        partitions=None if partitions is None else _at(partitions, sound),
        rows=at,
    )


def _partitions(
    operator: Sink | Repartition,
    topic: str,
    keys: Sequence[Any],
    values: Sequence[Any],
    wrong: Failed,
    partition_count: Callable[[str], int],
) -> list[int | None] | None:
    """None: where their keys belong. Adds to `wrong`."""
    inner: Any = getattr(operator.key, "inner", None) if isinstance(operator, Sink) else None
    partitioner = operator.partitioner
    if partitioner is None and (inner is None or not any(isinstance(key, Windowed) for key in keys)):
        return None
    try:
        count = partition_count(topic)
    except UnknownTopicError as error:  # any other error is the log's, not the records'
        if isinstance(operator.topic, str):
            raise  # the records did not choose it: it was deleted since the start
        for row in range(len(keys)):
            wrong.setdefault(row, error)
        return [None] * len(keys)
    if partitioner is not None:
        found: list[int | None] = []
        for row, (key, value) in enumerate(zip(keys, values, strict=True)):
            chosen = None
            if row not in wrong:
                try:
                    chosen = partitioner(topic, key, value, count)
                    chosen = None if chosen is None else partition_of(chosen, topic, count)
                except Exception as error:  # noqa: BLE001 - a user's function raises anything
                    wrong[row] = error
            found.append(chosen)
        return found
    # All windows of a key belong into one partition, as Kafka Streams does it.
    plain, _ = encode_rows(inner, [key.key if isinstance(key, Windowed) else None for key in keys], topic)
    return [None if data is None else partition_for_key(data, count) for data in plain]


def parcel_of(letter: DeadLetter) -> Parcel:
    return Parcel(
        topic=letter.topic,
        keys=[letter.key],
        values=[letter.value],
        timestamps=[letter.timestamp],
        headers=[letter.headers] if letter.headers else None,
    )


def _at(items: Sequence[Any], rows: Sequence[int] | None) -> Sequence[Any]:
    return items if rows is None else [items[row] for row in rows]
