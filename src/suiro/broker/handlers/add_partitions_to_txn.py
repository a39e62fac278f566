"""AddPartitionsToTxn, as producers send it (version 4 and up is between brokers). All partitions or none."""

from __future__ import annotations

from typing import Any

from suiro.broker.broker import Broker
from suiro.broker.dispatch import Exchange
from suiro.broker.handlers import NO_THROTTLE
from suiro.protocol.messages import ErrorCode


def handle(broker: Broker, exchange: Exchange, request: Any) -> Any:
    wanted = [(t.name, index) for t in request.v3_and_below_topics for index in t.partitions]
    codes = {
        (topic, index): ErrorCode.none
        if broker.topics.partition(topic, index) is not None and not broker.is_internal(topic)
        else ErrorCode.unknown_topic_or_partition
        for topic, index in wanted
    }
    if any(code is not ErrorCode.none for code in codes.values()):
        codes = {
            key: ErrorCode.operation_not_attempted if code is ErrorCode.none else code
            for key, code in codes.items()
        }
    else:
        code = broker.transactions.add_partitions(
            request.v3_and_below_transactional_id,
            producer_id=request.v3_and_below_producer_id,
            producer_epoch=request.v3_and_below_producer_epoch,
            partitions=frozenset(wanted),
        )
        if code is ErrorCode.producer_fenced and exchange.version < 2:
            code = ErrorCode.invalid_producer_epoch
        codes = dict.fromkeys(codes, code)
    results = tuple(
        exchange.make(
            "AddPartitionsToTxnTopicResult",
            name=topic.name,
            results_by_partition=tuple(
                exchange.make(
                    "AddPartitionsToTxnPartitionResult",
                    partition_index=index,
                    partition_error_code=codes[topic.name, index],
                )
                for index in topic.partitions
            ),
        )
        for topic in request.v3_and_below_topics
    )
    return exchange.response(throttle_time=NO_THROTTLE, results_by_topic_v3_and_below=results)
