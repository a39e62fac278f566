"""The transaction coordinator: applies `state`'s decisions, writes them down, writes the markers.

Order is everything. A decision is appended to `__transaction_state` before a marker is written anywhere, and
COMPLETE_* only after the last marker. A start replays the topic: PREPARE_* goes on writing markers (one that is
written twice does no harm), ONGOING waits for its producer or its timeout.

All of this happens within one turn of the event loop, so nobody sees a transaction half ended; only where a
marker could not be written does a decision stay open, and it is tried again until it can.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from suiro.broker.coordination.transactions import records, state
from suiro.broker.coordination.transactions.producer_ids import NoProducerIdError, ProducerIds
from suiro.broker.coordination.transactions.state import PREPARED, Decision, Producer, Transaction, TransactionState
from suiro.broker.refusals import on_one_line
from suiro.broker.storage import system_log
from suiro.broker.storage.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, Partition
from suiro.foundation.types import TopicPartition
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode
from suiro.protocol.records import Record

if TYPE_CHECKING:
    from suiro.broker.coordination.host import TransactionHost

logger = logging.getLogger(__name__)

COORDINATOR_EPOCH = 0
_FEATURE = "transaction.version"
NO_IDENTITY = (state.NO_PRODUCER_ID, state.NO_PRODUCER_EPOCH)

# A marker that meets one of these is not needed any more: a newer one of this producer is there already.
_OVERTAKEN = (ErrorCode.invalid_producer_epoch, ErrorCode.transaction_coordinator_fenced)


class TransactionCoordinator:
    """Every transactional id of the node, and the producer ids."""

    def __init__(self, host: TransactionHost) -> None:
        self._host = host
        self._transactions: dict[str, Transaction] = {}
        self._producer_ids = ProducerIds(host.data)

    def load(self) -> None:
        """Replay `__transaction_state`, then finish what was decided."""
        topic = self._host.topics.topic(TRANSACTIONS_TOPIC)
        highest = -1
        if self._host.topics.adopted or not self._producer_ids.is_known:
            self._producer_ids.keep_off(part.log for part in self._host.topics.partitions())
        for partition in topic.partitions if topic else ():
            for header, batch in system_log.replay(partition.log):
                with system_log.reading(partition.log, header.base_offset):
                    for record in () if header.is_control else batch:
                        highest = max(highest, self._replay(record))
        self._producer_ids.skip_to(highest + 1)
        for transaction in [t for t in self._transactions.values() if t.state in PREPARED]:
            name = on_one_line(transaction.transactional_id)
            logger.info("finishing transaction of %s: %s", name, transaction.state.name)
            self._complete(transaction)
        if topic is not None:
            for partition in topic.partitions:
                self._compact(partition)

    def _replay(self, record: Record) -> int:
        """Returns the highest producer id in it."""
        transactional_id = records.decode_key(record.key or b"")
        if transactional_id is None:
            return state.NO_PRODUCER_ID
        if record.value is None:
            self._transactions.pop(transactional_id, None)
            return state.NO_PRODUCER_ID
        transaction = records.decode_value(transactional_id, record.value)
        self._transactions[transactional_id] = transaction
        return max(transaction.producer_id, transaction.next_producer_id)

    def _compact(self, partition: Partition) -> None:
        live = [
            (records.encode_key(t.transactional_id), self._value(t))
            for t in self._transactions.values()
            if self._partition_of(t.transactional_id) is partition
        ]
        system_log.compact(partition, live, timestamp=self._host.clock.wall_ms())

    def __iter__(self) -> Iterator[Transaction]:
        return iter(self._transactions.values())

    def find(self, transactional_id: str) -> Transaction | None:
        return self._transactions.get(transactional_id)

    @property
    def version(self) -> int:
        """The finalized level of `transaction.version`: what counts where no client has said which it speaks."""
        return self._host.features.finalized[_FEATURE]

    def init_producer_id(
        self, transactional_id: str | None, *, timeout_ms: int, expected: Producer | None
    ) -> tuple[ErrorCode, int, int]:
        """(error, producer id, epoch). Without a transactional id: a producer that is only idempotent."""
        if transactional_id == "":
            return ErrorCode.invalid_request, *NO_IDENTITY
        if transactional_id and not 0 < timeout_ms <= self._host.settings.transaction_max_timeout_ms:
            return ErrorCode.invalid_transaction_timeout, *NO_IDENTITY
        take = self._producer_ids.take
        try:
            if transactional_id is None:
                return ErrorCode.none, take(), 0
            decision = state.init_producer(
                self._transactions.get(transactional_id)
                or Transaction(transactional_id=transactional_id, producer_id=take(), timeout_ms=timeout_ms),
                expected=expected,
                timeout_ms=timeout_ms,
                version=self.version,
                now_ms=self._host.clock.wall_ms(),
                new_producer_id=take,
            )
        except NoProducerIdError as error:
            return self._without_id(error)
        code = self._apply(decision)
        if code is not ErrorCode.none or decision.next is None:
            return code, *NO_IDENTITY
        return code, decision.next.producer_id, decision.next.producer_epoch

    def add_partitions(
        self,
        transactional_id: str,
        *,
        producer: Producer,
        partitions: frozenset[TopicPartition],
        version: int,
    ) -> ErrorCode:
        """`version` is that of the client: V2 where the partitions join with what is written into them."""
        if not transactional_id:
            return ErrorCode.invalid_request
        return self._apply(
            state.add_partitions(
                self._transactions.get(transactional_id),
                producer=producer,
                partitions=partitions,
                version=version,
                now_ms=self._host.clock.wall_ms(),
            )
        )

    def verify(self, transactional_id: str, *, producer: Producer, partition: TopicPartition) -> ErrorCode:
        if not transactional_id:
            return ErrorCode.invalid_request
        return state.verify(
            self._transactions.get(transactional_id),
            producer=producer,
            partition=partition,
        )

    def admit(
        self,
        transactional_id: str,
        *,
        producer: Producer,
        partitions: Sequence[Partition],
        version: int,
    ) -> dict[TopicPartition, ErrorCode]:
        """The refusal of each partition whose log has no transaction of this producer open; nothing: it may write to
        all (KIP-890).

        Nothing gets into a log outside of an open transaction that is known here; else a late batch would leave one
        behind that nobody ever ends. In V1 the partitions are verified, unless that is switched off; in V2 they are
        added.
        """
        places = [(partition.topic, partition.index) for partition in partitions]
        codes: dict[TopicPartition, ErrorCode] = {}
        if version >= state.V2:
            code = self.add_partitions(
                transactional_id, producer=producer, partitions=frozenset(places), version=version
            )
            codes = dict.fromkeys(places, code)
        elif self._host.settings.transaction_partition_verification_enable:
            codes = {place: self.verify(transactional_id, producer=producer, partition=place) for place in places}
        # With this code a fenced producer can abort and go on.
        return {
            place: ErrorCode.invalid_producer_epoch if code is ErrorCode.producer_fenced else code
            for place, code in codes.items()
            if code is not ErrorCode.none
        }

    def end(
        self, transactional_id: str, *, producer: Producer, commit: bool, version: int
    ) -> tuple[ErrorCode, int, int]:
        """(error, producer id, epoch): in V2 the identity of the next transaction."""
        if not transactional_id:
            return ErrorCode.invalid_request, *NO_IDENTITY
        try:
            decision = state.end(
                self._transactions.get(transactional_id),
                producer=producer,
                commit=commit,
                version=version,
                now_ms=self._host.clock.wall_ms(),
                new_producer_id=self._producer_ids.take,
            )
        except NoProducerIdError as error:
            return self._without_id(error)
        code = self._apply(decision)
        if code is not ErrorCode.none or version < state.V2:
            return code, *NO_IDENTITY
        ended = self._transactions[transactional_id]
        if ended.state in PREPARED:  # a marker is still to come; the identity after it is known already
            ended = state.complete(ended, now_ms=ended.update_ms)
        return code, ended.producer_id, ended.producer_epoch

    def retry_and_time_out(self) -> None:
        """Finish what is decided and could not be finished; abort what has been ongoing for too long."""
        now = self._host.clock.wall_ms()
        for transaction in list(self._transactions.values()):
            if transaction.state in PREPARED:
                self._complete(transaction)
            elif transaction.state is TransactionState.ONGOING:
                self._abort_if_late(transaction, now)

    def _abort_if_late(self, transaction: Transaction, now_ms: int) -> None:
        if transaction.start_ms > now_ms:  # the clock was set back
            transaction = replace(transaction, start_ms=now_ms)
            self._transactions[transaction.transactional_id] = transaction
        deadline = transaction.times_out_at()
        if deadline is None or deadline >= now_ms:
            return
        name = on_one_line(transaction.transactional_id)
        logger.info("aborting the transaction of %s: open for longer than its %d ms", name, transaction.timeout_ms)
        try:
            fenced = state.fence(
                transaction, version=self.version, now_ms=now_ms, new_producer_id=self._producer_ids.take
            )
        except NoProducerIdError as error:
            self._without_id(error)
        else:
            self._apply(Decision(ErrorCode.none, fenced))

    def expire_ids(self) -> None:
        """Forget ids that nobody has used for `transactional.id.expiration.ms`."""
        oldest = self._host.clock.wall_ms() - self._host.settings.transactional_id_expiration_ms
        expired: dict[int, list[str]] = {}
        for transaction in self._transactions.values():
            if transaction.state in state.IDLE and transaction.update_ms <= oldest:
                name = transaction.transactional_id
                expired.setdefault(self._partition_of(name).index, []).append(name)
        for ids in expired.values():
            # One batch holds many: thousands may be due at once, and the loop stands still meanwhile.
            for together in system_log.in_batches(ids, lambda name: len(name.encode())):
                try:
                    self._append(dict.fromkeys(together))
                except LogError as error:
                    logger.warning("expired ids, %s and others: %s", on_one_line(together[0]), error)
                    continue
                for name in together:
                    del self._transactions[name]

    def _without_id(self, error: NoProducerIdError) -> tuple[ErrorCode, int, int]:
        logger.warning("%s", error)
        return ErrorCode.coordinator_load_in_progress, *NO_IDENTITY

    def _apply(self, decision: Decision) -> ErrorCode:
        """Write the next state, and the markers of a decision. Returns the code for the answer."""
        if decision.next is None:
            return decision.code
        try:
            self._store(decision.next)
        except LogError as error:
            name = on_one_line(decision.next.transactional_id)
            logger.warning("state of transaction %s: %s", name, error)
            # Kafka's coordinator answers this if it cannot write to its log: the client asks again.
            retriable = error.code is ErrorCode.kafka_storage_error
            return ErrorCode.not_coordinator if retriable else ErrorCode.unknown_server_error
        if decision.next.state in PREPARED:
            self._complete(decision.next)
        return decision.code

    def _store(self, transaction: Transaction) -> None:
        """Write the state, then apply it."""
        self._append({transaction.transactional_id: self._value(transaction)})
        self._transactions[transaction.transactional_id] = transaction

    def _value(self, transaction: Transaction) -> bytes:
        return records.encode_value(transaction, flexible=self.version > 0)

    def _append(self, values: Mapping[str, bytes | None]) -> None:
        """One batch, of ids that are in one partition."""
        system_log.append(
            self._partition_of(next(iter(values))),
            [(records.encode_key(name), value) for name, value in values.items()],
            timestamp=self._host.clock.wall_ms(),
        )

    def _partition_of(self, transactional_id: str) -> Partition:
        partitions = self._host.internal_topic(TRANSACTIONS_TOPIC).partitions
        return partitions[system_log.partition_for(transactional_id, len(partitions))]

    def _complete(self, transaction: Transaction) -> None:
        """Write the marker into every partition of the transaction, then say so in the log.

        What fails is logged and left for `retry_and_time_out`; it holds up no other partition or transaction.
        """
        commit = transaction.state is TransactionState.PREPARE_COMMIT
        unmarked = set()
        for topic, index in sorted(transaction.partitions):
            partition = self._host.topics.partition(topic, index)
            if partition is None:
                continue  # a topic deleted meanwhile has nothing to be marked
            try:
                self._mark(partition, transaction, commit=commit)
            except LogError as error:
                name = on_one_line(transaction.transactional_id)
                logger.warning("marker of %s in %s-%d, tried again: %s", name, topic, index, error)
                unmarked.add((topic, index))
        if unmarked:
            left = replace(transaction, partitions=frozenset(unmarked))
            self._transactions[transaction.transactional_id] = left
            return
        try:
            self._store(state.complete(transaction, now_ms=self._host.clock.wall_ms()))
        except LogError as error:
            name = on_one_line(transaction.transactional_id)
            logger.warning("end of transaction %s, tried again: %s", name, error)
            left = replace(transaction, partitions=frozenset())
            self._transactions[transaction.transactional_id] = left

    def _mark(self, partition: Partition, transaction: Transaction, *, commit: bool) -> None:
        # The node is the only coordinator, so it is the newest, whatever epoch an earlier one (a Kafka's) has left.
        entry = partition.log.producer(transaction.producer_id)
        seen = COORDINATOR_EPOCH if entry is None else entry.coordinator_epoch
        try:
            self.write_marker(
                partition,
                commit=commit,
                producer_id=transaction.producer_id,
                producer_epoch=transaction.producer_epoch,
                coordinator_epoch=max(COORDINATOR_EPOCH, seen),
                version=transaction.version,
            )
        except LogError as error:
            if error.code not in _OVERTAKEN:
                raise
            name = on_one_line(transaction.transactional_id)
            logger.info("marker of %s in %s-%d: %s", name, partition.topic, partition.index, error)
            self._end_offsets(partition, transaction.producer_id, commit=commit)

    def write_marker(
        self,
        partition: Partition,
        *,
        commit: bool,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        version: int,
    ) -> None:
        """End the transaction of a producer in a partition. Raises LogError where the partition does not take the
        marker. `version` is that of the transaction."""
        partition.log.append_control(
            commit=commit,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            coordinator_epoch=coordinator_epoch,
            transaction_version=version,
            timestamp=self._host.clock.wall_ms(),
        )
        self._end_offsets(partition, producer_id, commit=commit)
        partition.grown()

    def _end_offsets(self, partition: Partition, producer_id: int, *, commit: bool) -> None:
        """Tell the group coordinator the end of the transaction whose offsets wait in this partition."""
        if partition.topic == OFFSETS_TOPIC:
            self._host.groups.complete_transaction(partition.index, producer_id, commit=commit)
