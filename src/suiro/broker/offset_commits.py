"""What OffsetCommit and TxnOffsetCommit share: which offsets of a request may be committed, and committing them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.groups.records import OffsetValue
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.broker import Broker


def commit_offsets(
    broker: Broker, group_id: str, topics: Any, *, producer: tuple[int, int] | None = None
) -> dict[tuple[str, int], ErrorCode]:
    """Commit the offsets of a request's topics. Returns the error code of each partition."""
    now = broker.clock.wall_ms()
    codes: dict[tuple[str, int], ErrorCode] = {}
    accepted: dict[tuple[str, int], OffsetValue] = {}
    for topic in topics:
        for entry in topic.partitions:
            place = (str(topic.name), int(entry.partition_index))
            metadata = entry.committed_metadata or ""
            if broker.topics.partition(*place) is None:
                codes[place] = ErrorCode.unknown_topic_or_partition
            elif len(metadata.encode()) > broker.settings.offset_metadata_max_bytes:
                codes[place] = ErrorCode.offset_metadata_too_large
            else:
                codes[place] = ErrorCode.none
                accepted[place] = OffsetValue(
                    offset=entry.committed_offset,
                    leader_epoch=getattr(entry, "committed_leader_epoch", -1),
                    metadata=metadata,
                    commit_ms=now,
                )
    try:
        broker.groups.commit(group_id, accepted, producer=producer)
    except LogError as error:
        codes.update(dict.fromkeys(accepted, error.code))
    return codes


def refuse_all(topics: Any, code: ErrorCode) -> dict[tuple[str, int], ErrorCode]:
    """The same code for every partition of a request."""
    return {(topic.name, entry.partition_index): code for topic in topics for entry in topic.partitions}
