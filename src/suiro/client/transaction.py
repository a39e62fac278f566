"""Transactions, by protocol V2 if the cluster has it, otherwise by V1. Three rules make them exactly once:

- **Fence first.** `init` returns only after every earlier transaction of the id is decided and all its markers are
  written. All other calls need the identity that it returns.
- **One epoch per transaction.** After `end` the identity must not be used again: a delayed copy of EndTxn could end the
  next transaction. `renew` returns the identity of the next transaction.
- **Abort by fencing.** `init` aborts the open transaction with a new epoch, so late batches of the old epoch are
  rejected. In V1, EndTxn(abort) alone would accept them.

V1 works with every broker since 2.5. V2 (KIP-890) needs a cluster that has finalized `transaction.version` 2; this is
looked up when an epoch begins. V2 sends fewer requests:

| call | state before | state after | V1 sends | V2 sends |
|---|---|---|---|---|
| `init` | any | ready | InitProducerId | InitProducerId |
| `join` | any | ready | nothing: another process has sent the `init` | nothing |
| `add_partitions` | ready | ready | AddPartitionsToTxn | nothing: a write adds the partition |
| `add_offsets` | ready | ready | AddOffsetsToTxn | nothing: a commit adds the group |
| `produce` | ready | ready | Produce | Produce |
| `commit_offsets` | ready | ready | TxnOffsetCommit | TxnOffsetCommit |
| `end` | ready | spent | EndTxn | EndTxn, whose response has the next identity |
| `renew` | spent | ready | InitProducerId | nothing |
| any error | ready | as before: repeat the call, or `init` | | |
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import timedelta
from typing import Any, NamedTuple

from suiro.client.cluster import GROUP, TRANSACTION, Cluster
from suiro.client.connection import Buffer, Connection, each_partition
from suiro.client.error_codes import error_for, raise_for
from suiro.client.leaders import by_topic
from suiro.client.offsets import check_metadata, topics_to_commit
from suiro.client.produce import produce
from suiro.errors import FencedError, RetriableKafkaError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import next_sequence, with_producer

FEATURE = "transaction.version"
V2 = 2
"""The level of the feature that means V2. (1 is about the brokers' own records.)"""

# By the version of a request a broker knows the protocol, so none of V2 may be sent in V1, nor the other way round.
_ADD_PARTITIONS_VERSIONS = (0, 3)  # the next ones are for brokers only
_ADD_OFFSETS_VERSIONS = (0, 4)
_COMMIT_VERSIONS, _JOINING_COMMIT_VERSIONS = (3, 4), (5, 5)
_END_VERSIONS, _RENEWING_END_VERSIONS = (0, 4), (5, 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdentity:
    """Producer id and epoch. A later epoch of the same transactional id fences this one."""

    id: int
    epoch: int


def new_producer(cluster: Cluster, *, timeout_ms: int | None = None) -> ProducerIdentity:
    """A producer id of its own, without a transactional id."""

    what = "take a producer id"

    def once(deadline_ms: int) -> ProducerIdentity:
        return _init_producer_id(
            cluster.any_broker(deadline_ms), what, deadline_ms, transactional_id=None, timeout_ms=60_000
        )

    return cluster.attempts(what, timeout_ms).run(once)


def _init_producer_id(
    connection: Connection,
    what: str,
    deadline_ms: int,
    *,
    transactional_id: str | None,
    timeout_ms: int,
    expected: ProducerIdentity | None = None,
) -> ProducerIdentity:
    request = connection.request(
        "init_producer_id",
        0 if expected is None else 3,
        5,
        transactional_id=transactional_id,
        transaction_timeout=timedelta(milliseconds=timeout_ms),
        producer_id=-1 if expected is None else expected.id,
        producer_epoch=-1 if expected is None else expected.epoch,
    )
    response = connection.call(request, deadline_ms=deadline_ms)
    raise_for(response.error_code, what)
    return _identity(connection, what, response)


def _identity(connection: Connection, what: str, response: Any) -> ProducerIdentity:
    """The identity that a broker gives. A batch with a producer id below 0 would be one without a producer: written
    outside of the transaction, and twice if it is sent twice."""
    identity = ProducerIdentity(id=response.producer_id, epoch=response.producer_epoch)
    if identity.id < 0 or identity.epoch < 0:
        raise connection.failure(what, f"gave producer id {identity.id} with epoch {identity.epoch}")
    return identity


class TransactionalBatch(NamedTuple):
    """A finished record batch without an identity; `record_count` is how many records it holds."""

    topic: str
    partition: int
    data: Buffer
    record_count: int
    crc_tail: int | None = None  # CRC-32C of the bytes behind the header, where it is known


class TransactionalProducer:
    """Created by `Client.transaction`. Runs one transaction at a time."""

    def __init__(self, cluster: Cluster, transactional_id: str, *, timeout_ms: int) -> None:
        if not transactional_id:
            raise UsageError("a transactional id has at least one character")
        self.transactional_id = transactional_id
        self._cluster = cluster
        self._timeout_ms = timeout_ms
        self._identity: ProducerIdentity | None = None
        self._spent = False
        self._following: tuple[ProducerIdentity, bool] | None = None  # V2: from `end` to `renew`
        self._is_v2 = False  # of this epoch
        self._is_open = False  # V1: the coordinator said so
        self._sequences: dict[TopicPartition, int] = {}

    @property
    def identity(self) -> ProducerIdentity | None:
        """The identity that `init` or `renew` returned last."""
        return self._identity

    @property
    def protocol(self) -> int:
        """The protocol version (1 or 2) of the current epoch."""
        return V2 if self._is_v2 else 1

    def join(self, identity: ProducerIdentity, protocol: int) -> None:
        """Takes part in the transaction of another process, which got the identity and protocol from `init`.

        Sequences start at 0, so a partition has one writer among all participants.
        """
        self._begin(identity, protocol == V2)

    @property
    def is_open(self) -> bool:
        """Whether the coordinator has an open transaction, as far as this producer knows. In V2 it cannot know."""
        return self._is_open

    def init(self, expected: ProducerIdentity | None = None, *, timeout_ms: int | None = None) -> ProducerIdentity:
        """Takes the transactional id over, aborting what is open, and returns the new identity.

        With `expected`, only if no other producer took it over since that identity; otherwise raises `FencedError`.
        Without it, always: all other producers are fenced.
        """
        what = f"initialise transactional id {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> tuple[ProducerIdentity, bool]:
            identity = _init_producer_id(
                connection,
                what,
                deadline_ms,
                transactional_id=self.transactional_id,
                timeout_ms=self._timeout_ms,
                expected=expected,
            )
            return identity, _speaks_v2(connection)

        self._identity = None
        return self._begin(*self._at_coordinator(what, once, timeout_ms))

    def renew(self) -> ProducerIdentity:
        """Returns the identity of the next transaction, after `end`. Raises `FencedError` if the id was taken over."""
        if self._identity is None:
            raise UsageError(f"transactional id {self.transactional_id!r} was never initialised; call init()")
        if self._following is not None:
            return self._begin(*self._following)
        return self.init(expected=self._identity) if self._spent else self._identity

    def _begin(self, identity: ProducerIdentity, is_v2: bool) -> ProducerIdentity:
        self._identity, self._is_v2 = identity, is_v2
        self._spent, self._following, self._is_open = False, None, False
        self._sequences.clear()
        return identity

    def add_partitions(self, partitions: Sequence[TopicPartition]) -> None:
        """Must be called before records are produced to the partitions. In V1, opens the transaction."""
        identity = self._ready("add partitions")
        what = f"add partitions to the transaction of {self.transactional_id!r}"
        topics = by_topic(dict.fromkeys(partitions))

        def once(connection: Connection, deadline_ms: int) -> None:
            request = connection.request(
                "add_partitions_to_txn",
                *_ADD_PARTITIONS_VERSIONS,
                v3_and_below_transactional_id=self.transactional_id,
                v3_and_below_producer_id=identity.id,
                v3_and_below_producer_epoch=identity.epoch,
                v3_and_below_topics=[
                    {"name": topic, "partitions": [partition for partition, _ in items]}
                    for topic, items in topics.items()
                ],
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            answers = (
                ((topic.name, item.partition_index), item.partition_error_code)
                for topic in response.results_by_topic_v3_and_below
                for item in topic.results_by_partition
            )
            _raise_worst(what, connection.matched(what, partitions, answers))

        if topics and not self._is_v2:
            self._at_coordinator(what, once)
            self._is_open = True

    def add_offsets(self, group: str) -> None:
        """Must be called before `commit_offsets`. In V1, opens the transaction, also without any records."""
        identity = self._ready("add offsets")
        what = f"add group {group!r} to the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            request = connection.request(
                "add_offsets_to_txn",
                *_ADD_OFFSETS_VERSIONS,
                transactional_id=self.transactional_id,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                group_id=group,
            )
            raise_for(connection.call(request, deadline_ms=deadline_ms).error_code, what)

        if not self._is_v2:
            self._at_coordinator(what, once)
            self._is_open = True

    def produce(
        self, batches: Iterable[TransactionalBatch | tuple[Any, ...]], *, timeout_ms: int | None = None
    ) -> list[int]:
        """Appends the batches in order, each under this identity and the next sequence of its partition.

        Returns base offsets, when every batch is acknowledged. After an error the sequences are unknown: call `init` to
        continue.
        """
        identity = self._ready("produce")
        try:
            return produce(
                self._cluster,
                self._stamped(identity, batches),
                transactional_id=self.transactional_id,
                joining=self._is_v2,
                timeout_ms=timeout_ms,
            )
        except BaseException:
            self._spent = True
            raise

    def commit_offsets(self, group: str, offsets: Mapping[TopicPartition, tuple[int, str]]) -> None:
        """Commits (offset, metadata) of each partition for the group, as part of the transaction."""
        identity = self._ready("commit offsets")
        check_metadata(offsets)
        what = f"commit offsets of group {group!r} in the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> None:
            versions = _JOINING_COMMIT_VERSIONS if self._is_v2 else _COMMIT_VERSIONS
            request = connection.request(
                "txn_offset_commit",
                *versions,
                transactional_id=self.transactional_id,
                group_id=group,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                generation_id=-1,
                member_id="",
                group_instance_id=None,
                topics=topics_to_commit(offsets),
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            answers = ((place, item.error_code) for place, item in each_partition(response.topics))
            _raise_worst(what, connection.matched(what, offsets, answers))

        self._cluster.at_coordinator(GROUP, group, what, once)

    def end(self, *, commit: bool = True, timeout_ms: int | None = None) -> None:
        """Decides the transaction; returns once the coordinator has confirmed it for this identity.

        After a lost response, the request is repeated with the same identity, which gives the same decision. An error
        means that the outcome is unknown: call `init`, then check whether your marker is there. Readers may have to
        wait a few milliseconds more, until the markers are written; where `renew` sends a request (V1), it has waited
        for them.
        """
        identity = self._ready("end the transaction")
        verb = "commit" if commit else "abort"
        what = f"{verb} the transaction of {self.transactional_id!r}"

        def once(connection: Connection, deadline_ms: int) -> tuple[ProducerIdentity, bool] | None:
            versions = _RENEWING_END_VERSIONS if self._is_v2 else _END_VERSIONS
            request = connection.request(
                "end_txn",
                *versions,
                transactional_id=self.transactional_id,
                producer_id=identity.id,
                producer_epoch=identity.epoch,
                committed=commit,
            )
            response = connection.call(request, deadline_ms=deadline_ms)
            raise_for(response.error_code, what)
            if not self._is_v2:
                return None
            following = _identity(connection, what, response)
            if following.id == identity.id and following.epoch <= identity.epoch:
                raise connection.failure(what, f"gave epoch {following.epoch} after {identity.epoch}")
            return following, _speaks_v2(connection)

        self._following = self._at_coordinator(what, once, timeout_ms)
        self._spent = True

    def abort(self) -> ProducerIdentity:
        """Aborts by fencing: the open transaction is aborted, and its late batches are rejected."""
        if self._identity is None:
            raise UsageError(f"transactional id {self.transactional_id!r} was never initialised; call init()")
        return self.resume(self._identity, left_open=self._is_open)

    def resume(self, identity: ProducerIdentity, *, left_open: bool) -> ProducerIdentity:
        """Takes over from the owner of an identity, who is gone, and aborts the transaction that was left open. Raises
        `FencedError` if somebody else took the id over meanwhile. `left_open` is the `is_open` of the owner."""
        try:
            return self.init(expected=identity)
        except FencedError:
            if not left_open:
                raise
            # In V1, the coordinator fences an open transaction with an epoch that it returns to nobody, and so does a
            # timeout. If somebody else had called `init`, they would have a later epoch.
            return self.init(expected=replace(identity, epoch=identity.epoch + 1))

    def _stamped(
        self, identity: ProducerIdentity, batches: Iterable[TransactionalBatch | tuple[Any, ...]]
    ) -> Iterator[tuple[str, int, Buffer]]:
        for item in batches:
            batch = TransactionalBatch(*item)
            target = (batch.topic, batch.partition)
            sequence = self._sequences.get(target, 0)
            self._sequences[target] = next_sequence(sequence, batch.record_count)
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
        if self._identity is None:
            raise UsageError(f"cannot {doing}: {self.transactional_id!r} was never initialised; call init() first")
        if self._spent:
            raise UsageError(
                f"cannot {doing}: {self.transactional_id!r} has ended its transaction, or lost it; call renew() after "
                "an end, else init()"
            )
        return self._identity

    def _at_coordinator(self, what: str, once: Callable[[Connection, int], Any], timeout_ms: int | None = None) -> Any:
        return self._cluster.at_coordinator(TRANSACTION, self.transactional_id, what, once, timeout_ms=timeout_ms)


def _speaks_v2(connection: Connection) -> bool:
    return connection.feature(FEATURE) >= V2


def _raise_worst(what: str, codes: Mapping[TopicPartition, ErrorCode]) -> None:
    """Raises the first error that a retry does not fix, else the first one.

    (OPERATION_NOT_ATTEMPTED only says that another partition of the request was refused.)
    """
    told = [
        error_for(code, f"{what}: {topic}-{partition}")
        for (topic, partition), code in codes.items()
        if code not in (ErrorCode.none, ErrorCode.operation_not_attempted)
    ]
    for error in told:
        if not isinstance(error, RetriableKafkaError):
            raise error
    if told:
        raise told[0]
