"""A member of a consumer group of the new protocol (KIP-848), and the values around it: partitions and epochs,
requests, answers, limits, and the moment.

A member is a value: rules make a new one, which replaces the old one in the group. A member may use its `assigned`
partitions and must still give back those in `pending_revocation`. Each partition has the epoch at which it was
assigned, by which a late commit of a former owner is recognized.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import IntEnum
from typing import Protocol, TypeAlias
from uuid import UUID

Partitions: TypeAlias = Mapping[UUID, frozenset[int]]
"""Topic id -> partitions."""

PartitionEpochs: TypeAlias = Mapping[UUID, Mapping[int, int]]
"""Topic id -> partition -> the epoch at which it was assigned."""

JOINING_EPOCH = 0
LEAVING_EPOCH = -1
STATIC_LEAVING_EPOCH = -2


class MemberState(IntEnum):
    """The numbers are those of the records.

    STABLE -> UNREVOKED_PARTITIONS when the target takes something away; -> UNRELEASED_PARTITIONS when what it
    gives is still another's; back to STABLE when the member has all of its target.
    """

    STABLE = 0
    UNREVOKED_PARTITIONS = 1
    UNRELEASED_PARTITIONS = 2
    UNKNOWN = 127


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicMember:
    """The session timeout and the protocols in the JoinGroup of a member that still uses the classic protocol."""

    session_timeout_ms: int
    protocols: tuple[tuple[str, bytes], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerMember:
    member_id: str
    member_epoch: int = 0
    previous_member_epoch: int = 0
    state: MemberState = MemberState.STABLE
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    client_id: str = ""
    client_host: str = ""
    topic_names: frozenset[str] = frozenset()
    topic_regex: str | None = ""
    server_assignor: str | None = None
    assigned: PartitionEpochs = field(default_factory=dict)
    pending_revocation: PartitionEpochs = field(default_factory=dict)
    classic: ClassicMember | None = None

    def is_reconciled_to(self, epoch: int) -> bool:
        return self.state is MemberState.STABLE and self.member_epoch == epoch

    def assigned_at(self, topic_id: UUID, partition: int) -> int | None:
        """The epoch at which the partition was assigned to this member; None if it does not own it."""
        epoch = self.assigned.get(topic_id, {}).get(partition)
        return self.pending_revocation.get(topic_id, {}).get(partition) if epoch is None else epoch

    def with_ownership_of(self, other: ConsumerMember) -> ConsumerMember:
        """This member with the epochs, the state and the partitions of the other: what an Ownership record says."""
        return replace(
            self,
            member_epoch=other.member_epoch,
            previous_member_epoch=other.previous_member_epoch,
            state=other.state,
            assigned=other.assigned,
            pending_revocation=other.pending_revocation,
        )

    def at_epoch(self, epoch: int) -> ConsumerMember:
        return replace(self, member_epoch=epoch, previous_member_epoch=self.member_epoch)


@dataclass(frozen=True, slots=True, kw_only=True)
class ResolvedRegex:
    """The topics that matched, when, and which version of the topic list that was."""

    topics: frozenset[str]
    version: int
    timestamp_ms: int


class TopicImage(Protocol):
    """The topics as a group's rules see them. `version` rises when a topic is made."""

    version: int

    def describe(self, name: str) -> tuple[UUID, int] | None:
        """(topic id, number of partitions) of a topic."""
        ...

    def name_of(self, topic_id: UUID) -> str | None: ...

    def names(self) -> Iterable[str]: ...


def without_epochs(assigned: PartitionEpochs) -> Partitions:
    return {topic_id: frozenset(partitions) for topic_id, partitions in assigned.items()}


def has_all(member: ConsumerMember, owned: Partitions | None) -> bool:
    """Whether the member reported partitions, and all of them are assigned to it."""
    if owned is None:
        return False
    return all(partitions <= member.assigned.get(topic, {}).keys() for topic, partitions in owned.items())


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerGroupLimits:
    session_timeout_ms: int = 45_000
    heartbeat_interval_ms: int = 5000
    max_size: int = 2**31 - 1
    assignors: tuple[str, ...] = ("uniform", "range")
    assignment_interval_ms: int = 1000
    regex_refresh_ms: int = 600_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Heartbeat:
    """A ConsumerGroupHeartbeat, checked for form. None: as before."""

    member_id: str
    member_epoch: int
    instance_id: str | None = None
    rack_id: str | None = None
    rebalance_timeout_ms: int = -1
    topic_names: tuple[str, ...] | None = None
    topic_regex: str | None = None
    server_assignor: str | None = None
    owned: Partitions | None = None
    client_id: str = ""
    client_host: str = ""

    @property
    def is_full(self) -> bool:
        """Whether the member repeats everything: it may have missed an answer."""
        subscribes = self.topic_names is not None or self.topic_regex is not None
        return self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class HeartbeatReply:
    member_id: str
    member_epoch: int
    assignment: Partitions | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The topics, limits and time (wall clock) that the rules decide by."""

    image: TopicImage
    limits: ConsumerGroupLimits
    now_ms: int
