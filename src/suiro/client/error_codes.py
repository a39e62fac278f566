"""Maps Kafka's error codes to exceptions, by the action that the caller must take.

| category | error | caller |
|---|---|---|
| retriable | `RetriableKafkaError` | the client repeats the request until its deadline |
| abortable | `AbortableError` | fence (`TransactionalProducer.init`), then repeat the transaction |
| fenced | `FencedError` | stop: another producer owns the transactional id |
| broken | `BrokerFailureError` | stop and read the log of the broker |
| everything else | `RefusedError` | fix the call |
"""

from __future__ import annotations

from suiro.errors import (
    AbortableError,
    BrokerFailureError,
    FencedError,
    KafkaError,
    RefusedError,
    RetriableKafkaError,
    TopicExistsError,
)
from suiro.protocol.messages import ErrorCode

# The metadata this client holds may be old: it is refreshed before the next attempt.
LEADERSHIP = frozenset(
    {
        "UNKNOWN_TOPIC_OR_PARTITION",
        "LEADER_NOT_AVAILABLE",
        "NOT_LEADER_OR_FOLLOWER",
        "REPLICA_NOT_AVAILABLE",
        "LISTENER_NOT_FOUND",
        "FENCED_LEADER_EPOCH",
        "UNKNOWN_LEADER_EPOCH",
        "KAFKA_STORAGE_ERROR",
        "UNKNOWN_TOPIC_ID",
    }
)

_FENCED = frozenset({ErrorCode.producer_fenced, ErrorCode.invalid_producer_epoch})
_ABORTABLE = frozenset(
    {
        ErrorCode.out_of_order_sequence_number,
        ErrorCode.unknown_producer_id,
        ErrorCode.invalid_txn_state,
        ErrorCode.invalid_producer_id_mapping,
        ErrorCode.transaction_abortable,
    }
)
_BROKEN = frozenset({ErrorCode.unknown_server_error, ErrorCode.corrupt_message})
_RETRIABLE_TOO = frozenset({ErrorCode.broker_not_available})

_MEANING = {
    ErrorCode.unknown_topic_or_partition: "the topic or partition does not exist; create it first",
    ErrorCode.unknown_topic_id: "the topic was deleted; one of its name that was made later is another topic",
    ErrorCode.leader_not_available: "the partition has no leader at the moment",
    ErrorCode.not_leader_or_follower: "the partition's leader moved",
    ErrorCode.request_timed_out: "the broker did not finish in the time the request allowed",
    ErrorCode.coordinator_load_in_progress: "the coordinator is still loading its state",
    ErrorCode.coordinator_not_available: "no broker serves as coordinator at the moment",
    ErrorCode.not_coordinator: "the coordinator moved",
    ErrorCode.concurrent_transactions: "an earlier transaction of this producer is still being completed",
    ErrorCode.unstable_offset_commit: "an open transaction holds offsets of this group",
    ErrorCode.message_too_large: "the batch is larger than the topic's max.message.bytes",
    ErrorCode.record_list_too_large: "the batch is larger than a log segment",
    ErrorCode.corrupt_message: "records are damaged (CRC, size or magic) or missing; the broker's log says where",
    ErrorCode.invalid_record: "the broker refused a record; a compacted topic needs a key in each",
    ErrorCode.unsupported_compression_type: "the broker does not take this compression in this request version",
    ErrorCode.topic_authorization_failed: "no permission for the topic; grant this principal an ACL",
    ErrorCode.group_authorization_failed: "no permission for the group; grant this principal an ACL",
    ErrorCode.cluster_authorization_failed: "no permission on the cluster; grant this principal an ACL",
    ErrorCode.transactional_id_authorization_failed: "no permission for the transactional id; grant an ACL",
    ErrorCode.sasl_authentication_failed: "the broker refused the user name or password",
    ErrorCode.topic_already_exists: "the topic exists already",
    ErrorCode.invalid_topic_exception: "not a legal topic name (letters, digits, '.', '_', '-'; at most 249)",
    ErrorCode.invalid_partitions: "the number of partitions is not positive",
    ErrorCode.invalid_replication_factor: "the cluster has fewer brokers than replicas asked for",
    ErrorCode.invalid_config: "a setting is unknown or has a value the broker does not take",
    ErrorCode.offset_metadata_too_large: "the metadata of an offset is too long (offset.metadata.max.bytes)",
    ErrorCode.invalid_transaction_timeout: "the timeout exceeds the broker's transaction.max.timeout.ms",
    ErrorCode.out_of_order_sequence_number: "the batch does not follow the last one of this producer",
    ErrorCode.unknown_producer_id: "the broker no longer knows this producer's batches",
    ErrorCode.invalid_txn_state: "the transaction is not in a state that allows this",
    ErrorCode.invalid_producer_id_mapping: "the producer id does not belong to this transactional id",
    ErrorCode.transaction_abortable: "the transaction has to be aborted",
    ErrorCode.producer_fenced: "a newer producer uses this transactional id, or its transaction timed out",
    ErrorCode.invalid_producer_epoch: "a newer producer uses this transactional id, or its transaction timed out",
    ErrorCode.unknown_server_error: "the broker failed; its log says why",
    ErrorCode.unsupported_version: "the broker does not take this request in this version",
}


def error_for(code: ErrorCode, what: str, *, detail: str | None = None) -> KafkaError:
    """The error for `code`; `what` says what was asked, of what (e.g. "produce to flights-3")."""
    meaning = _MEANING.get(code, code.name.replace("_", " "))
    message = f"{what}: {meaning}" if not detail else f"{what}: {meaning}: {detail}"
    return _class_of(code)(message, code.name.upper())


def error_of(code: ErrorCode, what: str, *, detail: str | None = None) -> KafkaError | None:
    """The same, or None if the code is NONE."""
    return None if code is ErrorCode.none else error_for(code, what, detail=detail)


def raise_for(code: ErrorCode, what: str, *, detail: str | None = None) -> None:
    """Raises `error_for(code, what)` unless the code is NONE."""
    if code is not ErrorCode.none:
        raise error_for(code, what, detail=detail)


def _class_of(code: ErrorCode) -> type[KafkaError]:
    if code in _FENCED:
        return FencedError
    if code in _ABORTABLE:
        return AbortableError
    if code in _BROKEN:
        return BrokerFailureError
    if code is ErrorCode.topic_already_exists:
        return TopicExistsError
    if code.retriable or code in _RETRIABLE_TOO:
        return RetriableKafkaError
    return RefusedError
