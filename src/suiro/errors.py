"""The exceptions of suiro: one tree, sorted by the action that the caller must take.

- `UsageError`: the call, the setting or the data is wrong. Fix it, then call again.
- `TransientError`: the call is correct. The same call may succeed later.
- `FatalError`: stop. Continuing would lose or duplicate data.

A message says what happened, to what, and what to do next. Every exception can be pickled, because Spark sends errors
between processes: `args` are exactly the positional arguments of the constructor.
"""

from __future__ import annotations


class SuiroError(Exception):
    """The base class of all exceptions that suiro raises on purpose."""


class UsageError(SuiroError):
    """The call, the setting or the data is wrong; repeating the call unchanged fails again."""


class TransientError(SuiroError):
    """The same call may succeed later (a leader moved, a connection broke, a deadline passed)."""


class FatalError(SuiroError):
    """Stop: continuing would lose, duplicate or reorder data."""


class ConfigError(UsageError):
    """A setting is unknown, malformed or out of its range. The message names it and its source."""


class MissingExtraError(UsageError, ImportError):
    """A needed library is not installed. The message names the extra that installs it."""


class HostNotFoundError(ConfigError):
    """A host name does not resolve: it is wrong, or its entry is missing while the host restarts."""


class CorruptRecordError(FatalError):
    """A record batch is invalid: truncated, wrong magic, wrong CRC, or wrong lengths."""


class UnsupportedVersionError(UsageError):
    """The broker does not support a version of an API that the client needs."""


class DataLossError(FatalError):
    """Planned offsets no longer exist (retention, a deleted or recreated topic)."""


class BrokenConnectionError(TransientError):
    """A connection was refused, closed or corrupted, or the broker did not respond in time."""


class DeadlineExceededError(TransientError):
    """Every retry within the deadline failed. The message ends with the last failure."""


class KafkaError(SuiroError):
    """A broker returned an error code. `code_name` is Kafka's name for it, in capitals."""

    def __init__(self, message: str, code_name: str) -> None:
        super().__init__(message, code_name)
        self.code_name = code_name

    def __str__(self) -> str:
        return f"{self.args[0]} ({self.code_name})"


class RetriableKafkaError(KafkaError, TransientError):
    """The leader or coordinator moved, or the broker is not ready. The client retries these errors."""


class RefusedError(KafkaError, UsageError):
    """The broker rejects the request: a wrong argument, a missing permission, too large."""


class UnknownTopicError(RefusedError):
    """The topic, or one of its partitions, does not exist."""


class TopicExistsError(RefusedError):
    """The topic already exists."""


class AbortableError(KafkaError, TransientError):
    """Only the open transaction is lost: initialise the producer again, then repeat the transaction."""


class FencedError(KafkaError, FatalError):
    """Another producer took over this transactional id (or the coordinator timed the transaction out)."""


class ReplacedError(FencedError):
    """Another start of the application, with another state directory, has taken its place. This one must not run."""


class BrokerFailureError(KafkaError, FatalError):
    """The broker reports corrupt data or an unknown error; read its log."""


class OffsetOutOfRangeError(FatalError):
    """The partition does not have the requested offset: retention removed it, or it was never written."""

    def __init__(self, topic: str, partition: int, offset: int, log_start_offset: int, log_end_offset: int) -> None:
        super().__init__(topic, partition, offset, log_start_offset, log_end_offset)
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.log_start_offset = log_start_offset
        self.log_end_offset = log_end_offset

    def __str__(self) -> str:
        return (
            f"{self.topic}-{self.partition} holds offsets {self.log_start_offset} to {self.log_end_offset}, "
            f"not {self.offset}; start from an offset in this range"
        )


class RegistryError(SuiroError):
    """A request to a schema registry failed. `error_code` is the registry's, such as 40401 or 42201."""

    def __init__(self, message: str, status: int, error_code: int) -> None:
        super().__init__(message, status, error_code)
        self.status = status  # of HTTP; 0: no answer came
        self.error_code = error_code

    def __str__(self) -> str:
        return f"{self.args[0]} (error code {self.error_code})" if self.error_code else str(self.args[0])


class RegistryUnavailableError(RegistryError, TransientError):
    """The registry cannot be reached, or cannot write its log at present."""


class RegistryRefusedError(RegistryError, UsageError):
    """The registry rejects the request."""


class SchemaNotFoundError(RegistryRefusedError):
    """No such subject, version or schema id."""


class IncompatibleSchemaError(RegistryRefusedError):
    """The schema breaks the compatibility level of its subject. The message says where."""
