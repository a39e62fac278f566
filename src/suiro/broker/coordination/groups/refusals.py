"""The refusal that a group's rules raise, and the error codes for a log that fails."""

from __future__ import annotations

from suiro.broker.refusals import RefusedError
from suiro.log import LogError
from suiro.protocol.messages import ErrorCode


class GroupRefusal(RefusedError):
    """A group's rules refuse the request."""


def code_of(error: LogError) -> ErrorCode:
    """The code for a client when a coordinator's record cannot be written: Kafka has no storage error there."""
    match error.code:
        case ErrorCode.not_leader_or_follower | ErrorCode.kafka_storage_error:
            return ErrorCode.not_coordinator
        case ErrorCode.unknown_topic_or_partition | ErrorCode.not_enough_replicas:
            return ErrorCode.coordinator_not_available
        case ErrorCode.message_too_large | ErrorCode.record_list_too_large:
            return ErrorCode.unknown_server_error
    return error.code
