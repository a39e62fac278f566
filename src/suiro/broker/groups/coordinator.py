"""The group coordinator: `group`'s effects carried out, and committed offsets.

Everything it knows is in `__consumer_offsets`: a start replays the topic. Offsets of a transaction are written at
once, as transactional batches, and kept aside until the marker of their producer decides them.
"""

from __future__ import annotations

import uuid
from asyncio import TimerHandle
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from suiro.broker import system_log
from suiro.broker.groups import records
from suiro.broker.groups.group import (
    Effect,
    Group,
    GroupLimits,
    GroupState,
    JoinReply,
    JoinRequest,
    Persist,
    SyncReply,
)
from suiro.broker.groups.records import GroupKey, OffsetKey, OffsetValue
from suiro.broker.topics import OFFSETS_TOPIC, Partition
from suiro.protocol.messages import ErrorCode
from suiro.protocol.records import Record, control_type

if TYPE_CHECKING:
    from suiro.broker.broker import Broker

TopicPartition: TypeAlias = tuple[str, int]
JoinWaiter: TypeAlias = Callable[[JoinReply], None]
SyncWaiter: TypeAlias = Callable[[SyncReply], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset, and where in the log it was committed (which of two is the later one)."""

    value: OffsetValue
    log_offset: int


class GroupCoordinator:
    """All groups of the node. A waiting JoinGroup or SyncGroup is a callable: the group's token for it."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        settings = broker.settings
        self._limits = GroupLimits(
            min_session_timeout_ms=settings.group_min_session_timeout_ms,
            max_session_timeout_ms=settings.group_max_session_timeout_ms,
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )
        self._groups: dict[str, Group] = {}
        self._emptied_ms: dict[str, int] = {}
        self._offsets: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # (partition of __consumer_offsets, producer id) -> what its open transaction would commit
        self._undecided: dict[tuple[int, int], dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        self._timers: dict[str, TimerHandle] = {}

    def load(self) -> None:
        """Replay `__consumer_offsets`."""
        topic = self._broker.topics.topic(OFFSETS_TOPIC)
        now = self._broker.clock.monotonic_ms()
        for partition in topic.partitions if topic else ():
            for header, batch in system_log.replay(partition.log):
                if header.is_control:
                    commit = control_type(batch[0]) == "commit"
                    self.complete_transaction(partition.index, header.producer_id, commit=commit)
                    continue
                for record in batch:
                    producer_id = header.producer_id if header.is_transactional else None
                    self._replay(partition.index, record, producer_id, now)
        for group in self._groups.values():
            self._schedule(group)

    def compact(self) -> None:
        """After every coordinator has loaded, since a transaction may have been finished by another."""
        topic = self._broker.topics.topic(OFFSETS_TOPIC)
        if topic is None:
            return
        now = self._broker.clock.wall_ms()
        live: dict[int, list[tuple[bytes, bytes]]] = {partition.index: [] for partition in topic.partitions}
        for group_id, offsets in self._offsets.items():
            live[self.partition_of(group_id).index] += [
                (records.encode_offset_key(group_id, *place), records.encode_offset_value(entry.value))
                for place, entry in offsets.items()
            ]
        for group_id, group in self._groups.items():
            live[self.partition_of(group_id).index].append(
                (
                    records.encode_group_key(group_id),
                    records.encode_group_value(group, now_ms=self._emptied_ms.get(group_id, now)),
                )
            )
        for partition in topic.partitions:
            system_log.compact(
                partition, live[partition.index], timestamp=now, leader_epoch=self._broker.leader_epoch
            )

    def _replay(self, index: int, record: Record, producer_id: int | None, now: int) -> None:
        key = records.decode_key(record.key or b"")
        match key:
            case OffsetKey():
                place = (key.topic, key.partition)
                if record.value is None:
                    self._offsets.get(key.group, {}).pop(place, None)
                    return
                committed = CommittedOffset(
                    value=records.decode_offset_value(record.value), log_offset=record.offset
                )
                if producer_id is None:
                    self._offsets.setdefault(key.group, {})[place] = committed
                else:
                    self._undecided.setdefault((index, producer_id), {})[key.group, place] = committed
            case GroupKey():
                if record.value is None:
                    self._groups.pop(key.group, None)
                    return
                value = records.decode_group_value(record.value)
                group = Group(
                    group_id=key.group,
                    limits=self._limits,
                    generation=value.generation,
                    protocol_type=value.protocol_type or None,
                    protocol=value.protocol,
                    leader=value.leader,
                )
                group.restore(value.members, now=now)
                self._groups[key.group] = group
                self._emptied_ms[key.group] = value.changed_ms
            case None:
                pass

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()

    # Look-ups

    def partition_of(self, group_id: str) -> Partition:
        """The partition of `__consumer_offsets` that holds this group."""
        topic = self._broker.internal_topic(OFFSETS_TOPIC)
        return topic.partitions[system_log.partition_for(group_id, len(topic.partitions))]

    def group(self, group_id: str) -> Group | None:
        return self._groups.get(group_id)

    def group_ids(self) -> Iterable[str]:
        return self._groups.keys() | {group for group, offsets in self._offsets.items() if offsets}

    # Membership

    def join(self, group_id: str, request: JoinRequest, waiter: JoinWaiter) -> None:
        group = self._groups.get(group_id)
        if group is None:
            if request.member_id:
                waiter(JoinReply(token=waiter, code=ErrorCode.unknown_member_id, member_id=request.member_id))
                return
            group = self._groups[group_id] = Group(group_id=group_id, limits=self._limits)
        prefix = request.instance_id or request.client_id
        effects = group.join(
            request, waiter, now=self._now(), new_member_id=lambda: f"{prefix}-{uuid.uuid4()}"
        )
        self._carry_out(group, effects)

    def sync(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        protocol_type: str | None,
        protocol: str | None,
        assignments: Mapping[str, bytes],
        waiter: SyncWaiter,
    ) -> None:
        group = self._groups.get(group_id)
        if group is None:
            waiter(SyncReply(token=waiter, code=ErrorCode.unknown_member_id))
            return
        effects = group.sync(
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            protocol_type=protocol_type,
            protocol=protocol,
            assignments=assignments,
            token=waiter,
            now=self._now(),
        )
        self._carry_out(group, effects)

    def heartbeat(
        self, group_id: str, *, member_id: str, instance_id: str | None, generation: int
    ) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        return group.heartbeat(
            member_id=member_id, instance_id=instance_id, generation=generation, now=self._now()
        )

    def leave(self, group_id: str, *, member_id: str, instance_id: str | None) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        code, effects = group.leave(member_id=member_id, instance_id=instance_id, now=self._now())
        self._carry_out(group, effects)
        return code

    def _carry_out(self, group: Group, effects: list[Effect]) -> None:
        for effect in effects:
            match effect:
                case Persist():
                    self._persist(group)
                case JoinReply() | SyncReply():
                    assert callable(effect.token)
                    effect.token(effect)
        self._schedule(group)

    def _persist(self, group: Group) -> None:
        now = self._broker.clock.wall_ms()
        value = records.encode_group_value(group, now_ms=now)
        self._append(group.group_id, [(records.encode_group_key(group.group_id), value)])
        self._emptied_ms[group.group_id] = now

    def _schedule(self, group: Group) -> None:
        """Wake up no later than the group's next deadline. (Earlier does no harm: heartbeats move it on.)"""
        deadline, timer = group.next_deadline(), self._timers.get(group.group_id)
        loop = self._broker.loop
        if deadline is None:
            return
        when = loop.time() + max(0, deadline - self._now()) / 1000
        if timer is not None and not timer.cancelled() and timer.when() <= when:
            return
        if timer is not None:
            timer.cancel()
        self._timers[group.group_id] = loop.call_at(when, self._tick, group)

    def _tick(self, group: Group) -> None:
        self._timers.pop(group.group_id, None)
        if self._groups.get(group.group_id) is group:
            self._carry_out(group, group.tick(self._now()))

    def _now(self) -> int:
        return self._broker.clock.monotonic_ms()

    # Offsets

    def check_commit(
        self,
        group_id: str,
        *,
        member_id: str,
        instance_id: str | None,
        generation: int,
        transactional: bool,
    ) -> ErrorCode:
        group = self._groups.get(group_id)
        if group is None:
            return ErrorCode.none if generation < 0 else ErrorCode.illegal_generation
        return group.check_commit(
            member_id=member_id,
            instance_id=instance_id,
            generation=generation,
            transactional=transactional,
            now=self._now(),
        )

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetValue],
        *,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Write offsets down; with a (producer id, epoch) they count when its transaction commits.

        Raises LogError; then nothing is committed.
        """
        if not offsets:
            return
        keyed: list[tuple[bytes, bytes | None]] = [
            (records.encode_offset_key(group_id, topic, index), records.encode_offset_value(value))
            for (topic, index), value in offsets.items()
        ]
        first = self._append(group_id, keyed, producer=producer)
        entries = {
            place: CommittedOffset(value=value, log_offset=first + position)
            for position, (place, value) in enumerate(offsets.items())
        }
        if producer is None:
            self._offsets.setdefault(group_id, {}).update(entries)
        else:
            undecided = self._undecided.setdefault((self.partition_of(group_id).index, producer[0]), {})
            undecided.update({(group_id, place): entry for place, entry in entries.items()})

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._offsets.get(group_id, {})

    def undecided_places(self, group_id: str) -> set[TopicPartition]:
        """Where an open transaction holds an offset of this group (KIP-447: require_stable)."""
        return {place for held in self._undecided.values() for group, place in held if group == group_id}

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None:
        """The marker of this producer is in the given partition of `__consumer_offsets`."""
        held = self._undecided.pop((index, producer_id), {})
        if not commit:
            return
        for (group, place), entry in held.items():
            offsets = self._offsets.setdefault(group, {})
            present = offsets.get(place)
            if present is None or present.log_offset < entry.log_offset:
                offsets[place] = entry

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted, and the offsets committed for it with it."""
        for group_id, offsets in list(self._offsets.items()):
            self._remove_offsets(group_id, [place for place in offsets if place[0] == topic])

    def expire_offsets(self) -> None:
        """Drop offsets of groups without members after `offsets.retention.minutes`, then groups without any."""
        oldest = self._broker.clock.wall_ms() - self._broker.settings.offsets_retention_minutes * 60_000
        for group_id in list(self.group_ids()):
            group = self._groups.get(group_id)
            if group is not None and group.state is not GroupState.EMPTY:
                continue
            if self._emptied_ms.get(group_id, 0) > oldest:
                continue
            held = self.undecided_places(group_id)
            expired = [
                place
                for place, entry in self.committed(group_id).items()
                if entry.value.commit_ms < oldest and place not in held
            ]
            self._remove_offsets(group_id, expired)
            if group is not None and not self._offsets.get(group_id) and not group.pending:
                self._remove_group(group_id)

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups."""
        group = self._groups.get(group_id)
        if group is None and not self._offsets.get(group_id):
            return ErrorCode.group_id_not_found
        if (group is not None and group.state is not GroupState.EMPTY) or self.undecided_places(group_id):
            return ErrorCode.non_empty_group
        self._remove_offsets(group_id, list(self.committed(group_id)))
        if group is not None:
            self._remove_group(group_id)
        return ErrorCode.none

    def _remove_group(self, group_id: str) -> None:
        self._append(group_id, [(records.encode_group_key(group_id), None)])
        del self._groups[group_id]
        self._emptied_ms.pop(group_id, None)

    def _remove_offsets(self, group_id: str, places: list[TopicPartition]) -> None:
        if not places:
            return
        self._append(group_id, [(records.encode_offset_key(group_id, t, p), None) for t, p in places])
        offsets = self._offsets[group_id]
        for place in places:
            del offsets[place]
        if not offsets:
            del self._offsets[group_id]

    def _append(
        self,
        group_id: str,
        keyed: list[tuple[bytes, bytes | None]],
        *,
        producer: tuple[int, int] | None = None,
    ) -> int:
        """Returns the offset of the first record."""
        producer_id, producer_epoch = producer or (-1, -1)
        return system_log.append(
            self.partition_of(group_id),
            keyed,
            timestamp=self._broker.clock.wall_ms(),
            leader_epoch=self._broker.leader_epoch,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
