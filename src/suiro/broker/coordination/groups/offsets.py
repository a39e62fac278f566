"""Committed offsets, and those that a transaction has yet to decide: who may commit, who may ask, and how long they are
kept.

Offsets of a transaction are written at once, as transactional batches, and kept aside until the marker of their
producer. Removal takes offsets from both places, so that a marker never brings back the offset of a topic or group that
was deleted meanwhile.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING
from uuid import UUID

from suiro.broker.coordination.groups import records
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.group import Group, GroupState
from suiro.broker.coordination.groups.group_member import MemberIdentity
from suiro.broker.coordination.groups.records import OffsetValue
from suiro.broker.refusals import RefusedError, on_one_line
from suiro.broker.storage import system_log
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.coordination.groups.owner import AnyGroup, GroupOwner, KeyedRecord
    from suiro.broker.coordination.host import GroupHost

logger = logging.getLogger(__name__)

_FIRST_VERSION_WITH_GROUP_NOT_FOUND = 9


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset, and where in the log it was committed (which of two is the later one)."""

    value: OffsetValue
    log_offset: int


class OffsetStore:
    """State without I/O: the coordinator writes first, then changes this."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # (partition of __consumer_offsets, producer id) -> what its open transaction would commit
        self._undecided: dict[tuple[int, int], dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        # Group -> partition -> number of transactions: a look-up of one group does not go over all of them.
        self._undecided_of: dict[str, Counter[TopicPartition]] = {}

    def __iter__(self) -> Iterator[tuple[str, Mapping[TopicPartition, CommittedOffset]]]:
        return iter(self._committed.items())

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._committed.get(group_id, {})

    def undecided(self, group_id: str) -> Set[TopicPartition]:
        """The partitions with an offset of this group in an open transaction (KIP-447: require_stable)."""
        return self._undecided_of.get(group_id, Counter()).keys()

    def places(self, *, of_topic: str | None = None) -> dict[str, set[TopicPartition]]:
        """Group -> where it has an offset, decided or not."""
        found: dict[str, set[TopicPartition]] = {}
        committed = ((group_id, place) for group_id, offsets in self._committed.items() for place in offsets)
        undecided = ((group_id, place) for group_id, held in self._undecided_of.items() for place in held)
        for group_id, place in chain(committed, undecided):
            if of_topic in (None, place[0]):
                found.setdefault(group_id, set()).add(place)
        return found

    def put(self, group_id: str, place: TopicPartition, entry: CommittedOffset) -> None:
        self._committed.setdefault(group_id, {})[place] = entry

    def hold(
        self,
        group_id: str,
        place: TopicPartition,
        entry: CommittedOffset,
        *,
        index: int,
        producer_id: int,
    ) -> None:
        """Until the marker of this producer is in the given partition of `__consumer_offsets`."""
        held = self._undecided.setdefault((index, producer_id), {})
        if (group_id, place) not in held:
            self._undecided_of.setdefault(group_id, Counter())[place] += 1
        held[group_id, place] = entry

    def remove(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        offsets = self._committed.get(group_id, {})
        for place in tuple(places):
            offsets.pop(place, None)
            if place in self.undecided(group_id):
                for held in self._undecided.values():
                    if held.pop((group_id, place), None) is not None:
                        self._decided(group_id, place)
        if not offsets:
            self._committed.pop(group_id, None)

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None:
        held = self._undecided.pop((index, producer_id), {})
        for group_id, place in held:
            self._decided(group_id, place)
        if not commit:
            return
        for (group_id, place), entry in held.items():
            present = self.committed(group_id).get(place)
            if present is None or present.log_offset < entry.log_offset:
                self.put(group_id, place, entry)

    def _decided(self, group_id: str, place: TopicPartition) -> None:
        counts = self._undecided_of[group_id]
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
        if not counts:
            del self._undecided_of[group_id]


class GroupOffsets:
    """The offsets of every group. Reads go to `store`."""

    def __init__(self, host: GroupHost, coordinator: GroupOwner) -> None:
        self._host = host
        self._coordinator = coordinator
        self.store = OffsetStore()
        self._owed: dict[str, set[TopicPartition]] = {}
        """The offsets of each group that went with their topic, and whose tombstones could not be written yet."""

    def check_commit(
        self,
        group_id: str,
        member: MemberIdentity,
        *,
        transactional: bool,
        places: Iterable[tuple[UUID, int]],
        version: int = _FIRST_VERSION_WITH_GROUP_NOT_FOUND,
    ) -> ErrorCode:
        """Whether this consumer may commit for these partitions: one that may not for one may not for any."""
        group = self._coordinator.current(group_id)
        if group is None:
            if member.generation < 0:
                return ErrorCode.none
            if transactional or version < _FIRST_VERSION_WITH_GROUP_NOT_FOUND:
                return ErrorCode.illegal_generation
            return ErrorCode.group_id_not_found
        if isinstance(group, Group):
            return group.check_commit(member, transactional=transactional, now=self._coordinator.now())
        try:
            group.check_commit(member, transactional=transactional, version=version, places=places)
        except RefusedError as refusal:
            if transactional and refusal.code is ErrorCode.stale_member_epoch:
                return ErrorCode.illegal_generation
            return refusal.code
        return ErrorCode.none

    def check_fetch(self, group_id: str, *, member_id: str | None, member_epoch: int) -> ErrorCode:
        group = self._coordinator.current(group_id)
        if isinstance(group, ConsumerGroup):
            try:
                group.check_fetch(member_id=member_id, member_epoch=member_epoch)
            except RefusedError as refusal:
                return refusal.code
        return ErrorCode.none

    def commit(
        self,
        group_id: str,
        offsets: Mapping[TopicPartition, OffsetValue],
        *,
        producer: tuple[int, int] | None = None,
    ) -> None:
        """Write offsets down; with a (producer id, epoch) they count when its transaction commits.

        Raises `RefusedError`; then nothing is committed.
        """
        if not offsets:
            return
        self._settle(group_id)
        keyed = [
            (records.encode_offset_key(group_id, topic, index), records.encode_offset_value(value))
            for (topic, index), value in offsets.items()
        ]
        first = self._coordinator.write(group_id, keyed, producer=producer)
        self._coordinator.make_simple(group_id)
        partition = self._coordinator.partition_of(group_id).index
        for position, (place, value) in enumerate(offsets.items()):
            entry = CommittedOffset(value=value, log_offset=first + position)
            if producer is None:
                self.store.put(group_id, place, entry)
            else:
                self.store.hold(group_id, place, entry, index=partition, producer_id=producer[0])

    def delete(self, group_id: str, places: Iterable[TopicPartition]) -> dict[TopicPartition, ErrorCode]:
        """OffsetDelete. Raises `RefusedError` where the group as a whole refuses, or its log."""
        group = self._coordinator.current(group_id)
        if group is None:
            raise RefusedError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        if isinstance(group, Group) and group.members and not group.is_of_consumers:
            raise RefusedError(ErrorCode.non_empty_group, f"group {group_id} has members")
        places = tuple(places)
        subscribed = _subscribed(group, places)
        codes = {
            place: ErrorCode.group_subscribed_to_topic if place[0] in subscribed else ErrorCode.none for place in places
        }
        known = self.store.committed(group_id).keys() | self.store.undecided(group_id)
        free = {place for place, code in codes.items() if code is ErrorCode.none}
        self._remove(group_id, free & known)
        return codes

    def forget_topic(self, topic: str) -> None:
        """The topic is deleted: also what an open transaction would commit for it."""
        self._forget(self.store.places(of_topic=topic))

    def forget_lost_topics(self) -> None:
        """At a start: the same for topics that are gone or were made again. The node died, or its disk was full, before
        the offsets could be written off."""
        self._forget(
            {
                group_id: lost
                for group_id, places in self.store.places().items()
                if (lost := {place for place in places if self._is_lost(group_id, place)})
            }
        )

    def _is_lost(self, group_id: str, place: TopicPartition) -> bool:
        topics = self._host.topics
        topic = topics.topic(place[0])
        if topic is None:
            return not topics.adopted  # else the topics may be in folders that are still to come
        known = self.store.committed(group_id).get(place)
        return known is not None and known.value.topic_id not in (None, topic.topic_id)

    def _forget(self, lost: Mapping[str, set[TopicPartition]]) -> None:
        """At once, even if the disk refuses it: a new topic of the name must not be read from the old one's offsets."""
        for group_id, places in lost.items():
            self.store.remove(group_id, places)
            self._owed.setdefault(group_id, set()).update(places)
        self._settle_all()

    def _settle(self, group_id: str) -> None:
        """Write the tombstones that are still missing, before anything else of the group. Raises `RefusedError`."""
        owed = self._owed.get(group_id)
        if owed:
            self._coordinator.write(group_id, records.offset_tombstones(group_id, owed))
            del self._owed[group_id]

    def _settle_all(self) -> None:
        owed = self._owed
        for group_id in self._written_together(
            owed, lambda group_id: records.offset_tombstones(group_id, owed[group_id])
        ):
            del owed[group_id]

    def _remove(self, group_id: str, places: set[TopicPartition]) -> None:
        if places:
            self._coordinator.write(group_id, records.offset_tombstones(group_id, places))
            self.store.remove(group_id, places)

    def expire(self) -> None:
        """Remove offsets whose retention time is over, and groups that have neither members nor offsets."""
        self._settle_all()
        now = self._host.clock.wall_ms()
        over: dict[str, AnyGroup] = {}
        ends: dict[str, set[TopicPartition]] = {}
        for group_id, group in self._coordinator.groups.items():
            offsets, held = self.store.committed(group_id), self.store.undecided(group_id)
            is_expired = self._expiry(group, now)
            if is_expired is None and offsets:
                continue
            expired: set[TopicPartition] = set()
            if is_expired is not None:
                old = [place for place, entry in offsets.items() if is_expired(entry.value)]
                subscribed = _subscribed(group, old)
                expired = {place for place in old if place not in held and place[0] not in subscribed}
            if not held and len(expired) == len(offsets) and _is_empty(group):
                over[group_id] = group
            if expired or group_id in over:
                ends[group_id] = expired

        def keyed(group_id: str) -> list[KeyedRecord]:
            of_group = self._coordinator.tombstones(over[group_id]) if group_id in over else []
            return records.offset_tombstones(group_id, ends[group_id]) + of_group

        for group_id in self._written_together(ends, keyed):
            if group_id in over:
                self._coordinator.removed(group_id, ends[group_id])
            else:
                self.store.remove(group_id, ends[group_id])

    def _written_together(self, group_ids: Iterable[str], keyed: Callable[[str], list[KeyedRecord]]) -> list[str]:
        """Write these records of many groups, in batches: thousands may be due at once, and the loop stands still
        meanwhile. The records of one batch only are in memory. Returns the groups whose records are written."""
        written: list[str] = []
        of_partition: dict[int, list[str]] = {}
        for group_id in group_ids:
            of_partition.setdefault(self._coordinator.partition_of(group_id).index, []).append(group_id)
        for of_one in of_partition.values():
            for together in system_log.in_batches(
                ((group_id, keyed(group_id)) for group_id in of_one),
                lambda found: sum(map(system_log.keyed_size, found[1])),
            ):
                first, others = together[0][0], len(together) - 1
                every = [record for _, own in together for record in own]
                # A log may be offline, and the groups in others must not wait for it.
                try:
                    self._coordinator.write(first, every)
                except RefusedError as error:
                    logger.error(
                        "that offsets of group %s and of %d others are over cannot be written down now: %s",
                        on_one_line(first),
                        others,
                        error,
                    )
                else:
                    written += [group_id for group_id, _ in together]
        return written

    def _expiry(self, group: Group | ConsumerGroup, now: int) -> Callable[[OffsetValue], bool] | None:
        """Tells which offsets of this group are expired; None: none is, whatever its age."""
        retention_ms = self._host.settings.offsets_retention_minutes * 60_000
        since: int | None = None
        if isinstance(group, Group) and group.protocol_type is not None:
            if group.state is GroupState.EMPTY:
                since = group.changed_ms if group.changed_ms >= 0 else None
            elif group.state is not GroupState.STABLE or group.subscribed_topics() is None:
                return None

        def is_expired(value: OffsetValue) -> bool:
            if value.expire_ms is not None:
                return now >= value.expire_ms
            return now - (value.commit_ms if since is None else since) >= retention_ms

        return is_expired


def _subscribed(group: Group | ConsumerGroup, places: Iterable[TopicPartition]) -> set[str]:
    """The topics of these partitions that the group reads. Asks once for each: a classic group decodes the
    subscriptions of all its members."""
    return {topic for topic in {topic for topic, _ in places} if group.is_subscribed_to(topic)}


def _is_empty(group: Group | ConsumerGroup) -> bool:
    if isinstance(group, ConsumerGroup):
        return not group.members
    return group.state is GroupState.EMPTY and not group.pending
