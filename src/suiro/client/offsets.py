"""Offsets: of partitions (earliest, latest, by time), and committed by groups."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

from suiro.client.cluster import GROUP, Cluster
from suiro.client.connection import Connection, each_partition
from suiro.client.error_codes import error_of, raise_for
from suiro.client.leaders import Answered, ask_leaders, by_topic
from suiro.client.settings import OFFSET_METADATA_MAX_CHARS
from suiro.errors import UsageError
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

LATEST = -1
EARLIEST = -2
MAX_TIMESTAMP = -3


@dataclass(frozen=True, slots=True, kw_only=True)
class ListedOffset:
    offset: int  # -1: no record at or after the timestamp asked for
    timestamp: int  # the record's, in ms; -1 for EARLIEST and LATEST
    leader_epoch: int


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    offset: int
    leader_epoch: int
    metadata: str


class OffsetRequests:
    """A part of `Client`."""

    _cluster: Cluster

    def list_offsets(
        self,
        wanted: Mapping[TopicPartition, int],
        *,
        read_committed: bool = False,
        timeout_ms: int | None = None,
        leader_wait_ms: int | None = None,
    ) -> dict[TopicPartition, ListedOffset]:
        """Of each partition: EARLIEST, LATEST, or the first record at or after a timestamp in ms.

        With `read_committed`, LATEST is the last stable offset. `leader_wait_ms` is as in `fetch`.
        """

        def send(connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int) -> None:
            request = connection.request(
                "list_offsets",
                7 if MAX_TIMESTAMP in items.values() else 2,
                7,
                replica_id=-1,
                isolation_level=1 if read_committed else 0,
                topics=[
                    {
                        "name": topic,
                        "partitions": [
                            {"partition_index": partition, "current_leader_epoch": -1, "timestamp": value}
                            for partition, value in partitions
                        ],
                    }
                    for topic, partitions in by_topic(items).items()
                ],
            )
            connection.send(request, deadline_ms=deadline_ms)

        def receive(
            connection: Connection, items: Mapping[TopicPartition, int], deadline_ms: int
        ) -> Answered[ListedOffset]:
            for place, item in each_partition(connection.receive(deadline_ms=deadline_ms).topics):
                what = f"list offsets of {place[0]}-{place[1]}"
                if items.get(place) in (EARLIEST, LATEST) and item.offset < 0 and item.error_code is ErrorCode.none:
                    raise connection.failure(what, f"gave offset {item.offset}")
                epoch = getattr(item, "leader_epoch", -1)
                listed = ListedOffset(offset=item.offset, timestamp=item.timestamp, leader_epoch=epoch)
                yield place, error_of(item.error_code, what) or listed

        return ask_leaders(
            self._cluster,
            "list offsets",
            wanted,
            send=send,
            receive=receive,
            timeout_ms=timeout_ms,
            leader_wait_ms=leader_wait_ms,
        )

    def offset_fetch(
        self,
        group: str,
        partitions: Iterable[TopicPartition] | None = None,
        *,
        require_stable: bool = True,
        timeout_ms: int | None = None,
    ) -> dict[TopicPartition, CommittedOffset | None]:
        """Returns the committed offsets of a group, or None for a partition. Waits for pending transactions."""
        places = None if partitions is None else dict.fromkeys(partitions)
        wanted = None if places is None else by_topic(places)
        what = f"fetch the offsets of group {group!r}"

        def once(connection: Connection, deadline_ms: int) -> dict[TopicPartition, CommittedOffset | None]:
            topics = None
            if wanted is not None:
                topics = [
                    {"name": topic, "partition_indexes": [partition for partition, _ in items]}
                    for topic, items in wanted.items()
                ]
            lowest = 7 if require_stable else 2
            request = connection.request(
                "offset_fetch", lowest, 7, group_id=group, topics=topics, require_stable=require_stable
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            raise_for(response.error_code, what)
            found: dict[TopicPartition, CommittedOffset | None] = {}
            answers = connection.matched(what, places, each_partition(response.topics))
            for (topic, partition), item in answers.items():
                raise_for(item.error_code, f"fetch the offset of group {group!r} in {topic}-{partition}")
                found[topic, partition] = _committed(item)
            return found

        return self._cluster.at_coordinator(GROUP, group, what, once, timeout_ms=timeout_ms)

    def offset_commit(
        self,
        group: str,
        offsets: Mapping[TopicPartition, tuple[int, str]],
        *,
        timeout_ms: int | None = None,
    ) -> None:
        """Commits (offset, metadata) of each partition, without being a member of the group."""
        check_metadata(offsets)
        what = f"commit offsets of group {group!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            request = connection.request(
                "offset_commit",
                2,
                8,
                group_id=group,
                generation_id_or_member_epoch=-1,
                member_id="",
                group_instance_id=None,
                retention_time=timedelta(milliseconds=-1),
                topics=topics_to_commit(offsets),
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            answers = connection.matched(what, offsets, each_partition(response.topics))
            for (topic, partition), item in answers.items():
                raise_for(item.error_code, f"commit the offset of group {group!r} in {topic}-{partition}")

        self._cluster.at_coordinator(GROUP, group, what, once, timeout_ms=timeout_ms)


def _committed(item: Any) -> CommittedOffset | None:
    if item.committed_offset < 0:
        return None
    return CommittedOffset(
        offset=item.committed_offset,
        leader_epoch=getattr(item, "committed_leader_epoch", -1),
        metadata=item.metadata or "",
    )


def topics_to_commit(offsets: Mapping[TopicPartition, tuple[int, str]]) -> list[dict[str, Any]]:
    """Returns the topics of an OffsetCommit or TxnOffsetCommit request."""
    return [
        {
            "name": topic,
            "partitions": [
                {
                    "partition_index": partition,
                    "committed_offset": offset,
                    "committed_leader_epoch": -1,
                    "committed_metadata": metadata,
                }
                for partition, (offset, metadata) in items
            ],
        }
        for topic, items in by_topic(offsets).items()
    ]


def check_metadata(offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
    for (topic, partition), (_, metadata) in offsets.items():
        if len(metadata) > OFFSET_METADATA_MAX_CHARS:
            raise UsageError(
                f"the metadata of the offset in {topic}-{partition} has {len(metadata)} characters, "
                f"brokers take {OFFSET_METADATA_MAX_CHARS}"
            )
