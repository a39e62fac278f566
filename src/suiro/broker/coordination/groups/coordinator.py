"""The group coordinator: every group by its id, what is written about them, and their timers.

Its state is in `__consumer_offsets`, which a start replays. A group has one of two protocols. The effects of the
classic one (`group`) are carried out here, the new one in `consumer_edge`, offsets in `offsets`. All write through
`write` before a client gets an answer.
"""

from __future__ import annotations

import logging
import uuid
from asyncio import TimerHandle
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, TypeAlias

from suiro.broker.coordination.groups import consumer_records, records
from suiro.broker.coordination.groups.consumer_edge import ConsumerGroups
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord, GroupEpoch
from suiro.broker.coordination.groups.group import Group, GroupLimits, GroupState
from suiro.broker.coordination.groups.group_member import (
    Effect,
    JoinReply,
    JoinRequest,
    MemberIdentity,
    Persist,
    SyncReply,
    SyncRequest,
)
from suiro.broker.coordination.groups.group_memory import GroupMemory
from suiro.broker.coordination.groups.offsets import CommittedOffset, GroupOffsets
from suiro.broker.coordination.groups.owner import AnyGroup, KeyedRecord
from suiro.broker.coordination.groups.records import OffsetKey
from suiro.broker.refusals import RefusedError, on_one_line
from suiro.broker.storage import system_log
from suiro.broker.storage.topics import OFFSETS_TOPIC, Partition
from suiro.foundation.log_limit import LogLimit
from suiro.foundation.types import TopicPartition
from suiro.log import LogError, StorageError
from suiro.protocol.messages import ErrorCode
from suiro.protocol.records import Record, control_type

if TYPE_CHECKING:
    from suiro.broker.coordination.host import GroupHost

logger = logging.getLogger(__name__)

_REFUSALS_TOLD_EVERY_MS = 1000

JoinWaiter: TypeAlias = Callable[[JoinReply], None]
SyncWaiter: TypeAlias = Callable[[SyncReply], None]


class GroupCoordinator:
    """All groups of the node. A waiting JoinGroup or SyncGroup is a callable: the group's token for it."""

    def __init__(self, host: GroupHost) -> None:
        self._host = host
        settings = host.settings
        self.limits = GroupLimits(
            initial_rebalance_delay_ms=settings.group_initial_rebalance_delay_ms,
            max_size=settings.group_max_size,
        )
        self.groups: dict[str, AnyGroup] = {}
        self.memory = GroupMemory(lambda: host.settings)
        self._refusals = LogLimit(every_ms=_REFUSALS_TOLD_EVERY_MS)
        self.offsets = GroupOffsets(host, self)
        self.consumers = ConsumerGroups(host, self)
        self._timers: dict[str, TimerHandle] = {}
        self._due: dict[str, int] = {}  # what the timers wait for, by the node's clock

    def load(self) -> None:
        """Replay `__consumer_offsets`."""
        topic = self._host.topics.topic(OFFSETS_TOPIC)
        now = self.now()
        for partition in topic.partitions if topic else ():
            for header, batch in system_log.replay(partition.log):
                if header.is_control:
                    commit = control_type(batch[0]) == "commit"
                    self.complete_transaction(partition.index, header.producer_id, commit=commit)
                    continue
                producer_id = header.producer_id if header.is_transactional else None
                with system_log.reading(partition.log, header.base_offset):
                    for record in batch:
                        self._replay(partition.index, record, producer_id, now)
        for group_id in self.offsets.store.places():
            # The log may hold the tombstone of one protocol and no record of the other one yet.
            self.make_simple(group_id)
        for group in self.groups.values():
            if isinstance(group, ConsumerGroup):
                self.consumers.loaded(group)
            self.schedule(group)
            self.measure(group.group_id)

    def _replay(self, index: int, record: Record, producer_id: int | None, now: int) -> None:
        key = records.decode_key(record.key or b"")
        match key:
            case OffsetKey():
                place = (key.topic, key.partition)
                if record.value is None:
                    self.offsets.store.remove(key.group, [place])
                    return
                value = records.decode_offset_value(record.value)
                entry = CommittedOffset(value=value, log_offset=record.offset)
                self.make_simple(key.group)
                if producer_id is None:
                    self.offsets.store.put(key.group, place, entry)
                else:
                    self.offsets.store.hold(key.group, place, entry, index=index, producer_id=producer_id)
            case str():
                if record.value is None:
                    self.groups.pop(key, None)
                    return
                self.groups[key] = records.decode_group(key, record.value, limits=self.limits, now=now)
            case None:
                found = consumer_records.decode(record.key or b"", record.value)
                if found is not None:
                    self.apply(*found)

    def apply(self, group_id: str, record: ConsumerRecord) -> None:
        """Make a written record of the new protocol true."""
        group = self.groups.get(group_id)
        if not isinstance(group, ConsumerGroup):
            if consumer_records.encode("", record)[1] is None:
                return  # a tombstone makes no group
            # A classic group without a record of its own only stands for offsets; it gives way.
            group = self.groups[group_id] = ConsumerGroup(group_id=group_id)
        group.apply(record)
        if record == GroupEpoch(None):
            self.groups.pop(group_id, None)
            self.measure(group_id)

    def compact(self) -> None:
        """Compact the topic. Call it after all coordinators have loaded: another one may have finished a
        transaction."""
        topic = self._host.topics.topic(OFFSETS_TOPIC)
        if topic is None:
            return
        self.offsets.forget_lost_topics()
        live: dict[int, list[tuple[bytes, bytes]]] = {partition.index: [] for partition in topic.partitions}
        for group_id, group in self.groups.items():
            kept = live[self.partition_of(group_id).index]
            if isinstance(group, Group):
                if not group.is_simple:
                    kept.append((records.encode_group_key(group_id), records.encode_group_value(group)))
                continue
            for record in group.snapshot():
                key, value = consumer_records.encode(group_id, record)
                if value is not None:
                    kept.append((key, value))
        for group_id, offsets in self.offsets.store:
            live[self.partition_of(group_id).index] += [
                (records.encode_offset_key(group_id, *place), records.encode_offset_value(entry.value))
                for place, entry in offsets.items()
            ]
        for partition in topic.partitions:
            system_log.compact(partition, live[partition.index], timestamp=self._host.clock.wall_ms())

    def close(self) -> None:
        for timer in self._timers.values():
            timer.cancel()
        self._timers.clear()
        self._due.clear()
        self.consumers.close()

    # Look-ups

    def current(self, group_id: str) -> AnyGroup | None:
        """The group as it is now, for a request about it. Its timer may be late: the event loop serves sockets first,
        and counts milliseconds from another start than the clock."""
        due_ms = self._due.get(group_id)
        if due_ms is not None and due_ms <= self.now():
            self._cancel(group_id)
            self._tick(group_id)
        return self.groups.get(group_id)

    def all_current(self) -> dict[str, AnyGroup]:
        """Every group as it is now."""
        now_ms = self.now()
        for group_id in [name for name, due_ms in self._due.items() if due_ms <= now_ms]:
            self.current(group_id)
        return self.groups

    def partition_of(self, group_id: str) -> Partition:
        """The partition of `__consumer_offsets` that holds this group. Raises `RefusedError` while a disk holds no such
        topic and takes none."""
        try:
            topic = self._host.internal_topic(OFFSETS_TOPIC)
        except StorageError as error:
            raise RefusedError(ErrorCode.coordinator_not_available, str(error)) from error
        return topic.partitions[system_log.partition_for(group_id, len(topic.partitions))]

    def make_simple(self, group_id: str) -> None:
        """Offsets alone make a group too: a classic one without members and without a record of its own."""
        if group_id not in self.groups:
            self.groups[group_id] = Group(group_id=group_id, limits=self.limits)

    def now(self) -> int:
        return self._host.clock.monotonic_ms()

    # Writing

    def write(self, group_id: str, keyed: Sequence[KeyedRecord], *, producer: tuple[int, int] | None = None) -> int:
        """Append records as one batch. Returns the offset of the first. Raises `RefusedError`."""
        producer_id, producer_epoch = producer or (-1, -1)
        try:
            return system_log.append(
                self.partition_of(group_id),
                keyed,
                timestamp=self._host.clock.wall_ms(),
                producer_id=producer_id,
                producer_epoch=producer_epoch,
            )
        except LogError as error:
            raise RefusedError(_code_of(error), str(error)) from error

    def tombstones(self, group: AnyGroup) -> list[KeyedRecord]:
        """The records that end the group."""
        if isinstance(group, Group):
            return [(records.encode_group_key(group.group_id), None)]
        return [consumer_records.encode(group.group_id, record) for record in group.tombstones()]

    def delete(self, group_id: str) -> ErrorCode:
        """DeleteGroups."""
        group = self.current(group_id)
        if group is None:
            return ErrorCode.group_id_not_found
        if group.members or (isinstance(group, Group) and group.state is not GroupState.EMPTY):
            return ErrorCode.non_empty_group
        places = set(self.offsets.store.committed(group_id)) | self.offsets.store.undecided(group_id)
        try:
            self.write(group_id, records.offset_tombstones(group_id, places) + self.tombstones(group))
        except RefusedError as refusal:
            return refusal.code
        self.removed(group_id, places)
        return ErrorCode.none

    def removed(self, group_id: str, places: set[TopicPartition]) -> None:
        """The end of the group is written, with these offsets of it."""
        self.offsets.store.remove(group_id, places)
        self.groups.pop(group_id, None)
        self.measure(group_id)
        self._cancel(group_id)

    def measure(self, group_id: str) -> None:
        """Count what the group keeps in memory now."""
        group = self.groups.get(group_id)
        self.memory.hold(group_id, 0 if group is None else group.held_bytes)

    def check_memory(self, group_id: str, *, before: int, after: int) -> None:
        """Raises `RefusedError` if a member of `before` bytes cannot have `after`."""
        why = self._told(group_id, "member", self.memory.refusal(group_id, before=before, after=after))
        if why is not None:
            raise RefusedError(ErrorCode.group_max_size_reached, why)

    def _told(self, group_id: str, what: str, why: str | None) -> str | None:
        """Logs the first refusal in a second, with the number of those since the last line."""
        if why is not None and (left_out := self._refusals.take(self.now())) is not None:
            name = on_one_line(group_id)
            logger.warning("group %s takes no %s: %s (%d refusals)", name, what, why, left_out + 1)
        return why

    # Membership of the classic protocol

    def join(self, group_id: str, request: JoinRequest, waiter: JoinWaiter) -> None:
        try:
            self._join(group_id, request, waiter)
        except RefusedError as refusal:
            waiter(JoinReply(token=waiter, code=refusal.code, member_id=request.member_id))

    def _join(self, group_id: str, request: JoinRequest, waiter: JoinWaiter) -> None:
        """Raises `RefusedError`, and then nobody has an answer yet."""
        settings = self._host.settings
        low, high = settings.group_min_session_timeout_ms, settings.group_max_session_timeout_ms
        if not low <= request.session_timeout_ms <= high:
            raise RefusedError(ErrorCode.invalid_session_timeout)
        if not request.fits_records:
            raise RefusedError(ErrorCode.invalid_request)
        group, before = self.current(group_id), 0
        if isinstance(group, Group):
            before = group.held_for(request)
        elif group is not None:
            before = group.held_for(request.member_id, request.instance_id)
        self.check_memory(group_id, before=before, after=request.size)
        if isinstance(group, ConsumerGroup):
            if group.members:
                self.consumers.join_classic(group, request, waiter)
                return
            self.write(group_id, self.tombstones(group))
            group = self.groups[group_id] = Group(group_id=group_id, limits=self.limits)
        if group is None:
            if request.member_id:
                raise RefusedError(ErrorCode.unknown_member_id)
            group = self.groups[group_id] = Group(group_id=group_id, limits=self.limits)
        effects = group.join(request, waiter, now=self.now(), new_member_id=lambda: f"{request.prefix}-{uuid.uuid4()}")
        self.carry_out(group, effects)

    def sync(self, group_id: str, request: SyncRequest, waiter: SyncWaiter) -> None:
        group = self.current(group_id)
        if group is None:
            waiter(SyncReply(token=waiter, code=ErrorCode.unknown_member_id))
            return
        if isinstance(group, ConsumerGroup):
            self.consumers.sync_classic(group, request, waiter)
            return
        grown = group.growth_by(request)
        if self._told(group_id, "assignment", self.memory.refusal_together(group_id, grown)):
            # Kafka answers this if an assignment is too large for its log.
            waiter(SyncReply(token=waiter, code=ErrorCode.unknown_server_error))
            return
        self.carry_out(group, group.sync(request, waiter, now=self.now()))

    def heartbeat(self, group_id: str, member: MemberIdentity) -> ErrorCode:
        group = self.current(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        if isinstance(group, ConsumerGroup):
            return self.consumers.heartbeat_classic(group, member)
        return group.heartbeat(member, now=self.now())

    def leave(self, group_id: str, *, member_id: str, instance_id: str | None) -> ErrorCode:
        group = self.current(group_id)
        if group is None:
            return ErrorCode.unknown_member_id
        if isinstance(group, ConsumerGroup):
            return self.consumers.leave_classic(group, member_id=member_id, instance_id=instance_id)
        code, effects = group.leave(member_id=member_id, instance_id=instance_id, now=self.now())
        self.carry_out(group, effects)
        return code

    def carry_out(self, group: Group, effects: list[Effect]) -> None:
        failure = ErrorCode.none
        for effect in effects:
            match effect:
                case Persist():
                    failure = self._persist(group)
                case JoinReply() | SyncReply():
                    assert callable(effect.token)
                    is_lost = failure is not ErrorCode.none and effect.code is ErrorCode.none
                    effect.token(effect.failed(failure) if is_lost else effect)
        if failure is not ErrorCode.none:
            self.carry_out(group, group.assignment_lost(self.now()))
            return
        self.schedule(group)
        self.measure(group.group_id)
        self._drop_unused(group)

    def _drop_unused(self, group: Group) -> None:
        """Remove a group that nobody has joined and that has no offsets: a client that tries many names must not leave
        one for each."""
        group_id = group.group_id
        if (
            group.is_simple
            and group.changed_ms < 0
            and self.groups.get(group_id) is group
            and not self.offsets.store.committed(group_id)
            and not self.offsets.store.undecided(group_id)
        ):
            del self.groups[group_id]

    def _persist(self, group: Group) -> ErrorCode:
        group.changed_ms = self._host.clock.wall_ms()
        try:
            value = records.encode_group_value(group)
            self.write(group.group_id, [(records.encode_group_key(group.group_id), value)])
        except (RefusedError, ValueError) as error:  # a member's name may be too long for a record
            logger.error("cannot write down group %s: %s", on_one_line(group.group_id), error)
            return error.code if isinstance(error, RefusedError) else ErrorCode.unknown_server_error
        return ErrorCode.none

    # Time

    def schedule(self, group: AnyGroup) -> None:
        """Wake up no later than the group's next deadline. Earlier does no harm: heartbeats move it."""
        group_id, deadline = group.group_id, group.next_deadline()
        if deadline is None or self._due.get(group_id, deadline + 1) <= deadline:
            return
        self._cancel(group_id)
        wait_ms = max(0, deadline - self.now())
        self._timers[group_id] = self._host.loop.call_later(wait_ms / 1000, self._tick, group_id)
        self._due[group_id] = deadline

    def _tick(self, group_id: str) -> None:
        self._timers.pop(group_id, None)
        self._due.pop(group_id, None)
        match self.groups.get(group_id):
            case Group() as group:
                self.carry_out(group, group.tick(self.now()))
            case ConsumerGroup() as group:
                self.consumers.tick(group)
                # Otherwise it has become a classic group, which has timers of its own.
                if self.groups.get(group_id) is group:
                    self.schedule(group)

    def look_again(self) -> None:
        """Do now what groups wait for: the clock was moved (by a test)."""
        for group_id in list(self.groups):
            self._cancel(group_id)
            self._tick(group_id)

    def _cancel(self, group_id: str) -> None:
        timer = self._timers.pop(group_id, None)
        self._due.pop(group_id, None)
        if timer is not None:
            timer.cancel()

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None:
        """The marker of this producer is in the given partition of `__consumer_offsets`."""
        self.offsets.store.complete_transaction(index, producer_id, commit=commit)


def _code_of(error: LogError) -> ErrorCode:
    """The code for a client when a coordinator's record cannot be written: Kafka has no storage error there."""
    match error.code:
        case ErrorCode.not_leader_or_follower | ErrorCode.kafka_storage_error:
            return ErrorCode.not_coordinator
        case ErrorCode.unknown_topic_or_partition | ErrorCode.not_enough_replicas:
            return ErrorCode.coordinator_not_available
        case ErrorCode.message_too_large | ErrorCode.record_list_too_large:
            return ErrorCode.unknown_server_error
    return error.code
