"""The records of `__transaction_state`, in Kafka's own format (TransactionLogKey 0, TransactionLogValue 0)."""

from __future__ import annotations

from itertools import groupby

from suiro.broker.fields import FieldReader, FieldWriter
from suiro.broker.transactions.state import Transaction, TransactionState

_KEY_VERSION = 0
_VALUE_VERSION = 0


def encode_key(transactional_id: str) -> bytes:
    return FieldWriter().int16(_KEY_VERSION).string(transactional_id).done()


def decode_key(key: bytes) -> str | None:
    """The transactional id, or None where the record is of a kind we do not know."""
    reader = FieldReader(key)
    return reader.string() if reader.int16() == _KEY_VERSION else None


def encode_value(transaction: Transaction) -> bytes:
    writer = (
        FieldWriter()
        .int16(_VALUE_VERSION)
        .int64(transaction.producer_id)
        .int16(transaction.producer_epoch)
        .int32(transaction.timeout_ms)
        .int8(transaction.state)
    )
    if transaction.state is TransactionState.EMPTY:
        writer.int32(-1)
    else:
        topics = [
            (topic, [index for _, index in group])
            for topic, group in groupby(sorted(transaction.partitions), key=lambda entry: entry[0])
        ]
        writer.int32(len(topics))
        for topic, indexes in topics:
            writer.string(topic).int32(len(indexes))
            for index in indexes:
                writer.int32(index)
    return writer.int64(transaction.update_ms).int64(transaction.start_ms).done()


def decode_value(transactional_id: str, value: bytes) -> Transaction:
    """Raises ValueError on a version that we do not write (1 is that of transactions V2)."""
    reader = FieldReader(value)
    version = reader.int16()
    if version != _VALUE_VERSION:
        raise ValueError(f"transaction {transactional_id}: its record has version {version}, known is 0")
    producer_id, producer_epoch = reader.int64(), reader.int16()
    timeout_ms, state = reader.int32(), TransactionState(reader.int8())
    partitions = []
    for _ in range(max(0, reader.int32())):
        topic = reader.string()
        partitions += [(topic, reader.int32()) for _ in range(reader.int32())]
    update_ms, start_ms = reader.int64(), reader.int64()
    return Transaction(
        transactional_id=transactional_id,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        timeout_ms=timeout_ms,
        state=state,
        partitions=frozenset(partitions),
        start_ms=start_ms,
        update_ms=update_ms,
    )
