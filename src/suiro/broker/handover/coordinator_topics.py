"""Writes `__consumer_offsets` and `__transaction_state` again, over another number of partitions.

A node has few partitions of them, Apache Kafka many, and the number can never change later: the partition of a group or
of a transactional id depends on it. The last value of every key is written in Kafka's own records. The offsets that an
open transaction has committed so far are written as a part of it. Aborted and deleted ones are left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby

from suiro.broker.coordination.transactions.records import decode_value, encode_value
from suiro.broker.coordination.transactions.state import Transaction
from suiro.broker.storage import system_log
from suiro.broker.storage.topics import OFFSETS_TOPIC
from suiro.log import PartitionLog
from suiro.protocol.fields import FieldReader
from suiro.protocol.records import Record, control_type, encode_batch


@dataclass(slots=True)
class Targets:
    """The new partitions; the log of each is made when something is written to it."""

    count: int
    make: Callable[[int], PartitionLog]
    made: dict[int, PartitionLog] = field(default_factory=dict)

    def log(self, index: int) -> PartitionLog:
        if index not in self.made:
            self.made[index] = self.make(index)
        return self.made[index]


@dataclass(frozen=True, slots=True, kw_only=True)
class _Entry:
    """The current record of a key. `owner` is the group or transactional id, `producer` the (id, epoch) whose open
    transaction the record is a part of."""

    key: bytes
    owner: str
    offset: int
    timestamp: int
    value: bytes | None
    producer: tuple[int, int] | None


def owner_of(key: bytes) -> str:
    """The group or transactional id of a coordinator's record: every kind of key has it first, after its version."""
    reader = FieldReader(key)
    reader.int16()
    return reader.string()


def distribute(sources: Sequence[PartitionLog], targets: Targets) -> None:
    """Write the current records of the sources into the targets, which are empty. Raises LogError."""
    for source in sources:
        _write(_entries(source), targets)


def distribute_transactions(
    sources: Sequence[PartitionLog], targets: Targets, *, offsets_partitions: int | None
) -> None:
    """The same for `__transaction_state`. `offsets_partitions`: the new number of partitions of `__consumer_offsets`; a
    transaction with offsets in it has a marker in each. Raises LogError."""
    for source in sources:
        entries = _entries(source)
        if offsets_partitions is not None:
            entries = [_in_all_offsets(source, entry, offsets_partitions) for entry in entries]
        _write(entries, targets)


def highest_producer_id(sources: Iterable[PartitionLog]) -> int:
    """Of those in `__transaction_state`, -1 where there is none."""
    highest = -1
    for source in sources:
        for entry in _entries(source):
            if entry.value is not None:
                transaction = _transaction(source, entry, entry.value)
                highest = max(highest, transaction.producer_id, transaction.next_producer_id)
    return highest


def _transaction(source: PartitionLog, entry: _Entry, value: bytes) -> Transaction:
    with system_log.reading(source, entry.offset):
        return decode_value(entry.owner, value)


def _in_all_offsets(source: PartitionLog, entry: _Entry, count: int) -> _Entry:
    if entry.value is None:
        return entry
    transaction = _transaction(source, entry, entry.value)
    others = frozenset(place for place in transaction.partitions if place[0] != OFFSETS_TOPIC)
    if others == transaction.partitions:
        return entry
    everywhere = others | {(OFFSETS_TOPIC, index) for index in range(count)}
    flexible = FieldReader(entry.value).int16() > 0
    return replace(entry, value=encode_value(replace(transaction, partitions=everywhere), flexible=flexible))


def _entries(log: PartitionLog) -> list[_Entry]:
    """The last record of each key, and those that wait for the end of a transaction."""
    current: dict[bytes, _Entry] = {}
    pending: dict[tuple[int, int], dict[bytes, _Entry]] = {}
    for header, records in system_log.replay(log):
        if header.is_control:
            # Transactions V2 write the marker under the epoch after that of the records.
            for ended_by in [one for one in pending if one[0] == header.producer_id]:
                ended = pending.pop(ended_by)
                for key, entry in ended.items() if control_type(records[0]) == "commit" else ():
                    # A later record wins, even where an earlier one's transaction is committed after it.
                    if key not in current or current[key].offset < entry.offset:
                        current[key] = replace(entry, producer=None)
            continue
        producer = (header.producer_id, header.producer_epoch) if header.is_transactional else None
        into = current if producer is None else pending.setdefault(producer, {})
        with system_log.reading(log, header.base_offset):
            for record in records:
                if record.key is not None:
                    into[record.key] = _Entry(
                        key=record.key,
                        owner=owner_of(record.key),
                        offset=record.offset,
                        timestamp=record.timestamp,
                        value=record.value,
                        producer=producer,
                    )
    return [*current.values(), *(entry for entries in pending.values() for entry in entries.values())]


def _write(entries: Iterable[_Entry], targets: Targets) -> None:
    """In the order of their offsets: the later of two records of a key wins, whenever its transaction ends."""
    by_target: dict[int, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.offset):
        if entry.value is not None or entry.producer is not None:
            index = system_log.partition_for(entry.owner, targets.count)
            by_target.setdefault(index, []).append(entry)
    for index, found in by_target.items():
        for producer, together in groupby(found, key=lambda entry: entry.producer):
            for batch in system_log.in_batches(together, lambda entry: len(entry.key) + len(entry.value or b"")):
                _append(targets.log(index), batch, producer or (-1, -1))


def _append(target: PartitionLog, entries: Sequence[_Entry], producer: tuple[int, int]) -> None:
    records = [
        Record(offset=index, timestamp=entry.timestamp, key=entry.key, value=entry.value)
        for index, entry in enumerate(entries)
    ]
    producer_id, producer_epoch = producer
    batch = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=-1,
        transactional=producer_id >= 0,
    )
    target.append(batch, origin="coordinator")
