"""The transaction coordinator: applies `state`'s decisions, writes them down, writes the markers.

Order is everything. A decision is appended to `__transaction_state` before a marker is written anywhere, and
COMPLETE_* only after the last marker. A start replays the topic: PREPARE_* goes on writing markers (one that is
written twice does no harm), ONGOING waits for its producer or its timeout.

All of this happens within one turn of the event loop, so nobody sees a transaction half ended.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.broker import system_log
from suiro.broker.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition, write_atomically
from suiro.broker.transactions import records, state
from suiro.broker.transactions.state import PREPARED, TopicPartition, Transaction, TransactionState
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.broker import Broker

logger = logging.getLogger(__name__)

COORDINATOR_EPOCH = 0
_ID_BLOCK = 1000


class ProducerIds:
    """Producer ids that no producer of this data directory has had: reserved in blocks, before use."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = self._reserved = int(path.read_text()) if path.exists() else 0

    def take(self) -> int:
        if self._next == self._reserved:
            reserved = self._reserved + _ID_BLOCK
            write_atomically(self._path, str(reserved).encode())
            self._reserved = reserved  # only now: on a full disk none of the block may be handed out
        self._next += 1
        return self._next - 1

    def skip_to(self, producer_id: int) -> None:
        """Ids below were seen in use: a directory that comes from elsewhere has no file of ours."""
        if producer_id > self._reserved:
            self._next = self._reserved = producer_id


class TransactionCoordinator:
    """Every transactional id of the node, and the producer ids."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker
        self._transactions: dict[str, Transaction] = {}
        self._producer_ids = ProducerIds(broker.config.data / "producer-ids")

    def load(self) -> None:
        """Replay `__transaction_state`, then finish what was decided."""
        topic = self._broker.topics.topic(TRANSACTIONS_TOPIC)
        highest = -1
        for partition in topic.partitions if topic else ():
            for _, batch in system_log.replay(partition.log):
                for record in batch:
                    transactional_id = records.decode_key(record.key or b"")
                    if transactional_id is None:
                        continue
                    if record.value is None:
                        self._transactions.pop(transactional_id, None)
                        continue
                    transaction = records.decode_value(transactional_id, record.value)
                    highest = max(highest, transaction.producer_id)
                    self._transactions[transactional_id] = transaction
        self._producer_ids.skip_to(highest + 1)
        for transaction in [t for t in self._transactions.values() if t.state in PREPARED]:
            logger.info(
                "finishing transaction of %s: %s", transaction.transactional_id, transaction.state.name
            )
            self._complete(transaction)
        for partition in topic.partitions if topic else ():
            self._compact(partition, len(topic.partitions) if topic else 1)

    def _compact(self, partition: Partition, count: int) -> None:
        live = [
            (records.encode_key(t.transactional_id), records.encode_value(t))
            for t in self._transactions.values()
            if system_log.partition_for(t.transactional_id, count) == partition.index
        ]
        system_log.compact(
            partition, live, timestamp=self._broker.clock.wall_ms(), leader_epoch=self._broker.leader_epoch
        )

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    def init_producer_id(
        self, transactional_id: str | None, *, timeout_ms: int, expected: tuple[int, int] | None
    ) -> tuple[ErrorCode, int, int]:
        """(error, producer id, epoch). Without a transactional id: a producer that is only idempotent."""
        if transactional_id is None:
            return ErrorCode.none, self._producer_ids.take(), 0
        if not transactional_id:
            return ErrorCode.invalid_request, -1, -1
        if not 0 < timeout_ms <= self._broker.settings.transaction_max_timeout_ms:
            return ErrorCode.invalid_transaction_timeout, -1, -1
        transaction = self._transactions.get(transactional_id)
        if transaction is None:
            transaction = Transaction(
                transactional_id=transactional_id,
                producer_id=self._producer_ids.take(),
                timeout_ms=timeout_ms,
            )
        decision = state.init_producer(
            transaction,
            expected=expected,
            timeout_ms=timeout_ms,
            now_ms=self._broker.clock.wall_ms(),
            new_producer_id=self._producer_ids.take,
        )
        if decision.next is None:
            return decision.code, -1, -1
        if decision.code is not ErrorCode.none:
            self._abort_fenced(decision.next)
            return decision.code, -1, -1
        self._store(decision.next)
        return ErrorCode.none, decision.next.producer_id, decision.next.producer_epoch

    def add_partitions(
        self,
        transactional_id: str,
        *,
        producer_id: int,
        producer_epoch: int,
        partitions: frozenset[TopicPartition],
    ) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        decision = state.add_partitions(
            self._transactions.get(transactional_id),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partitions=partitions,
            now_ms=self._broker.clock.wall_ms(),
        )
        if decision.next is not None:
            self._store(decision.next)
        return decision.code

    def verify(
        self, transactional_id: str, *, producer_id: int, producer_epoch: int, partition: TopicPartition
    ) -> ErrorCode:
        return state.verify(
            self._transactions.get(transactional_id),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            partition=partition,
        )

    def end(self, transactional_id: str, *, producer_id: int, producer_epoch: int, commit: bool) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        decision = state.end(
            self._transactions.get(transactional_id),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            commit=commit,
            now_ms=self._broker.clock.wall_ms(),
        )
        if decision.next is not None:
            self._store(decision.next)
            self._complete(decision.next)
        return decision.code

    def abort_timed_out(self) -> None:
        """Abort what has been ongoing for longer than its producer said it would."""
        now = self._broker.clock.wall_ms()
        for transaction in list(self._transactions.values()):
            deadline = transaction.times_out_at()
            if deadline is not None and deadline <= now:
                logger.info(
                    "aborting the transaction of %s: open for longer than its %d ms",
                    transaction.transactional_id,
                    transaction.timeout_ms,
                )
                self._abort_fenced(state.fence(transaction, now_ms=now))
            elif transaction.state in PREPARED:
                self._complete(transaction)  # a marker could not be written; it is tried again

    def expire_ids(self) -> None:
        """Forget ids that nobody has used for `transactional.id.expiration.ms`."""
        oldest = self._broker.clock.wall_ms() - self._broker.settings.transactional_id_expiration_ms
        for transaction in list(self._transactions.values()):
            if transaction.state in state.IDLE and transaction.update_ms < oldest:
                self._append(transaction.transactional_id, None)
                del self._transactions[transaction.transactional_id]

    def _abort_fenced(self, fenced: Transaction) -> None:
        prepared = state.prepare(fenced, commit=False, now_ms=self._broker.clock.wall_ms())
        self._store(prepared)
        self._complete(prepared)

    def _store(self, transaction: Transaction) -> None:
        """Down first, then true."""
        self._append(transaction.transactional_id, records.encode_value(transaction))
        self._transactions[transaction.transactional_id] = transaction

    def _append(self, transactional_id: str, value: bytes | None) -> None:
        topic = self._broker.internal_topic(TRANSACTIONS_TOPIC)
        system_log.append(
            topic.partitions[system_log.partition_for(transactional_id, len(topic.partitions))],
            [(records.encode_key(transactional_id), value)],
            timestamp=self._broker.clock.wall_ms(),
            leader_epoch=self._broker.leader_epoch,
        )

    def _complete(self, transaction: Transaction) -> None:
        """Write the marker into every partition of the transaction, then say so in the log."""
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        for topic, index in sorted(transaction.partitions):
            partition = self._broker.topics.partition(topic, index)
            if partition is not None:  # a topic deleted meanwhile has nothing to be marked
                self._write_marker(partition, transaction, commit=commit)
        self._store(state.complete(transaction, now_ms=self._broker.clock.wall_ms()))

    def _write_marker(self, partition: Partition, transaction: Transaction, *, commit: bool) -> None:
        try:
            partition.log.append_control(
                commit=commit,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                coordinator_epoch=COORDINATOR_EPOCH,
                timestamp=self._broker.clock.wall_ms(),
            )
        except LogError as error:
            if error.code is not ErrorCode.invalid_producer_epoch:
                raise
            # A newer epoch of this producer is there already, so this marker was written before a crash.
            logger.info(
                "marker of %s in %s-%d: %s",
                transaction.transactional_id,
                partition.topic,
                partition.index,
                error,
            )
        if partition.topic == OFFSETS_TOPIC:
            self._broker.groups.complete_transaction(partition.index, transaction.producer_id, commit=commit)
        partition.grown()
