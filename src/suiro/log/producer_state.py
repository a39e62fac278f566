"""The state of each producer of a partition, and the checks of an append against it. No I/O.

Always true:
- a batch equal to one of the producer's last five (same epoch, same first and last sequence) is a
  duplicate: it is answered with the old offsets and not written again (KIP-98, KAFKA-5494);
- otherwise sequences follow each other without a gap, wrap from 2**31-1 to 0, and a new producer
  epoch starts at 0;
- an epoch lower than the last one seen is fenced;
- `open_transactions` is in order of first offset, so its first value is the first unstable offset.

Rules and order of the checks are those of Kafka's ProducerAppendInfo and ProducerStateManager.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import NamedTuple

from suiro.log.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from suiro.protocol.record_batch import NO_SEQUENCE, BatchHeader, next_sequence

BATCHES_REMEMBERED = 5
NO_OFFSET = -1
NO_EPOCH = -1
TRANSACTIONS_V2 = 2


class AppendedBatch(NamedTuple):
    """One of a producer's last batches: what is needed to recognise a duplicate and to answer it."""

    last_sequence: int
    last_offset: int
    offset_delta: int
    timestamp: int

    @property
    def first_offset(self) -> int:
        return self.last_offset - self.offset_delta

    @property
    def first_sequence(self) -> int:
        return next_sequence(self.last_sequence, -self.offset_delta)


@dataclass(slots=True, kw_only=True)
class ProducerEntry:
    """One producer on one partition. `transaction_first_offset` is -1 outside a transaction.

    `whole` is false after a restart from a snapshot, which keeps only the last batch; `refill`
    brings the others back from the log where they are needed.
    """

    producer_id: int
    producer_epoch: int = NO_EPOCH
    coordinator_epoch: int = NO_EPOCH
    last_timestamp: int = -1
    transaction_first_offset: int = NO_OFFSET
    batches: deque[AppendedBatch] = field(default_factory=lambda: deque(maxlen=BATCHES_REMEMBERED))
    whole: bool = True

    @property
    def last_sequence(self) -> int:
        return self.batches[-1].last_sequence if self.batches else NO_SEQUENCE

    def take_epoch(self, producer_epoch: int) -> None:
        """Move to a new epoch, and forget the batches of the older one."""
        if producer_epoch != self.producer_epoch:
            self.producer_epoch = producer_epoch
            self.batches.clear()
            self.whole = True

    def refill(self, batches: Iterable[AppendedBatch]) -> None:
        """Put back the batches of this epoch that a snapshot had dropped, as they stand in the log: those before the
        ones known here. The latter stay, because retention may have taken them from the log."""
        known = self.batches
        older = [batch for batch in batches if batch.last_offset < known[0].last_offset]
        self.batches = deque((*older, *known), maxlen=BATCHES_REMEMBERED)
        self.whole = True

    def copy(self) -> ProducerEntry:
        return replace(self, batches=self.batches.copy())


class ProducerStates:
    """All producers of one partition. `check_*` methods only raise; `add_*` methods record an append."""

    def __init__(self, entries: Iterable[ProducerEntry] = ()) -> None:
        self.entries: dict[int, ProducerEntry] = {entry.producer_id: entry for entry in entries}
        open_entries = [e for e in self.entries.values() if e.transaction_first_offset >= 0]
        open_entries.sort(key=lambda entry: entry.transaction_first_offset)
        self.open_transactions: dict[int, int] = {
            entry.producer_id: entry.transaction_first_offset for entry in open_entries
        }

    @property
    def first_unstable_offset(self) -> int | None:
        return next(iter(self.open_transactions.values()), None)

    def duplicate_of(self, header: BatchHeader) -> AppendedBatch | None:
        """The remembered batch that this one repeats."""
        entry = self.entries.get(header.producer_id)
        if entry is None or entry.producer_epoch != header.producer_epoch:
            return None
        first, last = header.base_sequence, header.last_sequence
        for batch in entry.batches:
            if batch.last_sequence == last and batch.first_sequence == first:
                return batch
        return None

    def check_batch(self, header: BatchHeader, *, sequenced: bool = True) -> None:
        """Raise unless the batch may be appended now. A coordinator's own batches carry no sequences."""
        producer_id, producer_epoch = header.producer_id, header.producer_epoch
        entry = self.entries.get(producer_id)
        if entry is None:
            # The producer is new or expired, or retention has deleted its records. There is nothing to compare
            # with, so any sequence is accepted.
            return
        if producer_epoch < entry.producer_epoch:
            raise InvalidProducerEpochError(
                f"producer {producer_id} sent epoch {producer_epoch}, but epoch {entry.producer_epoch} "
                "has written here: this producer instance is fenced"
            )
        if sequenced:
            _check_sequence(entry, producer_epoch, header.base_sequence)
        if entry.transaction_first_offset >= 0 and not header.is_transactional:
            raise InvalidTransactionStateError(
                f"producer {producer_id} sent a batch outside its transaction, which is open since "
                f"offset {entry.transaction_first_offset}"
            )

    def add_batch(self, header: BatchHeader, *, first_offset: int, timestamp: int) -> None:
        """Record a batch of data that stands at an offset of the log."""
        entry = self._entry(header.producer_id)
        entry.take_epoch(header.producer_epoch)
        delta = header.last_offset_delta
        entry.batches.append(AppendedBatch(header.last_sequence, first_offset + delta, delta, timestamp))
        entry.last_timestamp = timestamp
        if header.is_transactional and entry.transaction_first_offset < 0:
            entry.transaction_first_offset = first_offset
            self.open_transactions[header.producer_id] = first_offset

    def check_marker(
        self,
        producer_id: int,
        producer_epoch: int,
        coordinator_epoch: int,
        *,
        transaction_version: int = 0,
    ) -> None:
        """Raise unless the coordinator may write a commit or abort marker with these numbers.

        In transactions V2 a marker has the epoch after that of the records. One with the same epoch is late and would
        end the producer's next transaction. If no transaction is open, it is only a repeat.
        """
        entry = self.entries.get(producer_id)
        if entry is None:
            return
        late = transaction_version >= TRANSACTIONS_V2 and (
            producer_epoch == entry.producer_epoch and entry.transaction_first_offset >= 0
        )
        if producer_epoch < entry.producer_epoch or late:
            raise InvalidProducerEpochError(
                f"marker for producer {producer_id} with epoch {producer_epoch}, but epoch "
                f"{entry.producer_epoch} has written here"
            )
        if coordinator_epoch < entry.coordinator_epoch:
            raise TransactionCoordinatorFencedError(
                f"marker for producer {producer_id} from coordinator epoch {coordinator_epoch}, but "
                f"coordinator epoch {entry.coordinator_epoch} has written here"
            )

    def add_marker(
        self, producer_id: int, producer_epoch: int, coordinator_epoch: int, *, timestamp: int
    ) -> int | None:
        """Record a marker. Returns the first offset of the transaction that it ended, or None if none was open here."""
        entry = self._entry(producer_id)
        entry.take_epoch(producer_epoch)
        entry.coordinator_epoch = coordinator_epoch
        entry.last_timestamp = timestamp
        first_offset = entry.transaction_first_offset
        if first_offset < 0:
            return None
        entry.transaction_first_offset = NO_OFFSET
        del self.open_transactions[producer_id]
        return first_offset

    def _entry(self, producer_id: int) -> ProducerEntry:
        entry = self.entries.get(producer_id)
        if entry is None:
            entry = self.entries[producer_id] = ProducerEntry(producer_id=producer_id)
        return entry

    def expire(self, before_ms: int) -> None:
        """Forget producers whose last batch is older than `before_ms` and who have no open transaction."""
        old = [
            entry.producer_id
            for entry in self.entries.values()
            if entry.last_timestamp < before_ms and entry.transaction_first_offset < 0
        ]
        for producer_id in old:
            del self.entries[producer_id]

    def copy_of(self, producer_ids: Iterable[int]) -> ProducerStates:
        """Returns a copy of these producers, to try several batches before any of them is written."""
        return ProducerStates(self.entries[p].copy() for p in set(producer_ids) if p in self.entries)


def _check_sequence(entry: ProducerEntry, producer_epoch: int, first_sequence: int) -> None:
    if producer_epoch != entry.producer_epoch:
        if first_sequence != 0 and entry.producer_epoch != NO_EPOCH:
            raise OutOfOrderSequenceError(
                f"producer {entry.producer_id} began epoch {producer_epoch} with sequence {first_sequence}; "
                "a new epoch begins with 0"
            )
        return
    last = entry.last_sequence
    if first_sequence != next_sequence(last, 1):
        raise OutOfOrderSequenceError(
            f"producer {entry.producer_id} (epoch {producer_epoch}) sent sequence {first_sequence} after "
            f"{last}; an earlier batch is missing"
        )
