"""A transaction coordinator in memory, by the rules the committer relies on, with faults before or after any call.

By transactions V2 unless `KafkaDouble.is_v2` is off: partitions and groups join by being written to, and an end takes
the next epoch.

Faults are `(call, when)`: "lost request" fails before anything happened, "lost answer" after it happened.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from suiro.errors import FencedError, RefusedError, TransientError

Place = tuple[str, int]


@dataclass(frozen=True)
class Identity:
    id: int
    epoch: int


@dataclass(frozen=True)
class Committed:
    offset: int
    metadata: str


@dataclass
class Transaction:
    identity: Identity
    partitions: set[Place] = field(default_factory=set)
    groups: set[str] = field(default_factory=set)
    records: list[tuple[str, int, Any]] = field(default_factory=list)
    offsets: dict[tuple[str, Place], Committed] = field(default_factory=dict)


class KafkaDouble:
    """What the cluster holds: records that a read_committed reader sees, and committed offsets."""

    is_v2 = True

    def __init__(self, *, known_topics: Iterable[str] = ("out", "other", "__txn_markers")) -> None:
        self.topics = set(known_topics)
        self.records: list[tuple[str, int, Any]] = []
        self.offsets: dict[tuple[str, Place], Committed] = {}
        self.epochs: dict[str, int] = {}
        self.open: dict[str, Transaction] = {}
        self.decided: dict[str, tuple[Identity, bool]] = {}
        self.calls: list[str] = []
        self.faults: list[tuple[str, str]] = []

    def call(self, name: str) -> None:
        """Somebody asks."""
        self.calls.append(name)

    def time_out(self, transactional_id: str) -> None:
        """The coordinator has waited for long enough."""
        if self.open.pop(transactional_id, None) is not None:
            self.epochs[transactional_id] += 1

    def transaction(self, transactional_id: str, *, timeout_ms: int = 60_000) -> Producer:
        return Producer(self, transactional_id)

    def offset_fetch(
        self, group: str, partitions: Iterable[Place] | None = None, *, require_stable: bool = True
    ) -> Mapping[Place, Committed | None]:
        self.call("offset_fetch")
        return {place: self.offsets.get((group, place)) for place in partitions or ()}


class Producer:
    def __init__(self, kafka: KafkaDouble, name: str) -> None:
        self._kafka = kafka
        self._name = name
        self._identity: Identity | None = None
        self._following: Identity | None = None

    def init(self, expected: Identity | None = None) -> Identity:
        kafka = self._kafka
        self._before("init")
        epoch = kafka.epochs.get(self._name, -1)
        if expected is not None and expected.epoch != epoch:
            raise FencedError("init", "PRODUCER_FENCED")
        kafka.open.pop(self._name, None)  # aborted by fencing
        kafka.epochs[self._name] = epoch + 1
        self._after("init")
        self._identity, self._following = Identity(1, epoch + 1), None
        return self._identity

    @property
    def protocol(self) -> int:
        return 2 if self._kafka.is_v2 else 1

    def join(self, identity: Identity, protocol: int) -> None:
        assert protocol == self.protocol
        self._identity, self._following = identity, None

    def renew(self) -> Identity:
        if self._following is None:
            return self.init(self._identity)
        self._identity, self._following = self._following, None
        return self._identity

    def add_partitions(self, partitions: Sequence[Place]) -> None:
        if self._kafka.is_v2:
            return
        self._before("add_partitions")
        for topic, partition in partitions:
            if topic not in self._kafka.topics:
                raise RefusedError(f"{topic}-{partition}", "UNKNOWN_TOPIC_OR_PARTITION")
        self._opened().partitions.update(partitions)
        self._after("add_partitions")

    def add_offsets(self, group: str) -> None:
        if self._kafka.is_v2:
            return
        self._before("add_offsets")
        self._opened().groups.add(group)
        self._after("add_offsets")

    def produce(self, batches: Iterable[tuple[str, int, Any, int]]) -> None:
        for topic, partition, data, _ in batches:
            self._before("produce")
            if topic not in self._kafka.topics:
                raise RefusedError(f"{topic}-{partition}", "UNKNOWN_TOPIC_OR_PARTITION")
            transaction = self._opened()
            assert self._kafka.is_v2 or (topic, partition) in transaction.partitions, (
                "produced to a partition that was not added"
            )
            transaction.records.append((topic, partition, data))
            self._after("produce")

    def commit_offsets(self, group: str, offsets: Mapping[Place, tuple[int, str]]) -> None:
        self._before("commit_offsets")
        transaction = self._opened()
        assert self._kafka.is_v2 or group in transaction.groups, "committed offsets of a group that was not added"
        for place, (offset, metadata) in offsets.items():
            transaction.offsets[group, place] = Committed(offset, metadata)
        self._after("commit_offsets")

    def end(self, *, commit: bool = True) -> None:
        kafka = self._kafka
        self._before("end")
        identity = self._current()
        transaction = kafka.open.pop(self._name, None)
        if transaction is None:
            assert kafka.decided.get(self._name) == (identity, commit), "ended a transaction that was not open"
            return
        if commit:
            kafka.records += transaction.records
            kafka.offsets.update(transaction.offsets)
        kafka.decided[self._name] = (identity, commit)
        if kafka.is_v2:
            kafka.epochs[self._name] = identity.epoch + 1
            self._following = Identity(identity.id, identity.epoch + 1)
        self._after("end")

    def _opened(self) -> Transaction:
        identity = self._current()
        assert self._kafka.decided.get(self._name, (None,))[0] != identity, "two transactions under one epoch"
        return self._kafka.open.setdefault(self._name, Transaction(identity))

    def _current(self) -> Identity:
        if self._identity is None or self._identity.epoch != self._kafka.epochs.get(self._name):
            raise FencedError(self._name, "INVALID_PRODUCER_EPOCH")
        return self._identity

    def _before(self, call: str) -> None:
        self._kafka.call(call)
        self._fail(call, "lost request")

    def _after(self, call: str) -> None:
        self._fail(call, "lost answer")

    def _fail(self, call: str, when: str) -> None:
        if (call, when) in self._kafka.faults:
            self._kafka.faults.remove((call, when))
            raise TransientError(f"{when} of {call}")
