"""Keeps with a source what waits for it and what is noted of it, when its generated name changes.

A name such as KSTREAM-SOURCE-0000000002 moves when operators without state come or go above it, which they may. A topic
has one source, so it tells which one is meant.
"""

from __future__ import annotations

from suiro.streams.errors import TopologyError
from suiro.streams.stores import OrderedMap
from suiro.streams.times import keep_number, number_at
from suiro.streams.topology.nodes import Repartition, Source
from suiro.streams.topology.topology import SubTopology
from suiro.streams_spark.buffered_records import (
    BUFFERED,
    buffered_prefix,
    number_of,
    packed_number,
    queue_of_prefix,
)
from suiro.streams_spark.notes import NOTES, PARTITION_TIME, REACHED, TICK, partition_time_key
from suiro.streams_spark.plan import Plan
from suiro.streams_spark.state_log import TaskState


def follow_sources(plan: Plan, sub: SubTopology, state: TaskState) -> None:
    """Raises `TopologyError` where records wait for an input that is not there any more."""
    inputs = {node.name for node in sub.inputs}
    sources = {
        topic: node.name for node in sub.inputs if isinstance(node.operator, Source) for topic in node.operator.topics
    }
    tables = {topic: readers[0][1].name for topic, readers in plan.global_inputs.items()}
    cuts = {node.name for node in sub.inputs if isinstance(node.operator, Repartition)}
    buffered, notes = state.map(BUFFERED), state.map(NOTES)

    def name_now(group: str, name: str) -> str:
        # What comes over a repartition may come of a topic, too: of one that another sub-topology reads.
        return name if name in cuts else sources.get(group, name)

    moved: dict[bytes, list[bytes | None]] = {}
    for key in buffered.keys():  # noqa: SIM118 - in their order
        input_partition, name = queue_of_prefix(number_of(key)[0])
        now = name_now(input_partition.group, name)
        if now not in inputs:
            raise TopologyError(
                f"records of {input_partition.name} wait for {name}, which sub-topology {sub.number} does not have any "
                "more. Put it back, under this name, until they are processed; or move the state away and rebuild "
                "(rebuild=True, suiro run --rebuild)"
            )
        if now != name:
            moved.setdefault(buffered_prefix(input_partition, now), []).append(buffered.get(key))
            buffered.put(key, None)
    for prefix, rows in moved.items():
        for number, waiting in enumerate(rows):
            buffered.put(prefix + packed_number(number), waiting)
    for kind in (TICK, REACHED):
        for key, _ in notes.prefix(kind):
            input_partition, name = queue_of_prefix(key.removeprefix(kind))
            now = name_now(input_partition.group, name)
            _move_time(notes, key, kind + buffered_prefix(input_partition, now) if now in inputs else None)
    for key, _ in notes.prefix(PARTITION_TIME):
        name, topic, partition = key.removeprefix(PARTITION_TIME).decode().split("\0")
        now = (sources | tables).get(topic, name)
        _move_time(notes, key, partition_time_key(now, topic, partition))


def _move_time(notes: OrderedMap, key: bytes, to: bytes | None) -> None:
    """None: nobody needs it."""
    if to != key:
        time = number_at(notes, key)
        notes.put(key, None)
        if to is not None:
            keep_number(notes, to, time)
