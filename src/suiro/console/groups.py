"""Consumer groups: listed, described with their lag, reset to other offsets, deleted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Literal

from suiro.client import EARLIEST, LATEST, Client, GroupMember, TopicInfo
from suiro.console.records import records_of
from suiro.console.topics import ranges_of, require_partition, topic_info
from suiro.errors import (
    BrokerFailureError,
    CorruptRecordError,
    KafkaError,
    OffsetOutOfRangeError,
    RefusedError,
    UsageError,
)
from suiro.foundation.types import TopicPartition

TIME_FETCH_BYTES = 64 * 1024
TIMES_FETCH_BYTES = 4 * 1024 * 1024
TIME_MAX_MS = (1 << 63) - 1
TOPICS_NAMED_MAX = 10_000
"""The most topics in a request. A member may name any number, and a node closes the connection for 50,000."""
# `suiro.spark.MARKER_TOPIC`, which the base package cannot import.
MARKER_TOPIC = "__txn_markers"


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLag:
    """The lag of one partition. None means unknown: nothing is committed, or the partition is gone or has no leader.
    `lag_ms` is how long the first unread record has waited; None if it was not asked for."""

    topic: str
    partition: int
    committed: int | None
    end_offset: int | None
    lag: int | None
    lag_ms: int | None
    member_id: str | None
    client_id: str | None
    host: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupDetails:
    group: str
    state: str
    type: str
    assignor: str
    coordinator: str
    members: tuple[GroupMember, ...]
    partitions: tuple[GroupLag, ...]

    @property
    def total_lag(self) -> int:
        return sum(one.lag or 0 for one in self.partitions)


def describe_group(client: Client, group: str, *, now_ms: int | None = None) -> GroupDetails:
    """With `now_ms`, also finds how long the first unread record of each partition has waited, by reading it.

    Raises `RefusedError` for a group that does not exist.
    """
    described = client.admin.describe_group(group)
    committed = client.offset_fetch(group, require_stable=False)
    if described.state == "Dead" and not committed:
        raise RefusedError(f"there is no group {group!r}; `suiro group list` names all", "GROUP_ID_NOT_FOUND")
    owners = {place: member for member in described.members for place in member.assignment}
    places = sorted({*committed, *owners})
    known = _visible(client, sorted({topic for topic, _ in places})) if places else {}
    # A partition without a leader has no known end. The others are shown.
    led = {(name, one.partition) for name, info in known.items() for one in info.partitions if one.leader >= 0}
    there = [place for place in places if place in led]
    ends = client.list_offsets(dict.fromkeys(there, LATEST)) if there else {}
    behind = {
        place: found.offset
        for place in there
        if (found := committed.get(place)) is not None and found.offset < ends[place].offset
    }
    waits_since = {} if now_ms is None else first_waits_since(client, behind)
    rows = []
    for place in places:
        found = committed.get(place)
        offset = None if found is None else found.offset
        end = ends[place].offset if place in ends else None
        lag = None if offset is None or end is None else max(end - offset, 0)
        lag_ms = None
        if now_ms is not None and lag is not None:
            since = now_ms if not lag else waits_since[place]
            lag_ms = None if since is None else max(now_ms - since, 0)
        owner = owners.get(place)
        rows.append(
            GroupLag(
                topic=place[0],
                partition=place[1],
                committed=offset,
                end_offset=end,
                lag=lag,
                lag_ms=lag_ms,
                member_id=None if owner is None else owner.member_id,
                client_id=None if owner is None else owner.client_id,
                host=None if owner is None else owner.host,
            )
        )
    return GroupDetails(
        group=group,
        state=described.state,
        type=described.type,
        assignor=described.assignor,
        coordinator=described.coordinator,
        members=described.members,
        partitions=tuple(rows),
    )


def _visible(client: Client, topics: Sequence[str]) -> dict[str, TopicInfo]:
    """Returns those of the topics that the user may describe. A member may have the right to others, or name any."""
    if len(topics) <= TOPICS_NAMED_MAX:
        with suppress(RefusedError):
            return client.metadata(topics)
    return client.metadata()


def first_waits_since(
    client: Client, offsets: Mapping[TopicPartition, int], *, leader_wait_ms: int | None = None
) -> dict[TopicPartition, int | None]:
    """Returns the timestamp in ms of the first record from an offset on, of each partition; None if no record can be
    read."""
    if not offsets:
        return {}
    firsts = client.list_offsets(dict.fromkeys(offsets, EARLIEST), leader_wait_ms=leader_wait_ms)
    found: dict[TopicPartition, int | None] = dict.fromkeys(offsets)
    asked = {place: max(offset, firsts[place].offset) for place, offset in offsets.items()}
    while asked:
        try:
            answers = client.fetch(
                asked,
                max_bytes=TIMES_FETCH_BYTES,
                partition_max_bytes=TIME_FETCH_BYTES,
                max_wait_ms=0,
                leader_wait_ms=leader_wait_ms,
            )
        except OffsetOutOfRangeError as error:  # the record is gone by now
            del asked[error.topic, error.partition]
            continue
        except KafkaError as error:
            # The user may describe one of the topics, and not read it; or one partition is damaged.
            of_topics = len({topic for topic, _ in asked}) > 1
            parts: dict[object, dict[TopicPartition, int]] = {}
            if of_topics or (len(asked) > 1 and isinstance(error, BrokerFailureError)):
                for place, position in asked.items():
                    parts.setdefault(place[0] if of_topics else place, {})[place] = position
            for part in parts.values():
                found |= first_waits_since(client, part, leader_wait_ms=leader_wait_ms)
            return found
        # Brokers return a batch of the first partition at least, whatever its size. They return none of open
        # transactions, to which all that follows may belong.
        read = {next(iter(asked))}
        for place, position in asked.items():
            answer = answers[place]
            if 0 <= answer.last_stable_offset <= position:
                read.add(place)
            with suppress(CorruptRecordError):
                for record, _ in records_of(*place, position, answer, True):
                    read.add(place)
                    if record is not None:
                        found[place] = record.timestamp
                        break
        asked = {place: position for place, position in asked.items() if place not in read}
    return found


@dataclass(frozen=True, slots=True, kw_only=True)
class Reset:
    """The target, with the names of kafka-consumer-groups. `value` is an offset, a time in ms, or the shift."""

    to: Literal["earliest", "latest", "current", "offset", "datetime", "shift"]
    value: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class NewOffset:
    topic: str
    partition: int
    committed: int | None
    offset: int


def plan_reset(
    client: Client, group: str, reset: Reset, topics: Mapping[str, Sequence[int] | None] | None
) -> tuple[NewOffset, ...]:
    """Returns the offsets for `reset_offsets`. `topics` is {topic: partitions, None for all}; None: those that the
    group has committed.

    An offset outside the range of a partition becomes the nearest one in it, as with Kafka's tool.
    """
    committed = client.offset_fetch(group, require_stable=False)
    if any(topic == MARKER_TOPIC for topic, _ in committed):
        raise UsageError(
            f"group {group!r} is that of a suiro application. It reads from its checkpoint and not from here, and does "
            "not start when these offsets differ. To process everything again, start it with a new application id; to "
            "rebuild its state, move the state directory away and start it with --rebuild"
        )
    places = sorted(committed) if topics is None else _places(client, topics)
    if not places:
        raise UsageError(f"group {group!r} has no committed offsets; name the topics")
    ranges = ranges_of(client, places)
    by_time = (
        client.list_offsets(dict.fromkeys(places, min(max(reset.value, 0), TIME_MAX_MS)))
        if reset.to == "datetime"
        else {}
    )
    planned = []
    for place in places:
        found = committed.get(place)
        now = None if found is None else found.offset
        first, end = ranges[place]
        match reset.to:
            case "earliest":
                wanted = first
            case "latest":
                wanted = end
            case "current":
                wanted = end if now is None else now
            case "offset":
                wanted = reset.value
            case "shift":
                if now is None:
                    raise UsageError(
                        f"group {group!r} has no committed offset for {place[0]}-{place[1]}, so there is no offset "
                        "to shift"
                    )
                wanted = now + reset.value
            case "datetime":
                wanted = by_time[place].offset if by_time[place].offset >= 0 else end
        wanted = min(max(wanted, first), end)
        planned.append(NewOffset(topic=place[0], partition=place[1], committed=now, offset=wanted))
    return tuple(planned)


def _places(client: Client, topics: Mapping[str, Sequence[int] | None]) -> list[TopicPartition]:
    places = []
    for topic, partitions in topics.items():
        count = len(topic_info(client, topic).partitions)
        for partition in range(count) if partitions is None else partitions:
            require_partition(topic, partition, count)
            places.append((topic, partition))
    return sorted(set(places))


def reset_offsets(client: Client, group: str, planned: Sequence[NewOffset]) -> None:
    """Refuses while the group has members: they would continue where they are, and overwrite the offsets."""
    described = client.admin.describe_group(group)
    if described.has_members:
        raise RefusedError(
            f"group {group!r} is {described.state} with {len(described.members)} members; stop them first, then reset "
            "its offsets",
            "NON_EMPTY_GROUP",
        )
    client.offset_commit(group, {(one.topic, one.partition): (one.offset, "") for one in planned})


def delete_offsets(client: Client, group: str, topics: Mapping[str, Sequence[int] | None]) -> None:
    client.admin.delete_offsets(group, _places(client, topics))
