"""The records of `__transaction_state`, in Kafka's own format (TransactionLogKey 0, TransactionLogValue 0 and 1)."""

from __future__ import annotations

from itertools import groupby

from suiro.broker.coordination.transactions.state import NO_PRODUCER_ID, V1, Transaction, TransactionState
from suiro.protocol.fields import FieldReader, FieldWriter

_KEY_VERSION = 0
_OLD_VALUE, _FLEXIBLE_VALUE = 0, 1
_PREVIOUS_PRODUCER_ID, _NEXT_PRODUCER_ID, _CLIENT_VERSION = range(3)  # the tags of version 1


def encode_key(transactional_id: str) -> bytes:
    return FieldWriter().int16(_KEY_VERSION).string(transactional_id).done()


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None where the record is of a kind we do not know."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def encode_value(transaction: Transaction, *, flexible: bool = True) -> bytes:
    """`flexible` is version 1, which transactions V2 need; version 0 is for readers older than that."""
    writer = (
        FieldWriter()
        .int16(_FLEXIBLE_VALUE if flexible else _OLD_VALUE)
        .int64(transaction.producer_id)
        .int16(transaction.producer_epoch)
        .int32(transaction.timeout_ms)
        .int8(transaction.state)
    )
    topics = [
        (topic, [index for _, index in group])
        for topic, group in groupby(sorted(transaction.partitions), key=lambda entry: entry[0])
    ]
    count = -1 if transaction.state is TransactionState.EMPTY else len(topics)
    if not flexible:
        writer.int32(count)
        for topic, indexes in topics:
            writer.string(topic).int32(len(indexes))
            for index in indexes:
                writer.int32(index)
        return writer.int64(transaction.update_ms).int64(transaction.start_ms).done()
    writer.compact_count(count)
    for topic, indexes in topics:
        writer.compact_string(topic).compact_count(len(indexes))
        for index in indexes:
            writer.int32(index)
        writer.tags()
    writer.int64(transaction.update_ms).int64(transaction.start_ms)
    return writer.tags(_tags(transaction)).done()


def _tags(transaction: Transaction) -> dict[int, bytes]:
    """The fields that do not have their default."""
    tags = {}
    if transaction.previous_producer_id != NO_PRODUCER_ID:
        tags[_PREVIOUS_PRODUCER_ID] = FieldWriter().int64(transaction.previous_producer_id).done()
    if transaction.next_producer_id != NO_PRODUCER_ID:
        tags[_NEXT_PRODUCER_ID] = FieldWriter().int64(transaction.next_producer_id).done()
    if transaction.version != V1:
        tags[_CLIENT_VERSION] = FieldWriter().int16(transaction.version).done()
    return tags


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises ValueError on a version that is neither 0 nor 1."""
    reader = FieldReader(value)
    value_version = reader.int16()
    if value_version not in (_OLD_VALUE, _FLEXIBLE_VALUE):
        raise ValueError(f"transaction {transactional_id}: its record has version {value_version}, known are 0 and 1")
    flexible = value_version == _FLEXIBLE_VALUE
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms, state = reader.int32(), TransactionState(reader.int8())
    partitions = []
    for _ in range(reader.compact_count() if flexible else max(0, reader.int32())):
        topic = reader.compact_string() if flexible else reader.string()
        count = reader.compact_count() if flexible else reader.int32()
        partitions += [(topic, reader.int32()) for _ in range(count)]
        if flexible:
            reader.tags()
    update_ms, start_ms = reader.int64(), reader.int64()
    tags = reader.tags() if flexible else {}
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        previous_producer_id=_producer_id(tags.get(_PREVIOUS_PRODUCER_ID)),
        next_producer_id=_producer_id(tags.get(_NEXT_PRODUCER_ID)),
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        start_ms=start_ms,
        update_ms=update_ms,
        version=FieldReader(tags[_CLIENT_VERSION]).int16() if _CLIENT_VERSION in tags else V1,
    )


def _producer_id(tag: bytes | None) -> int:
    return NO_PRODUCER_ID if tag is None else FieldReader(tag).int64()
