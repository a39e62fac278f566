"""Produce: append one record batch to each named partition.

The log checks the batch itself: CRC, sizes, and the producer's epoch and sequence. Here is checked who may write
where: a transactional batch only goes into a partition of the transaction that its producer has open
(KIP-890 part 1: without that, a late batch would leave a transaction that nobody ever ends).
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.broker.topics import Partition
from suiro.errors import CorruptRecordError
from suiro.log import Appended, LogError
from suiro.protocol.messages import ErrorCode
from suiro.protocol.records import count_without_key

_LENGTH = slice(8, 12)
_CODEC = 22  # the low byte of the attributes
_PRODUCER_ID = slice(43, 51)
_PRODUCER_EPOCH = slice(51, 53)
_TRANSACTIONAL = 0x10
_HEADER_SIZE = 61


class _RefusedError(Exception):
    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    failed = False
    grown: list[Partition] = []
    topics = []
    for topic in request.topic_data:
        answers = []
        for data in topic.partition_data:
            try:
                if request.acks not in (-1, 0, 1):
                    raise _RefusedError(
                        ErrorCode.invalid_required_acks, f"acks = {request.acks}: use 0, 1 or -1"
                    )
                partition = broker.topics.partition(topic.name, data.index)
                if partition is None:
                    raise _RefusedError(
                        ErrorCode.unknown_topic_or_partition,
                        f"there is no partition {topic.name}-{data.index}",
                    )
                appended = _append(broker, exchange, request, partition, data.records)
                grown.append(partition)
                answers.append(_success(exchange, data.index, appended))
            except (_RefusedError, LogError) as refusal:
                failed = True
                answers.append(_failure(exchange, data.index, refusal.code, str(refusal)))
        topics.append(
            exchange.make("TopicProduceResponse", name=topic.name, partition_responses=tuple(answers))
        )
    for partition in grown:
        partition.grown()
    if request.acks == 0:
        # The producer hears nothing; a broken connection is how Kafka tells it that something is wrong.
        if failed:
            exchange.connection.close()
        exchange.no_answer()
        return None
    return exchange.response(responses=tuple(topics), throttle_time=NO_THROTTLE)


def _append(
    broker: Broker, exchange: Exchange, request: Any, partition: Partition, records: bytes | None
) -> Appended:
    if partition.topic.startswith("__") and broker.is_internal(partition.topic):
        raise _RefusedError(
            ErrorCode.invalid_topic_exception, f"{partition.topic} is written by the node only"
        )
    if records is None or len(records) < _HEADER_SIZE:
        raise _RefusedError(ErrorCode.corrupt_message, "a produce request needs one whole record batch")
    size = 12 + int.from_bytes(records[_LENGTH], "big", signed=True)
    if size < len(records):
        raise _RefusedError(ErrorCode.invalid_record, "a produce request takes one batch per partition")
    if records[_CODEC] & _TRANSACTIONAL:
        code = _verify_transaction(broker, exchange, request.transactional_id, partition, records)
        if code is not ErrorCode.none:
            raise _RefusedError(
                code, f"{partition.topic}-{partition.index} is not in an open transaction of this producer"
            )
    if partition.log.config.compacted:
        _require_keys(records)
    return partition.log.append(records, leader_epoch=broker.leader_epoch, origin="client")


def _require_keys(batch: bytes) -> None:
    """Compaction goes by key. Looks into uncompressed batches only: the node does not carry the codecs."""
    if batch[_CODEC] & 0x07:
        return
    try:
        keyless = count_without_key(batch)
    except CorruptRecordError:
        return  # the log says what is wrong with it
    if keyless:
        raise _RefusedError(
            ErrorCode.invalid_record, f"{keyless} records without a key, and the topic is compacted by key"
        )


def _verify_transaction(
    broker: Broker, exchange: Exchange, transactional_id: str | None, partition: Partition, records: bytes
) -> ErrorCode:
    if not transactional_id:
        return ErrorCode.transactional_id_authorization_failed
    code = broker.transactions.verify(
        transactional_id,
        producer_id=int.from_bytes(records[_PRODUCER_ID], "big", signed=True),
        producer_epoch=int.from_bytes(records[_PRODUCER_EPOCH], "big", signed=True),
        partition=(partition.topic, partition.index),
    )
    match code:
        case ErrorCode.producer_fenced:
            return ErrorCode.invalid_producer_epoch  # what producers expect to hear here
        case ErrorCode.concurrent_transactions:
            return ErrorCode.not_enough_replicas  # retriable in every client
        case ErrorCode.transaction_abortable if exchange.version < 11:
            return ErrorCode.invalid_txn_state
    return code


def _success(exchange: Exchange, index: int, appended: Appended) -> Any:
    time = appended.log_append_time
    return exchange.make(
        "PartitionProduceResponse",
        index=index,
        error_code=ErrorCode.none,
        base_offset=appended.base_offset,
        log_append_time=datetime.fromtimestamp(time / 1000, UTC) if time is not None and time >= 0 else None,
        log_start_offset=appended.log_start_offset,
        record_errors=(),
        error_message=None,
    )


def _failure(exchange: Exchange, index: int, code: ErrorCode, message: str) -> Any:
    return exchange.make(
        "PartitionProduceResponse",
        index=index,
        error_code=code,
        base_offset=-1,
        log_append_time=None,
        log_start_offset=-1,
        record_errors=(),
        error_message=message,
    )
