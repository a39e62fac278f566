"""The errors of a log. Each class is one Kafka error code, so a handler answers `error.code`.

The classes are part of the tree of `suiro.errors`: after a `UsageError` the caller fixes the call, a `TransientError`
may be retried, and a `FatalError` must not be.
"""

from __future__ import annotations

from typing import ClassVar

from suiro.errors import CorruptRecordError, FatalError, SuiroError, TransientError, UsageError
from suiro.protocol.messages import ErrorCode


class LogError(SuiroError):
    """An append, a read or the disk failed. `code` is the error code that a Kafka client gets."""

    code: ClassVar[ErrorCode] = ErrorCode.unknown_server_error


class OffsetOutOfRangeError(LogError, UsageError):
    """The offset is before the log's start or after its end."""

    code = ErrorCode.offset_out_of_range


class InRemoteTierError(LogError, UsageError):
    """The offset lies before the first local segment of a tiered log; the remote tier has its records."""

    code = ErrorCode.offset_out_of_range


class CorruptBatchError(LogError, CorruptRecordError):
    """The bytes are torn, of an old magic, or their CRC does not match."""

    code = ErrorCode.corrupt_message


class DamagedLogError(LogError, CorruptRecordError):
    """The files of the log are damaged: offsets are missing, or bytes that should be a batch are not. A read does not
    skip them.

    Kafka's consumers stop at CORRUPT_MESSAGE in a fetch. They would retry KAFKA_STORAGE_ERROR forever.
    """

    code = ErrorCode.corrupt_message


class InvalidBatchError(LogError, UsageError):
    """A whole batch with the right CRC that no client may send (a control batch, wrong counts)."""

    code = ErrorCode.invalid_record


class BatchTooLargeError(LogError, UsageError):
    """Larger than `max.message.bytes`."""

    code = ErrorCode.message_too_large


class BatchesTooLargeError(LogError, UsageError):
    """Larger than `segment.bytes`: no segment could hold it."""

    code = ErrorCode.record_list_too_large


class InvalidTimestampError(LogError, UsageError):
    """Outside `message.timestamp.before.max.ms` and `message.timestamp.after.max.ms`."""

    code = ErrorCode.invalid_timestamp


class OutOfOrderSequenceError(LogError, FatalError):
    """Not the sequence that follows the last one of this producer: a batch was lost or overtaken."""

    code = ErrorCode.out_of_order_sequence_number


class InvalidProducerEpochError(LogError, FatalError):
    """A newer incarnation of this producer has written here: the older one is fenced."""

    code = ErrorCode.invalid_producer_epoch


class InvalidTransactionStateError(LogError, FatalError):
    """A batch outside a transaction while this producer has one open here."""

    code = ErrorCode.invalid_txn_state


class TransactionCoordinatorFencedError(LogError, FatalError):
    """A marker of a coordinator that has been replaced since."""

    code = ErrorCode.transaction_coordinator_fenced


class StorageError(LogError, TransientError):
    """The disk refused (full, gone, not writable). The log is as it was before the call, or it is offline."""

    code = ErrorCode.kafka_storage_error


class TornSegmentError(StorageError):
    """A failed write left a part of a batch that could not be cut off again."""
