"""The input and the output of the rules of a consumer group: requests, answers, limits, and the moment."""

from __future__ import annotations

from dataclasses import dataclass

from suiro.broker.coordination.groups.consumer_member import Partitions, TopicImage
from suiro.broker.coordination.groups.consumer_records import ConsumerRecord


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
class Outcome:
    """Write `records`, `apply` them, answer. `resolve`: regular expressions whose topics are to be found."""

    records: tuple[ConsumerRecord, ...]
    reply: HeartbeatReply
    resolve: frozenset[str] = frozenset()


@dataclass(frozen=True, slots=True, kw_only=True)
class Moment:
    """The topics, limits and time (wall clock) that the rules decide by."""

    image: TopicImage
    limits: ConsumerGroupLimits
    now_ms: int
