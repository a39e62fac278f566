"""Transactions by the V1 protocol, which every broker since 2.5 speaks, under the rules that make it exact.

- **Fence first.** `init` succeeds only once every earlier transaction of the id is decided and all its markers are
  written. What it returns is needed for everything else.
- **One epoch per transaction.** After `end` the identity is spent: a delayed copy of the EndTxn could otherwise
  end the next transaction (the hole that KIP-890 closes in V2). `init(expected=...)` gets the next epoch.
- **Abort by fencing.** `init` aborts what is open, under a new epoch, so that late batches of the old one are
  refused. EndTxn(abort) alone would let them in.

| call | state before | state after |
|---|---|---|
| `init` | any | ready |
| `add_partitions`, `add_offsets`, `produce`, `commit_offsets` | ready | ready |
| `end` | ready | spent |
| any error | ready | as before: repeat the call, or `init` |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, NamedTuple

from suiro.client.cluster import GROUP, TRANSACTION, Cluster, TopicPartition
from suiro.client.connection import Buffer, Connection, build
from suiro.client.error_codes import error_for, raise_for
from suiro.client.leaders import by_topic
from suiro.client.offsets import check_metadata
from suiro.client.produce import produce
from suiro.errors import KafkaError, RetriableKafkaError, UsageError
from suiro.protocol.messages import API_KEYS, ErrorCode, nested, request_class
from suiro.protocol.record_batch import with_producer

__all__ = ["ProducerIdentity", "TransactionalBatch", "TransactionalProducer"]

# The highest versions of the V1 protocol; the next ones mean V2 to a broker, or are for brokers only.
_INIT_VERSIONS = (0, 5)
_ADD_PARTITIONS_VERSIONS = (0, 3)
_ADD_OFFSETS_VERSIONS = (0, 4)
_COMMIT_VERSIONS = (3, 4)
_END_VERSIONS = (0, 4)

_SEQUENCES = 1 << 31


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """What fences: a later epoch of the same transactional id makes this one void."""

    id: int
    epoch: int


class TransactionalBatch(NamedTuple):
    """A finished record batch without an identity; `record_count` is how many records it holds."""

    topic: str
    partition: int
    data: Buffer
    record_count: int
    crc_tail: int | None = None  # CRC-32C of the bytes behind the header, where it is known


class TransactionalProducer:
    """Made by `Client.transaction`. One transaction after another, never two at once."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
        if not transactional_id:
            raise UsageError("a transactional id has at least one character")
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._identity: ProducerIdentity | None = None
        self._spent = False
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def identity(self) -> ProducerIdentity | None:
        """The last one `init` returned."""
        return self._identity

    def init(
        self, expected: ProducerIdentity | None = None, *, timeout_ms: int | None = None
    ) -> ProducerIdentity:
        """Takes the transactional id over, aborting what is open, and returns the new identity.

        With `expected`, only if nobody else took it since that identity was handed out: `FencedError` otherwise.
        Without, always: everybody else is fenced.
        """
        what = f"initialise transactional id {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> ProducerIdentity:
            lowest = 3 if expected is not None else _INIT_VERSIONS[0]
            version = connection.version("init_producer_id", lowest, _INIT_VERSIONS[1])
            request = build(
                request_class(API_KEYS["init_producer_id"], version),
                transactional_id=self.transactional_id,
                transaction_timeout=timedelta(milliseconds=self._timeout_ms),
                producer_id=-1 if expected is None else expected.id,
                producer_epoch=-1 if expected is None else expected.epoch,
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            raise_for(response.error_code, what)
            return ProducerIdentity(id=response.producer_id, epoch=response.producer_epoch)

        self._identity = None
        self._identity = self._at_coordinator(what, once, timeout_ms)
        self._spent = False
        self._sequences.clear()
        return self._identity

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Before anything is produced to them. Opens the transaction."""
        identity = self._ready("add partitions")
        what = f"add partitions to the transaction of {self.transactional_id!r}"
        topics = by_topic(dict.fromkeys(partitions))

        def once(connection: Connection, deadline_ms: int) -> None:
            version = connection.version("add_partitions_to_txn", *_ADD_PARTITIONS_VERSIONS)
            message = request_class(API_KEYS["add_partitions_to_txn"], version)
            topic_class = nested(message, "AddPartitionsToTxnTopic")
            request = message(
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=identity.id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=tuple(
                    topic_class(name=topic, partitions=tuple(partition for partition, _ in items))
                    for topic, items in topics.items()
                ),
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            _raise_worst(
                error_for(item.partition_error_code, f"{what}: {topic.name}-{item.partition_index}")
                for topic in response.results_by_topic_v3_and_below
                for item in topic.results_by_partition
                if item.partition_error_code is not ErrorCode.none
            )

        if topics:
            self._at_coordinator(what, once)

    def add_offsets(self, group: str) -> None:
        """Before `commit_offsets`. Opens the transaction, also one without any records."""
        identity = self._ready("add offsets")
        what = f"add group {group!r} to the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            version = connection.version("add_offsets_to_txn", *_ADD_OFFSETS_VERSIONS)
            request = request_class(API_KEYS["add_offsets_to_txn"], version)(
                transactional_id=self.transactional_id,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                group_id=group,
            )
            raise_for(connection.call(request, deadline_ms=deadline_ms).error_code, what)

        self._at_coordinator(what, once)

    def produce(
        self, batches: Iterable[TransactionalBatch | tuple[Any, ...]], *, timeout_ms: int | None = None
    ) -> list[int]:
        """Appends the batches in order, each under this identity and the next sequence of its partition.

        Returns base offsets, when every batch is acknowledged. After an error the sequences are unknown: only
        `init` goes on from there.
        """
        identity = self._ready("produce")
        try:
            return produce(
                self._cluster,
                self._stamped(identity, batches),
                transactional_id=self.transactional_id,
                timeout_ms=timeout_ms,
            )
        except BaseException:
            self._spent = True
            raise

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """(offset, metadata) of each partition become the group's when the transaction commits."""
        identity = self._ready("commit offsets")
        check_metadata(offsets)
        what = f"commit offsets of group {group!r} in the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            version = connection.version("txn_offset_commit", *_COMMIT_VERSIONS)
            message = request_class(API_KEYS["txn_offset_commit"], version)
            topic_class = nested(message, "TxnOffsetCommitRequestTopic")
            partition_class = nested(message, "TxnOffsetCommitRequestPartition")
            request = message(
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=tuple(
                    topic_class(
                        name=topic,
                        partitions=tuple(
                            partition_class(
                                partition_index=partition,
                                committed_offset=offset,
                                committed_leader_epoch=-1,
                                committed_metadata=metadata,
                            )
                            for partition, (offset, metadata) in items
                        ),
                    )
                    for topic, items in by_topic(offsets).items()
                ),
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            _raise_worst(
                error_for(item.error_code, f"{what}: {topic.name}-{item.partition_index}")
                for topic in response.topics
                for item in topic.partitions
                if item.error_code is not ErrorCode.none
            )

        self._cluster.at_coordinator(GROUP, group, what, once)

    def end(self, *, commit: bool = True, timeout_ms: int | None = None) -> None:
        """Decides the transaction; returns once the coordinator said NONE to this very identity.

        A lost answer is asked for again under the same identity, which gives the same decision. An error means
        that the outcome is unknown: `init`, then look whether your marker is there.
        """
        identity = self._ready("end the transaction")
        verb = "commit" if commit else "abort"
        what = f"{verb} the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            version = connection.version("end_txn", *_END_VERSIONS)
            request = request_class(API_KEYS["end_txn"], version)(
                transactional_id=self.transactional_id,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                committed=commit,
            )
            raise_for(connection.call(request, deadline_ms=deadline_ms).error_code, what)

        self._at_coordinator(what, once, timeout_ms)
        self._spent = True

    def abort(self) -> ProducerIdentity:
        """Aborts by fencing: what is open ends as aborted, and late batches of it are refused."""
        if self._identity is None:
            raise UsageError(f"transactional id {self.transactional_id!r} was never initialised; call init()")
        return self.init(expected=self._identity)

    def _stamped(
        self, identity: ProducerIdentity, batches: Iterable[TransactionalBatch | tuple[Any, ...]]
    ) -> Iterator[tuple[str, int, Buffer]]:
        for item in batches:
            batch = TransactionalBatch(*item)
            target = (batch.topic, batch.partition)
            sequence = self._sequences.get(target, 0)
            self._sequences[target] = (sequence + batch.record_count) % _SEQUENCES
            data = with_producer(
                bytes(batch.data) if isinstance(batch.data, memoryview) else batch.data,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                base_sequence=sequence,
                transactional=True,
                crc_tail=batch.crc_tail,
            )
            yield batch.topic, batch.partition, data

    def _ready(self, doing: str) -> ProducerIdentity:
        if self._identity is None or self._spent:
            state = (
                "was never initialised" if self._identity is None else "has ended its transaction, or lost it"
            )
            raise UsageError(f"cannot {doing}: {self.transactional_id!r} {state}; call init() first")
        return self._identity

    def _at_coordinator(
        self, what: str, once: Callable[[Connection, int], Any], timeout_ms: int | None = None
    ) -> Any:
        return self._cluster.at_coordinator(
            TRANSACTION, self.transactional_id, what, once, timeout_ms=timeout_ms
        )


def _raise_worst(errors: Iterable[KafkaError]) -> None:
    """Raises the error that decides: one that no repetition mends, else the first.

    (OPERATION_NOT_ATTEMPTED only says that another partition of the request was refused.)
    """
    told = [error for error in errors if error.code_name != "OPERATION_NOT_ATTEMPTED"]
    for error in told:
        if not isinstance(error, RetriableKafkaError):
            raise error
    if told:
        raise told[0]
