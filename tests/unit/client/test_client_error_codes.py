"""Every error code has a category, and every error survives a pickle."""

from __future__ import annotations

import pickle

import pytest

from suiro.client.error_codes import error_for
from suiro.errors import (
    AbortableError,
    BrokerFailureError,
    FatalError,
    FencedError,
    KafkaError,
    OffsetOutOfRangeError,
    RefusedError,
    RetriableKafkaError,
    TransientError,
    UsageError,
)
from suiro.protocol.messages import ErrorCode

CODES = [code for code in ErrorCode if code is not ErrorCode.none]


@pytest.mark.parametrize("code", CODES, ids=lambda code: code.name)
def test_every_code_says_what_to_do(code: ErrorCode) -> None:
    error = error_for(code, "do a thing to t-0")
    assert isinstance(error, KafkaError)
    assert isinstance(error, TransientError | UsageError | FatalError)
    assert str(error).startswith("do a thing to t-0: ")
    assert error.code_name == code.name.upper()
    copy = pickle.loads(pickle.dumps(error))
    assert (type(copy), str(copy), copy.code_name) == (type(error), str(error), error.code_name)


@pytest.mark.parametrize(
    ("code", "category"),
    [
        ("not_leader_or_follower", RetriableKafkaError),
        ("coordinator_load_in_progress", RetriableKafkaError),
        ("concurrent_transactions", RetriableKafkaError),
        ("unstable_offset_commit", RetriableKafkaError),
        ("producer_fenced", FencedError),
        ("invalid_producer_epoch", FencedError),
        ("out_of_order_sequence_number", AbortableError),
        ("unknown_producer_id", AbortableError),
        ("invalid_txn_state", AbortableError),
        ("invalid_producer_id_mapping", AbortableError),
        ("transaction_abortable", AbortableError),
        ("corrupt_message", BrokerFailureError),
        ("message_too_large", RefusedError),
        ("topic_authorization_failed", RefusedError),
        ("unsupported_version", RefusedError),
    ],
)
def test_the_categories_the_sink_decides_by(code: str, category: type[KafkaError]) -> None:
    assert type(error_for(ErrorCode[code], "x")) is category


def test_an_offset_out_of_range_survives_a_pickle() -> None:
    error = OffsetOutOfRangeError("t", 1, 5, 10, 20)
    copy = pickle.loads(pickle.dumps(error))
    assert str(copy) == str(error) == "t-1 holds offsets 10 to 20, not 5; start from an offset in this range"
    assert copy.log_start_offset == 10
