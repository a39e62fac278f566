"""Groups of the new consumer protocol at work: `consumer_group`'s rules with the topics, the log and the time."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING
from uuid import uuid4

from suiro.broker.coordination.groups import consumer_records, migration
from suiro.broker.coordination.groups.consumer_group import ConsumerGroup
from suiro.broker.coordination.groups.consumer_member import (
    JOINING_EPOCH,
    STATIC_LEAVING_EPOCH,
    ConsumerGroupLimits,
    ConsumerMember,
    Heartbeat,
    HeartbeatReply,
    Moment,
    ResolvedRegex,
)
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord
from suiro.broker.coordination.groups.group import CONSUMER_PROTOCOL, Group, GroupState
from suiro.broker.coordination.groups.group_member import JoinReply, JoinRequest, MemberIdentity, SyncReply, SyncRequest
from suiro.broker.coordination.groups.group_memory import classic_size, subscription_size
from suiro.broker.coordination.groups.migration import check_upgrade, downgraded, goes_down, upgraded
from suiro.broker.coordination.groups.records import encode_group_key, encode_group_value
from suiro.broker.coordination.groups.regexes import matching_topics
from suiro.broker.refusals import RefusedError, on_one_line
from suiro.log.checkpoints import id_text
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.coordination.groups.owner import GroupOwner, KeyedRecord
    from suiro.broker.coordination.host import GroupHost

logger = logging.getLogger(__name__)


def _matched(regexes: Iterable[str], names: Sequence[str]) -> dict[str, frozenset[str]]:
    return {regex: matching_topics(regex, names) for regex in regexes}


def new_member_id() -> str:
    return id_text(uuid4())


class ConsumerGroups:
    """The edge of every `ConsumerGroup`."""

    def __init__(self, host: GroupHost, coordinator: GroupOwner) -> None:
        self._host = host
        self._coordinator = coordinator
        self.image = host.topics
        self._resolving: set[asyncio.Task[None]] = set()

    def close(self) -> None:
        """Topics of regular expressions that are looked for in a thread are nobody's any more."""
        resolving = tuple(self._resolving)
        for task in resolving:
            task.cancel()
        if resolving and not self._host.loop.is_running():
            self._host.loop.run_until_complete(asyncio.wait(resolving))

    def limits(self, group_id: str) -> ConsumerGroupLimits:
        """The node's, with those of the group on top."""
        settings, own = self._host.settings, self._host.group_configs(group_id)

        def of_group(name: str) -> int:
            return int(own.get(name, settings.value(f"group.{name}")))

        return ConsumerGroupLimits(
            session_timeout_ms=of_group("consumer.session.timeout.ms"),
            heartbeat_interval_ms=of_group("consumer.heartbeat.interval.ms"),
            max_size=settings.group_consumer_max_size,
            assignors=tuple(settings.group_consumer_assignors.split(",")),
            assignment_interval_ms=of_group("consumer.assignment.interval.ms"),
            regex_refresh_ms=settings.group_consumer_regex_refresh_interval_ms,
        )

    def loaded(self, group: ConsumerGroup) -> None:
        """Members get a whole session to come back after a start."""
        # A version that was written down before the node started is not newer than any to come.
        self.image.version = max(self.image.version, *(found.version for found in group.regexes.values()), 0)
        limits, now = self.limits(group.group_id), self._coordinator.now()
        for member in group.members.values():
            group.timers.start(member, limits=limits, now=now)

    def heartbeat(self, group_id: str, request: Heartbeat, *, may_describe: Callable[[str], bool]) -> HeartbeatReply:
        """ConsumerGroupHeartbeat. Raises `RefusedError`."""
        if request.member_epoch < 0:
            group = self._existing(group_id)
            reply, member_id = group.leaving(request)
            if request.member_epoch == STATIC_LEAVING_EPOCH:
                self._commit(group, group.away(member_id))
            else:
                self._fence(group, [member_id])
            return reply
        group, before = self._found_or_new(group_id, joins=request.member_epoch == JOINING_EPOCH)
        self._check_memory(group, request)
        at = self._moment(group_id)
        outcome = group.heartbeat(request, at=at)
        self._commit(group, outcome.records, before=before)
        group.keep_alive(outcome.reply.member_id, at=at, now=self._coordinator.now())
        self._coordinator.schedule(group)
        if outcome.resolve:
            group.is_resolving = True
            task = self._host.loop.create_task(self._resolve(group, outcome.resolve, may_describe))
            self._resolving.add(task)
            task.add_done_callback(self._resolving.discard)
        return outcome.reply

    def _check_memory(self, group: ConsumerGroup, request: Heartbeat) -> None:
        if request.topic_names is None and request.topic_regex is None:
            return
        names = (
            request.member_id,
            request.instance_id,
            request.rack_id,
            request.client_id,
            request.topic_regex,
        )
        after = classic_size((), *names) + subscription_size(request.topic_names or ())
        before = group.held_for(request.member_id, request.instance_id)
        self._coordinator.check_memory(group.group_id, before=before, after=after)

    # Members of the classic protocol

    def join_classic(self, group: ConsumerGroup, request: JoinRequest, waiter: Callable[[JoinReply], None]) -> None:
        """JoinGroup in a group of the new protocol that has members. Raises `RefusedError`."""
        member_id = request.member_id or new_member_id()
        if self._host.settings.group_consumer_migration_policy == "disabled":
            raise RefusedError(ErrorCode.inconsistent_group_protocol, "migration is disabled")
        if request.needs_known_member_id and not request.member_id:
            waiter(JoinReply(token=waiter, code=ErrorCode.member_id_required, member_id=member_id))
            return
        at = self._moment(group.group_id)
        records, member = migration.join_classic(group, request, member_id=member_id, at=at)
        self._commit(group, records)
        now = self._coordinator.now()
        group.keep_alive(member_id, at=at, now=now)
        group.timers.joined(member, now=now)
        self._coordinator.schedule(group)
        waiter(
            JoinReply(
                token=waiter,
                code=ErrorCode.none,
                member_id=member_id,
                generation=member.member_epoch,
                protocol_type=CONSUMER_PROTOCOL,
                protocol=request.protocols[0][0],
            )
        )

    def sync_classic(self, group: ConsumerGroup, request: SyncRequest, waiter: Callable[[SyncReply], None]) -> None:
        member_id = request.member_id
        try:
            assignment = migration.sync_classic(group, request, at=self._moment(group.group_id))
        except RefusedError as refusal:
            if refusal.code is ErrorCode.rebalance_in_progress:
                self._expect_join(group, member_id)
            waiter(SyncReply(token=waiter, code=refusal.code))
            return
        group.timers.synced(member_id)
        self._start_timers(group, group.members[member_id])
        waiter(
            SyncReply(
                token=waiter,
                code=ErrorCode.none,
                protocol_type=request.protocol_type,
                protocol=request.protocol,
                assignment=assignment,
            )
        )

    def heartbeat_classic(self, group: ConsumerGroup, who: MemberIdentity) -> ErrorCode:
        try:
            member, must_join = migration.heartbeat_classic(group, who)
        except RefusedError as refusal:
            return refusal.code
        self._start_timers(group, member)
        if not must_join:
            return ErrorCode.none
        self._expect_join(group, member.member_id)
        return ErrorCode.rebalance_in_progress

    def leave_classic(self, group: ConsumerGroup, *, member_id: str, instance_id: str | None) -> ErrorCode:
        try:
            found = migration.leaving_classic(group, member_id=member_id, instance_id=instance_id)
            self._fence(group, [found])
        except RefusedError as refusal:
            return refusal.code
        return ErrorCode.none

    def _start_timers(self, group: ConsumerGroup, member: ConsumerMember) -> None:
        group.timers.start(member, limits=self.limits(group.group_id), now=self._coordinator.now())

    def _expect_join(self, group: ConsumerGroup, member_id: str) -> None:
        member = group.members[member_id]
        group.timers.expect_join(member, now=self._coordinator.now())
        self._coordinator.schedule(group)

    # Time

    def tick(self, group: ConsumerGroup) -> None:
        """Remove the members whose time is over."""
        late = group.timers.late(self._coordinator.now())
        try:
            for member_id, what in late.items():
                if member_id in group.members and self._coordinator.groups.get(group.group_id) is group:
                    said = on_one_line(group.group_id), on_one_line(member_id)
                    logger.info("group %s: member %s is out: it %s in time", *said, what)
                    self._fence(group, [member_id])
        except RefusedError as refusal:
            logger.error("group %s cannot be written down: %s", on_one_line(group.group_id), refusal)
            group.timers.put_off(self._coordinator.now() + self.limits(group.group_id).session_timeout_ms)

    def _fence(self, group: ConsumerGroup, member_ids: Sequence[str]) -> None:
        """These members are out; and if only members of the classic protocol are left, the group is classic."""
        settings = self._host.settings
        policy, max_size = settings.group_consumer_migration_policy, settings.group_max_size
        if not goes_down(group, member_ids, policy=policy, max_size=max_size):
            self._commit(group, group.fence(member_ids, image=self.image))
            return
        limits, now = self._coordinator.limits, self._coordinator.now()
        classic = downgraded(group, member_ids, limits=limits, image=self.image, now=now)
        classic.changed_ms = self._host.clock.wall_ms()
        record = (encode_group_key(group.group_id), encode_group_value(classic))
        self._coordinator.write(group.group_id, [*self._coordinator.tombstones(group), record])
        logger.info("group %s is of the classic protocol again", on_one_line(group.group_id))
        self._coordinator.groups[group.group_id] = classic
        self._coordinator.carry_out(classic, classic.rebalance(now))

    def _moment(self, group_id: str) -> Moment:
        return Moment(image=self.image, limits=self.limits(group_id), now_ms=self._host.clock.wall_ms())

    def _existing(self, group_id: str) -> ConsumerGroup:
        group = self._coordinator.current(group_id)
        if group is None:
            raise RefusedError(ErrorCode.group_id_not_found, f"Group {group_id} not found.")
        if not isinstance(group, ConsumerGroup):
            raise RefusedError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")
        return group

    def _found_or_new(self, group_id: str, *, joins: bool) -> tuple[ConsumerGroup, list[KeyedRecord]]:
        """The group, and what must be written before anything of it."""
        group = self._coordinator.current(group_id)
        if isinstance(group, ConsumerGroup):
            return group, []
        if group is None:
            if not joins:
                raise RefusedError(ErrorCode.group_id_not_found, f"Consumer group {group_id} not found.")
            return ConsumerGroup(group_id=group_id), []
        if joins and group.state is GroupState.EMPTY:
            return ConsumerGroup(group_id=group_id), self._coordinator.tombstones(group)
        if joins:
            settings = self._host.settings
            policy, max_size = settings.group_consumer_migration_policy, settings.group_consumer_max_size
            check_upgrade(group, policy=policy, max_size=max_size)
            records = upgraded(group, self.image)
            successor = ConsumerGroup(group_id=group_id)
            for record in records:
                successor.apply(record)
            keyed = [consumer_records.encode(group_id, record) for record in records]
            return successor, [*self._coordinator.tombstones(group), *keyed]
        raise RefusedError(ErrorCode.group_id_not_found, f"Group {group_id} is not a consumer group.")

    def _commit(
        self, group: ConsumerGroup, records: Sequence[ConsumerRecord], *, before: Sequence[KeyedRecord] = ()
    ) -> None:
        """Down first, then true. Raises `RefusedError`."""
        if not records:
            return
        keyed = [consumer_records.encode(group.group_id, record) for record in records]
        self._coordinator.write(group.group_id, [*before, *keyed])
        predecessor = self._coordinator.groups.get(group.group_id)
        self._coordinator.groups[group.group_id] = group
        for record in records:
            self._coordinator.apply(group.group_id, record)
        self._coordinator.measure(group.group_id)
        if isinstance(predecessor, Group) and predecessor.members:
            logger.info("group %s is of the new consumer protocol now", on_one_line(group.group_id))
            self.loaded(group)
            self._coordinator.carry_out(predecessor, predecessor.dismissed())

    async def _resolve(
        self, group: ConsumerGroup, regexes: frozenset[str], may_describe: Callable[[str], bool]
    ) -> None:
        version, names = self.image.version, list(self.image.names())
        try:
            matched = await self._host.matchers.run(partial(_matched, regexes, names))
        finally:
            group.is_resolving = False
        if self._coordinator.groups.get(group.group_id) is not group:
            return
        now_ms = self._host.clock.wall_ms()
        visible = {name for name in frozenset().union(*matched.values()) if may_describe(name)}
        found: Mapping[str, ResolvedRegex] = {
            regex: ResolvedRegex(topics=topics & visible, version=version, timestamp_ms=now_ms)
            for regex, topics in matched.items()
        }
        try:
            self._commit(group, group.regexes_resolved(found, image=self.image))
        except RefusedError as refusal:
            logger.error("group %s cannot be written down: %s", on_one_line(group.group_id), refusal)
