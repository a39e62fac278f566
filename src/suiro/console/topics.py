"""The cluster, and its topics: listed, described, created, altered, emptied, deleted."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from heapq import nlargest
from typing import Any

from suiro.client import EARLIEST, LATEST, Broker, Client, ConfigEntry, NewTopic, TopicInfo
from suiro.errors import RefusedError, UnknownTopicError, UsageError
from suiro.foundation.types import TopicPartition

DEFAULT = -1
"""The broker's default number of partitions or replicas."""
SUGGESTED_FROM = 20
"""The number of topics that are compared with a misspelt name: a comparison of 10,000 takes half a second."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRow:
    name: str
    partitions: int
    replication_factor: int
    internal: bool
    under_replicated: int
    without_leader: int


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRow:
    partition: int
    leader: int
    replicas: tuple[int, ...]
    in_sync: tuple[int, ...]
    first_offset: int | None  # None: the partition has no leader to ask
    end_offset: int | None
    size_bytes: int | None  # None: this user may not ask for it


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicDetails:
    name: str
    topic_id: str | None
    internal: bool
    partitions: tuple[PartitionRow, ...]
    configs: tuple[ConfigEntry, ...] | None  # None: this user may not see them


def list_topics(client: Client, *, internal: bool = False) -> tuple[TopicRow, ...]:
    """Returns the topics by name. `internal` adds those of the brokers themselves."""
    found = client.metadata()
    return tuple(TopicRow(**row_fields(found[name])) for name in sorted(found) if internal or not found[name].internal)


def row_fields(topic: TopicInfo) -> dict[str, Any]:
    """Returns the fields of a `TopicRow`."""
    return {
        "name": topic.name,
        "partitions": len(topic.partitions),
        "replication_factor": len(topic.partitions[0].replicas) if topic.partitions else 0,
        "internal": topic.internal,
        "under_replicated": sum(len(one.in_sync) < len(one.replicas) for one in topic.partitions),
        "without_leader": sum(one.leader < 0 for one in topic.partitions),
    }


def topic_info(client: Client, name: str) -> TopicInfo:
    """Raises `UnknownTopicError`, which suggests topics with similar names."""
    found = client.metadata([name]).get(name)
    if found is not None:
        return found
    likeliest = nlargest(SUGGESTED_FROM, client.metadata(), key=lambda other: _in_common(name, other))
    near = get_close_matches(name, likeliest, n=3)
    hint = f"did you mean {' or '.join(repr(one) for one in near)}?" if near else "`suiro topic list` names all"
    raise UnknownTopicError(f"topic {name!r} does not exist; {hint}", "UNKNOWN_TOPIC_OR_PARTITION")


def _in_common(name: str, other: str) -> int:
    """The number of characters that are at the same place of both, seen from the beginning and from the end."""
    return sum(map(str.__eq__, name, other)) + sum(map(str.__eq__, reversed(name), reversed(other)))


def require_partition(topic: str, partition: int, count: int) -> None:
    """Raises `UsageError` if a topic with `count` partitions does not have this one."""
    if not 0 <= partition < count:
        raise UsageError(f"topic {topic!r} has partitions 0 to {count - 1}, not {partition}")


def ranges_of(
    client: Client, places: Iterable[TopicPartition], *, leader_wait_ms: int | None = None
) -> dict[TopicPartition, tuple[int, int]]:
    """Returns the first offset and the end of each partition. All partitions must have a leader."""
    asked = list(places)
    firsts = client.list_offsets(dict.fromkeys(asked, EARLIEST), leader_wait_ms=leader_wait_ms)
    ends = client.list_offsets(dict.fromkeys(asked, LATEST), leader_wait_ms=leader_wait_ms)
    return {place: (firsts[place].offset, ends[place].offset) for place in asked}


def describe_topic(client: Client, name: str) -> TopicDetails:
    info = topic_info(client, name)
    ranges = ranges_of(client, [(name, one.partition) for one in info.partitions if one.leader >= 0])
    try:
        sizes = client.admin.partition_sizes([name])
    except RefusedError:
        sizes = {}
    try:
        configs: tuple[ConfigEntry, ...] | None = client.admin.config_entries("topic", [name])[name]
    except RefusedError:
        configs = None
    return TopicDetails(
        name=name,
        topic_id=None if info.topic_id is None else str(info.topic_id),
        internal=info.internal,
        partitions=tuple(
            PartitionRow(
                partition=one.partition,
                leader=one.leader,
                replicas=one.replicas,
                in_sync=one.in_sync,
                first_offset=ranges.get((name, one.partition), (None, None))[0],
                end_offset=ranges.get((name, one.partition), (None, None))[1],
                size_bytes=sizes.get((name, one.partition)),
            )
            for one in info.partitions
        ),
        configs=configs,
    )


def create_topic(
    client: Client,
    name: str,
    *,
    partitions: int = DEFAULT,
    replication_factor: int = DEFAULT,
    configs: Mapping[str, str] | None = None,
    if_not_exists: bool = False,
) -> bool:
    """Returns whether it created the topic; False if it existed and `if_not_exists` allows that. Raises
    `TopicExistsError`."""
    if if_not_exists and name in client.metadata([name]):
        return False
    topic = NewTopic(name, partitions, replication_factor, configs or {})
    client.create_topics([topic], exist_ok=if_not_exists)
    return True


def alter_topic(
    client: Client,
    name: str,
    *,
    partitions: int | None = None,
    configs: Mapping[str, str | None] | None = None,
    validate_only: bool = False,
) -> None:
    """Adds partitions and changes settings; None removes a setting. Settings come first, because they can be undone."""
    info = topic_info(client, name)
    if partitions is not None and partitions < len(info.partitions):
        raise UsageError(
            f"topic {name!r} has {len(info.partitions)} partitions, and a topic cannot get fewer; create another "
            "topic and copy the records"
        )
    if configs:
        client.admin.alter_configs("topic", {name: configs}, validate_only=validate_only)
    if partitions is not None and partitions > len(info.partitions):
        client.admin.create_partitions({name: partitions}, validate_only=validate_only)


def delete_topics(client: Client, names: Sequence[str], *, if_exists: bool = False) -> None:
    """Checks that all topics exist before it deletes the first."""
    if not if_exists:
        for name in names:
            topic_info(client, name)
    client.delete_topics(names, missing_ok=if_exists)


def delete_records(client: Client, name: str, before: Mapping[int, int] | None = None) -> dict[int, int]:
    """Deletes the records before an offset of each partition; None: all records. Returns the new first offsets."""
    count = len(topic_info(client, name).partitions)
    if before is None:
        before = dict.fromkeys(range(count), -1)
    for partition, offset in before.items():
        require_partition(name, partition, count)
        if not -1 <= offset < 1 << 63:
            raise UsageError(f"{offset} is not an offset")
    found = client.admin.delete_records({(name, number): offset for number, offset in before.items()})
    return {partition: found[name, partition] for partition in sorted(before)}


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterSummary:
    cluster_id: str
    controller: int
    brokers: tuple[Broker, ...]
    topics: int  # without internal ones
    partitions: int
    under_replicated: int  # partitions with fewer replicas in sync than they have
    without_leader: int
    groups: int


def describe_cluster(client: Client) -> ClusterSummary:
    described = client.admin.describe_cluster()
    topics = [topic for topic in client.metadata().values() if not topic.internal]
    partitions = [partition for topic in topics for partition in topic.partitions]
    return ClusterSummary(
        cluster_id=described.cluster_id,
        controller=described.controller,
        brokers=described.brokers,
        topics=len(topics),
        partitions=len(partitions),
        under_replicated=sum(len(one.in_sync) < len(one.replicas) for one in partitions),
        without_leader=sum(one.leader < 0 for one in partitions),
        groups=len(client.admin.list_groups()),
    )
