"""Produce: append one record batch to each named partition.

In Kafka's order: who may write where, which partitions there are, whether each has one batch of the format that
this version allows; then the transaction of transactional batches; then the log, which checks the batch itself
(CRC, sizes, the producer's epoch and sequence). Nothing here looks at records one by one, except where a topic
asks for what a batch's header does not tell: keys in a compacted topic, an oldest timestamp, another codec. Where that
may cost much it is done in a thread, before everything else, and what it found is taken up in its turn.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from suiro.broker.context import BrokerContext
from suiro.broker.coordination.transactions.state import V1, V2
from suiro.broker.exchange import NOTHING, Answer, Exchange, Nothing, RawResponse
from suiro.broker.handlers.produced_records import (
    RefusedBatch,
    UnreadableBatchError,
    costs_much,
    is_inspected,
    is_misdated,
    recompressed,
    refusal_of,
)
from suiro.broker.refusals import RefusedError, shown
from suiro.broker.security.acl import Operation, ResourceType
from suiro.broker.storage.topics import INTERNAL_TOPICS, Partition, Topic
from suiro.foundation.types import TopicPartition
from suiro.log import Appended, LogConfig, LogError
from suiro.log.errors import InvalidTimestampError
from suiro.protocol.compression import ZSTD
from suiro.protocol.fields import array_length, string
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import COMPRESSION_BITS, LOG_OVERHEAD, TRANSACTIONAL_BIT

if TYPE_CHECKING:
    from kio.schema.produce.v13.request import ProduceRequest


logger = logging.getLogger(__name__)

_LENGTH = slice(8, 12)
_MAGIC = 16
_CODEC = 22  # the low byte of the attributes
_PRODUCER_ID = slice(43, 51)
_PRODUCER_EPOCH = slice(51, 53)
_BASE_SEQUENCE = slice(53, 57)
_TO_MAGIC_SIZE = 17
_LEAST_LENGTH = 14  # of the oldest format, which Kafka checks before the format itself

_LOG_START_SINCE = 5
_MESSAGES_SINCE = 8
_FLEXIBLE_SINCE = 9
_TOPIC_IDS_SINCE = 13
_PARTITION_3 = struct.Struct(">ihqq")
_PARTITION_5 = struct.Struct(">ihqqq")
_NO_TAGS = b"\0"
_NO_TOPIC_ID = bytes(16)

# After these errors the log is unchanged, and Kafka says where it begins.
_TOO_LARGE = (ErrorCode.message_too_large, ErrorCode.record_list_too_large)
_WITHOUT_LOG_START = (ErrorCode.corrupt_message, *_TOO_LARGE, ErrorCode.kafka_storage_error)


class _RefusedError(RefusedError):
    """`records` names the records that were refused, by their place in the batch (KIP-467)."""

    def __init__(
        self,
        code: ErrorCode,
        message: str,
        *,
        log_start_offset: int = -1,
        records: Mapping[int, str] | None = None,
    ) -> None:
        super().__init__(code, message)
        self.log_start_offset = log_start_offset
        self.records = records or {}


@dataclass(frozen=True, slots=True)
class _Inspected:
    """The result of a thread: the refused records; the batch in the codec of its topic, or why there is none."""

    refused: RefusedBatch | None
    batch: bytes | UnreadableBatchError


@dataclass(slots=True)
class _Write:
    """One partition of the request, and the outcome of the write."""

    partition: Partition
    records: bytes
    inspected: _Inspected | None = None
    outcome: Appended | _RefusedError | None = field(default=None)


# Per topic (its name, or from version 13 on its id) and index. A partition named twice counts once, the last time.
_Answers = dict[Any, dict[int, _Write | _RefusedError]]


def produce(exchange: Exchange, request: ProduceRequest) -> Answer:
    """Produce: append one record batch to each named partition."""
    if _has_transactional(request) and not (
        request.transactional_id is not None
        and exchange.may(Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id)
    ):
        message = f"not allowed to write in transactions of {shown(repr(request.transactional_id))}"
        refusal = _RefusedError(ErrorCode.transactional_id_authorization_failed, message)
        return _answer(exchange, request, _plan(exchange, request, refusal))
    answers = _plan(exchange, request)
    now_ms = exchange.broker.clock.wall_ms()
    costly = [w for w in _writes(answers) if costs_much(w.records, w.partition.log.config, now_ms=now_ms)]
    if not costly:
        _write(exchange, request, _writes(answers))
        return _answer(exchange, request, answers)
    # With acks=0 the producer may be gone already; its records count all the same.
    outlives = request.acks == 0
    exchange.connection.hold_request(sum(len(write.records) for write in costly))
    work = _look_into_and_write(exchange, request, answers, costly)
    return exchange.in_task(work, until_abandoned=not outlives)


async def _look_into_and_write(
    exchange: Exchange,
    request: ProduceRequest,
    answers: _Answers,
    costly: Sequence[_Write],
) -> RawResponse | Nothing:
    now_ms = exchange.broker.clock.wall_ms()
    for write in costly:
        config = write.partition.log.config
        write.inspected = await exchange.broker.workers.run(partial(_look_into, write.records, config, now_ms))
    _write(exchange, request, _writes(answers))
    return _answer(exchange, request, answers)


def _look_into(batch: bytes, config: LogConfig, now_ms: int) -> _Inspected:
    """In a thread."""
    refused = None
    if is_inspected(config) or is_misdated(batch, config, now_ms=now_ms):
        refused = refusal_of(batch, config, now_ms=now_ms)
        if refused is not None and is_inspected(config):
            return _Inspected(refused, batch)
    try:
        return _Inspected(refused, recompressed(batch, config))
    except UnreadableBatchError as error:
        return _Inspected(refused, error)


def _writes(answers: _Answers) -> list[_Write]:
    return [write for of in answers.values() for write in of.values() if isinstance(write, _Write)]


def _answer(exchange: Exchange, request: ProduceRequest, answers: _Answers) -> RawResponse | Nothing:
    if exchange.broker.quotas is not None:
        sizes = (len(data.records or b"") for topic in request.topic_data for data in topic.partition_data)
        exchange.record_bytes("produce", sum(sizes))
    if request.acks == 0:
        # The producer hears nothing; a broken connection is how Kafka tells it that something is wrong.
        if any(_refusal(answer) for of in answers.values() for answer in of.values()):
            exchange.connection.close()
        return NOTHING
    return _layout(exchange.version, answers)


def _has_transactional(request: ProduceRequest) -> bool:
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records and len(records) > _CODEC and records[_MAGIC] == 2 and records[_CODEC] & TRANSACTIONAL_BIT:
                return True
    return False


def _plan(exchange: Exchange, request: ProduceRequest, refused: _RefusedError | None = None) -> _Answers:
    """The partitions to write, and those that are refused before their records are looked at. `refused`: all are."""
    by_id = exchange.version >= _TOPIC_IDS_SINCE
    topics = exchange.broker.topics
    answers: _Answers = {}
    data: Any  # has a name or an id, by version
    for data in request.topic_data:
        topic, refusal = topics.topic_by_id(data.topic_id) if by_id else topics.topic(data.name), refused
        if refusal is None and by_id and topic is None:
            refusal = _RefusedError(ErrorCode.unknown_topic_id, f"no topic has the id {data.topic_id}")
        elif refusal is None:
            name = topic.name if topic is not None else data.name
            if not exchange.may(Operation.WRITE, ResourceType.TOPIC, name):
                # A client that asks by id is not told the name of a topic that it may not see.
                asked = f"the topic with the id {data.topic_id}" if by_id else shown(name)
                refusal = _RefusedError(ErrorCode.topic_authorization_failed, f"not allowed to write to {asked}")
        of = answers.setdefault(data.topic_id if by_id else data.name, {})
        for entry in data.partition_data:
            of[entry.index] = refusal or _plan_one(exchange.version, topic, entry)
    return answers


def _plan_one(version: int, topic: Topic | None, entry: Any) -> _Write | _RefusedError:
    if topic is None or not 0 <= entry.index < len(topic.partitions):
        return _RefusedError(ErrorCode.unknown_topic_or_partition, f"there is no partition {entry.index} of this topic")
    try:
        return _Write(topic.partitions[entry.index], _one_batch(version, entry.records or b""))
    except _RefusedError as refusal:
        return refusal


def _one_batch(version: int, records: bytes) -> bytes:
    """The request's batch for one partition, without bytes behind it. Raises `_RefusedError` if it is not one batch."""
    length = int.from_bytes(records[_LENGTH], "big", signed=True)
    size = LOG_OVERHEAD + length
    if len(records) >= LOG_OVERHEAD and length < _LEAST_LENGTH:
        raise _RefusedError(ErrorCode.corrupt_message, f"a record batch cannot have the length {length}")
    if len(records) < max(size, _TO_MAGIC_SIZE):
        raise _RefusedError(ErrorCode.invalid_record, "a produce request needs one whole batch per partition")
    if records[_MAGIC] > 2:
        raise _RefusedError(ErrorCode.corrupt_message, f"no record batch has the format {records[_MAGIC]}")
    if records[_MAGIC] < 2:
        raise _RefusedError(
            ErrorCode.invalid_record,
            f"batches of format {records[_MAGIC]} are not accepted, only of format 2",
        )
    if version < 7 and records[_CODEC] & COMPRESSION_BITS == ZSTD:
        raise _RefusedError(ErrorCode.unsupported_compression_type, f"produce version {version} does not know zstd")
    if size == len(records):
        return records
    rest = records[size:]
    if len(rest) >= _TO_MAGIC_SIZE and len(rest) >= LOG_OVERHEAD + int.from_bytes(rest[_LENGTH], "big"):
        raise _RefusedError(ErrorCode.invalid_record, "a produce request takes one batch per partition")
    return records[:size]


def _write(exchange: Exchange, request: ProduceRequest, writes: list[_Write]) -> None:
    """Append each; the outcome is in the write itself."""
    if request.acks not in (-1, 0, 1):
        refusal = _RefusedError(ErrorCode.invalid_required_acks, f"acks = {request.acks}: use 0, 1 or -1")
        for write in writes:
            write.outcome = refusal
        return
    refused = _refused_by_transaction(exchange, request, writes)
    grown = []
    for write in writes:
        partition = write.partition
        counts = exchange.broker.metrics.topic(partition.topic)
        counts.produce_requests += 1
        code = refused.get((partition.topic, partition.index))
        if code is not None:
            why, start = f"not in an open transaction of {shown(str(request.transactional_id))}", -1
            if code is ErrorCode.out_of_order_sequence_number:
                why = "a transaction begins with sequence 0 in each partition; an earlier batch is missing"
                start = partition.log.log_start_offset
            write.outcome = _RefusedError(code, why, log_start_offset=start)
            continue
        try:
            write.outcome = appended = _append(exchange.broker, write)
        except _RefusedError as refusal:
            write.outcome = refusal
            counts.failed_produce_requests += 1
        except LogError as error:
            told = error.code not in _WITHOUT_LOG_START
            start = partition.log.log_start_offset if told else -1
            write.outcome = _RefusedError(error.code, str(error), log_start_offset=start)
            counts.failed_produce_requests += told  # the others Kafka counts apart, or not at all
            counts.bytes_rejected += len(write.records) if error.code in _TOO_LARGE else 0
        else:
            grown.append(partition)
            if not appended.duplicate:
                counts.messages_in += appended.last_offset - appended.base_offset + 1
                counts.bytes_in += len(write.records)
    for partition in grown:
        partition.grown()


def _append(broker: BrokerContext, write: _Write) -> Appended:
    partition = write.partition
    if partition.topic in INTERNAL_TOPICS:
        raise _RefusedError(
            ErrorCode.invalid_topic_exception,
            f"{partition.topic} is written by the node only",
            log_start_offset=partition.log.log_start_offset,
        )
    config, records, found = partition.log.config, write.records, write.inspected
    if is_inspected(config):
        _check_records(broker, write)
    if found is not None:
        records = _readable(partition, found.batch)
    elif config.compression_type != "producer":
        try:
            records = recompressed(records, config)
        except UnreadableBatchError as error:
            records = _readable(partition, error)
    try:
        return partition.log.append(records)
    except InvalidTimestampError:
        _check_records(broker, write)
        raise


def _readable(partition: Partition, batch: bytes | UnreadableBatchError) -> bytes:
    if isinstance(batch, UnreadableBatchError):
        raise _RefusedError(batch.code, str(batch), log_start_offset=partition.log.log_start_offset) from batch
    return batch


def _refused_by_transaction(
    exchange: Exchange, request: ProduceRequest, writes: list[_Write]
) -> Mapping[TopicPartition, ErrorCode]:
    """The codes of transactional batches that are not in an open transaction of their producer."""
    producers = set()
    asking = []
    for write in writes:
        batch = write.records
        if not batch[_CODEC] & TRANSACTIONAL_BIT:
            continue
        producer_id = int.from_bytes(batch[_PRODUCER_ID], "big", signed=True)
        if producer_id < 0:
            continue
        epoch = int.from_bytes(batch[_PRODUCER_EPOCH], "big", signed=True)
        producers.add((producer_id, epoch))
        if not write.partition.has_open_transaction(producer_id, epoch):
            asking.append(write)
    if len(producers) > 1:
        every = ((write.partition.topic, write.partition.index) for write in writes)
        return dict.fromkeys(every, ErrorCode.invalid_producer_id_mapping)
    if not asking:
        return {}
    ((producer_id, epoch),) = producers
    version = V2 if exchange.version >= 12 else V1
    assert request.transactional_id is not None, "a transactional batch without an id was refused before"
    codes = exchange.broker.transactions.admit(
        request.transactional_id,
        producer=(producer_id, epoch),
        partitions=[write.partition for write in asking],
        version=version,
    )
    if version >= V2:
        return codes | _not_from_the_start(asking, producer_id, epoch, codes)
    return {place: _for_old_clients(code, exchange.version) for place, code in codes.items()}


def _not_from_the_start(
    writes: list[_Write], producer_id: int, epoch: int, refused: Mapping[TopicPartition, ErrorCode]
) -> dict[TopicPartition, ErrorCode]:
    """V2 begins every transaction with sequence 0; another first sequence means that a batch was lost."""
    codes = {}
    for write in writes:
        place = (write.partition.topic, write.partition.index)
        sequence = int.from_bytes(write.records[_BASE_SEQUENCE], "big", signed=True)
        if place in refused or sequence <= 0:  # below 0 is no sequence at all, which the log tells
            continue
        entry = write.partition.log.producer(producer_id)
        if entry is None or (not entry.batches and entry.producer_epoch <= epoch):
            codes[place] = ErrorCode.out_of_order_sequence_number
    return codes


def _for_old_clients(code: ErrorCode, version: int) -> ErrorCode:
    match code:
        case ErrorCode.concurrent_transactions:
            return ErrorCode.not_enough_replicas  # retriable in every client
        case ErrorCode.transaction_abortable if version < 11:
            return ErrorCode.invalid_txn_state
    return code


def _check_records(broker: BrokerContext, write: _Write) -> None:
    """Raises where single records were refused."""
    log = write.partition.log
    if write.inspected is not None:
        refused = write.inspected.refused
    else:
        refused = refusal_of(write.records, log.config, now_ms=broker.clock.wall_ms())
    if refused is not None:
        raise _RefusedError(
            refused.code, refused.message, log_start_offset=log.log_start_offset, records=refused.records
        )


def _refusal(answer: _Write | _RefusedError) -> _RefusedError | None:
    outcome = answer.outcome if isinstance(answer, _Write) else answer
    return outcome if isinstance(outcome, _RefusedError) else None


# ProduceResponse by hand, versions 3 to 13: with kio's messages it took longer than the rest of a produce.
# Flexible versions (9 and up) have compact lengths, and a tag section (empty) after every structure.


def _layout(version: int, answers: _Answers) -> RawResponse:
    flexible = version >= _FLEXIBLE_SINCE
    tags = _NO_TAGS if flexible else b""
    body = bytearray(array_length(len(answers), flexible=flexible))
    for topic, of in answers.items():
        if version >= _TOPIC_IDS_SINCE:
            body += _NO_TOPIC_ID if topic is None else topic.bytes
        else:
            body += string(topic, flexible=flexible)
        body += array_length(len(of), flexible=flexible)
        for index, answer in of.items():
            _lay_out_partition(body, version, index, answer)
        body += tags
    throttle_at = len(body)
    body += bytes(4) + tags
    return RawResponse([bytes(body)], flexible, throttle_at)


def _lay_out_partition(body: bytearray, version: int, index: int, answer: _Write | _RefusedError) -> None:
    outcome = answer.outcome if isinstance(answer, _Write) else answer
    refusal = None
    if isinstance(outcome, Appended):
        code, base_offset, start = ErrorCode.none, outcome.base_offset, outcome.log_start_offset
        time = outcome.log_append_time
    else:
        assert outcome is not None
        refusal = outcome
        code, base_offset, start, time = outcome.code, -1, outcome.log_start_offset, -1
    if version < _LOG_START_SINCE:
        body += _PARTITION_3.pack(index, code, base_offset, time)
        return
    body += _PARTITION_5.pack(index, code, base_offset, time, start)
    if version < _MESSAGES_SINCE:
        return
    flexible = version >= _FLEXIBLE_SINCE
    tags = _NO_TAGS if flexible else b""
    records: Mapping[int, str] = {} if refusal is None else refusal.records
    body += array_length(len(records), flexible=flexible)
    for place, message in records.items():
        body += place.to_bytes(4, "big") + string(message, flexible=flexible) + tags
    body += string(None if refusal is None else str(refusal), flexible=flexible) + tags
