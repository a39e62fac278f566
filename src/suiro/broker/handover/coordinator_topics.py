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


@dataclass(frozen=True, slots=True, kw_only=True)
class _Kept:
    owner: str
    """The group or transactional id."""
    offset: int
    timestamp: int
    value: bytes | None


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


@dataclass(frozen=True, slots=True)
class _Entry:
    """`producer`: id and epoch of the producer whose open transaction the record is a part of."""

    key: bytes
    kept: _Kept
    producer: tuple[int, int] | None


@dataclass(slots=True)
class _Content:
    """The current records of one partition; `pending` ones by producer (id, epoch)."""

    kept: dict[bytes, _Kept] = field(default_factory=dict)
    pending: dict[tuple[int, int], dict[bytes, _Kept]] = field(default_factory=dict)

    def put(self, entries: Iterable[tuple[bytes, _Kept]]) -> None:
        """A later record wins, even where an earlier one's transaction is committed after it."""
        for key, entry in entries:
            known = self.kept.get(key)
            if known is None or known.offset < entry.offset:
                self.kept[key] = entry


def owner_of(key: bytes) -> str:
    """The group or transactional id of a coordinator's record: every kind of key has it first, after its version."""
    reader = FieldReader(key)
    reader.int16()
    return reader.string()


def distribute(sources: Sequence[PartitionLog], targets: Targets) -> None:
    """Write the current records of the sources into the targets, which are empty. Raises LogError."""
    for source in sources:
        content = _content(source)
        entries = [_Entry(key, kept, None) for key, kept in content.kept.items()]
        for producer, pending in content.pending.items():
            entries += [_Entry(key, kept, producer) for key, kept in pending.items()]
        _write(entries, targets)


def distribute_transactions(
    sources: Sequence[PartitionLog], targets: Targets, *, offsets_partitions: int | None
) -> None:
    """The same for `__transaction_state`. `offsets_partitions`: the new number of partitions of `__consumer_offsets`; a
    transaction with offsets in it has a marker in each. Raises LogError."""
    for source in sources:
        kept = _content(source).kept
        if offsets_partitions is not None:
            kept = {key: _in_all_offsets(source, entry, offsets_partitions) for key, entry in kept.items()}
        _write([_Entry(key, entry, None) for key, entry in kept.items()], targets)


def highest_producer_id(sources: Iterable[PartitionLog]) -> int:
    """Of those in `__transaction_state`, -1 where there is none."""
    highest = -1
    for source in sources:
        for entry in _content(source).kept.values():
            if entry.value is not None:
                transaction = _transaction(source, entry, entry.value)
                highest = max(highest, transaction.producer_id, transaction.next_producer_id)
    return highest


def _transaction(source: PartitionLog, entry: _Kept, value: bytes) -> Transaction:
    with system_log.reading(source, entry.offset):
        return decode_value(entry.owner, value)


def _in_all_offsets(source: PartitionLog, entry: _Kept, count: int) -> _Kept:
    if entry.value is None:
        return entry
    transaction = _transaction(source, entry, entry.value)
    others = frozenset(place for place in transaction.partitions if place[0] != OFFSETS_TOPIC)
    if others == transaction.partitions:
        return entry
    everywhere = others | {(OFFSETS_TOPIC, index) for index in range(count)}
    flexible = FieldReader(entry.value).int16() > 0
    return replace(entry, value=encode_value(replace(transaction, partitions=everywhere), flexible=flexible))


def _content(log: PartitionLog) -> _Content:
    content = _Content()
    for header, records in system_log.replay(log):
        producer = (header.producer_id, header.producer_epoch)
        if header.is_control:
            # Transactions V2 write the marker under the epoch after that of the records.
            ended = [one for one in content.pending if one[0] == header.producer_id]
            for one in ended:
                entries = content.pending.pop(one)
                if control_type(records[0]) == "commit":
                    content.put(entries.items())
            continue
        with system_log.reading(log, header.base_offset):
            entries = {
                record.key: _Kept(
                    owner=owner_of(record.key), offset=record.offset, timestamp=record.timestamp, value=record.value
                )
                for record in records
                if record.key is not None
            }
        if header.is_transactional:
            content.pending.setdefault(producer, {}).update(entries)
        else:
            content.put(entries.items())
    return content


def _write(entries: Iterable[_Entry], targets: Targets) -> None:
    """In the order of their offsets: the later of two records of a key wins, whenever its transaction ends."""
    by_target: dict[int, list[_Entry]] = {}
    for entry in sorted(entries, key=lambda entry: entry.kept.offset):
        if entry.kept.value is not None or entry.producer is not None:
            index = system_log.partition_for(entry.kept.owner, targets.count)
            by_target.setdefault(index, []).append(entry)
    for index, found in by_target.items():
        for producer, together in groupby(found, key=lambda entry: entry.producer):
            for batch in system_log.in_batches(together, lambda entry: len(entry.key) + len(entry.kept.value or b"")):
                _append(targets.log(index), batch, producer or (-1, -1))


def _append(target: PartitionLog, entries: Sequence[_Entry], producer: tuple[int, int]) -> None:
    records = [
        Record(offset=index, timestamp=entry.kept.timestamp, key=entry.key, value=entry.kept.value)
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
