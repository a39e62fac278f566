"""The rules of one transactional id, row by row, as Kafka 4.3 answers them in the V1 protocol."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suiro.broker.transactions import state
from suiro.broker.transactions.records import decode_key, decode_value, encode_key, encode_value
from suiro.broker.transactions.state import ALLOWED_PREVIOUS, Transaction, TransactionState
from suiro.protocol.messages import ErrorCode

S = TransactionState
PARTITION = ("t", 0)
NOW_MS = 50_000


def transaction(of: TransactionState, *, epoch: int = 5, last: int = -1) -> Transaction:
    begun = of in (S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
    return Transaction(
        transactional_id="id",
        producer_id=7,
        producer_epoch=epoch,
        last_producer_epoch=last,
        timeout_ms=1000,
        state=of,
        partitions=frozenset((PARTITION,)) if begun else frozenset(),
        start_ms=40_000 if begun else -1,
        update_ms=40_000,
    )


def init(of: Transaction, expected: tuple[int, int] | None = None) -> state.Decision:
    return state.init_producer(
        of, expected=expected, timeout_ms=2000, now_ms=NOW_MS, new_producer_id=lambda: 100
    )


@pytest.mark.parametrize("of", [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT])
@pytest.mark.parametrize(
    ("expected", "last", "code", "identity"),
    [
        (None, -1, "none", (7, 6)),
        ((7, 5), -1, "none", (7, 6)),  # the holder bumps
        ((7, 4), 4, "none", (7, 5)),  # the holder asks again: its answer was lost
        ((7, 4), -1, "producer_fenced", None),
        ((7, 6), -1, "producer_fenced", None),
        ((8, 5), -1, "producer_fenced", None),
    ],
)
def test_init_producer_when_nothing_is_open(
    of: TransactionState,
    expected: tuple[int, int] | None,
    last: int,
    code: str,
    identity: tuple[int, int] | None,
) -> None:
    decision = init(transaction(of, last=last), expected)
    assert decision.code.name == code
    if identity is None:
        assert decision.next is None
    else:
        assert decision.next is not None
        assert (decision.next.producer_id, decision.next.producer_epoch) == identity
        assert (decision.next.state, decision.next.timeout_ms, decision.next.partitions) == (
            S.EMPTY,
            2000,
            frozenset(),
        )


def test_a_new_id_starts_at_epoch_0() -> None:
    fresh = Transaction(transactional_id="id", producer_id=7, timeout_ms=1000)
    decision = init(fresh)
    assert decision.next is not None
    assert (decision.next.producer_id, decision.next.producer_epoch) == (7, 0)


@pytest.mark.parametrize("of", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_init_producer_waits_for_an_open_decision(of: TransactionState) -> None:
    assert init(transaction(of)) == state.Decision(code=ErrorCode.concurrent_transactions)


def test_init_producer_fences_and_aborts_what_is_ongoing_then_succeeds() -> None:
    decision = init(transaction(S.ONGOING), (7, 5))
    assert decision.code is ErrorCode.concurrent_transactions
    fenced = decision.next
    assert fenced is not None
    assert (fenced.state, fenced.producer_epoch) == (S.PREPARE_EPOCH_FENCE, 6)
    done = state.complete(state.prepare(fenced, commit=False, now_ms=1), now_ms=2)
    assert (done.state, done.partitions, done.start_ms) == (S.COMPLETE_ABORT, frozenset(), -1)
    holder = init(done, (7, 5)).next  # who asked first asks again, and goes on
    assert holder is not None
    assert holder.producer_epoch == 6
    successor = init(done).next  # somebody else takes the id: the holder is fenced
    assert successor is not None
    assert successor.producer_epoch == 7
    assert init(successor, (7, 5)).code is ErrorCode.producer_fenced


def test_an_exhausted_epoch_gets_a_new_producer_id() -> None:
    worn = transaction(S.COMPLETE_COMMIT, epoch=state.LAST_PRODUCER_EPOCH)
    rotated = init(worn, (7, state.LAST_PRODUCER_EPOCH)).next
    assert rotated is not None
    assert (rotated.producer_id, rotated.producer_epoch) == (100, 0)
    # Its answer was lost: the old identity is still accepted as a retry.
    again = init(rotated, (7, state.LAST_PRODUCER_EPOCH)).next
    assert again is not None
    assert (again.producer_id, again.producer_epoch) == (100, 0)
    assert init(worn, (7, 3)).code is ErrorCode.producer_fenced


def test_a_fence_at_the_last_epoch_leaves_its_holder_a_new_producer_id() -> None:
    """Under the fence's own epoch, the highest there is, a second fence would find none left."""
    holder = (7, state.LAST_PRODUCER_EPOCH)
    fenced = init(transaction(S.ONGOING, epoch=state.LAST_PRODUCER_EPOCH), holder).next
    assert fenced is not None
    aborted = state.complete(state.prepare(fenced, commit=False, now_ms=1), now_ms=2)
    rotated = init(aborted, holder).next
    assert rotated is not None
    assert (rotated.producer_id, rotated.producer_epoch) == (100, 0)
    assert init(rotated, holder).next == rotated
    taken = init(aborted).next
    assert taken is not None
    assert (taken.producer_id, taken.producer_epoch) == (100, 0)


@pytest.mark.parametrize(
    ("of", "commit", "code"),
    [
        (S.EMPTY, True, "invalid_txn_state"),
        (S.EMPTY, False, "invalid_txn_state"),
        (S.COMPLETE_COMMIT, True, "none"),
        (S.COMPLETE_COMMIT, False, "invalid_txn_state"),
        (S.COMPLETE_ABORT, True, "invalid_txn_state"),
        (S.COMPLETE_ABORT, False, "none"),
        (S.PREPARE_COMMIT, True, "concurrent_transactions"),
        (S.PREPARE_COMMIT, False, "invalid_txn_state"),
        (S.PREPARE_ABORT, True, "invalid_txn_state"),
        (S.PREPARE_ABORT, False, "concurrent_transactions"),
    ],
)
def test_end_answers_without_a_change(of: TransactionState, commit: bool, code: str) -> None:
    decision = state.end(transaction(of), producer_id=7, producer_epoch=5, commit=commit, now_ms=NOW_MS)
    assert (decision.code.name, decision.next) == (code, None)


@pytest.mark.parametrize(("commit", "to"), [(True, S.PREPARE_COMMIT), (False, S.PREPARE_ABORT)])
def test_end_decides_an_ongoing_transaction(commit: bool, to: TransactionState) -> None:
    decision = state.end(
        transaction(S.ONGOING), producer_id=7, producer_epoch=5, commit=commit, now_ms=NOW_MS
    )
    assert decision.next == replace(transaction(S.ONGOING), state=to, update_ms=NOW_MS)


@pytest.mark.parametrize(
    ("producer_id", "epoch", "code"),
    [
        (8, 5, "invalid_producer_id_mapping"),
        (7, 4, "producer_fenced"),
        (7, 6, "producer_fenced"),
    ],
)
def test_every_request_checks_the_producer(producer_id: int, epoch: int, code: str) -> None:
    ongoing = transaction(S.ONGOING)
    added = state.add_partitions(
        ongoing,
        producer_id=producer_id,
        producer_epoch=epoch,
        partitions=frozenset((PARTITION,)),
        now_ms=NOW_MS,
    )
    ended = state.end(ongoing, producer_id=producer_id, producer_epoch=epoch, commit=True, now_ms=NOW_MS)
    verified = state.verify(ongoing, producer_id=producer_id, producer_epoch=epoch, partition=PARTITION)
    assert (added.code.name, ended.code.name, verified.name) == (code, code, code)
    assert (added.next, ended.next) == (None, None)


def test_an_unknown_id_maps_to_no_producer() -> None:
    ended = state.end(None, producer_id=7, producer_epoch=5, commit=True, now_ms=NOW_MS)
    assert ended.code is ErrorCode.invalid_producer_id_mapping


def test_add_partitions_begins_and_grows_a_transaction() -> None:
    begun = state.add_partitions(
        transaction(S.COMPLETE_COMMIT),
        producer_id=7,
        producer_epoch=5,
        partitions=frozenset((PARTITION,)),
        now_ms=NOW_MS,
    ).next
    assert begun is not None
    assert (begun.state, begun.start_ms, begun.times_out_at()) == (S.ONGOING, NOW_MS, NOW_MS + 1000)
    same = state.add_partitions(
        begun, producer_id=7, producer_epoch=5, partitions=frozenset((PARTITION,)), now_ms=NOW_MS + 1
    )
    assert (same.code, same.next) == (ErrorCode.none, None)
    grown = state.add_partitions(
        begun, producer_id=7, producer_epoch=5, partitions=frozenset((("u", 3),)), now_ms=NOW_MS + 1
    ).next
    assert grown is not None
    assert (grown.partitions, grown.start_ms) == (frozenset((PARTITION, ("u", 3))), NOW_MS)


@pytest.mark.parametrize(
    ("of", "partition", "code"),
    [
        (S.ONGOING, PARTITION, "none"),
        (S.ONGOING, ("t", 1), "transaction_abortable"),
        (S.COMPLETE_COMMIT, PARTITION, "transaction_abortable"),
        (S.EMPTY, PARTITION, "transaction_abortable"),
        (S.PREPARE_COMMIT, PARTITION, "concurrent_transactions"),
        (S.PREPARE_ABORT, PARTITION, "concurrent_transactions"),
    ],
)
def test_verify_guards_a_partition(of: TransactionState, partition: tuple[str, int], code: str) -> None:
    assert state.verify(transaction(of), producer_id=7, producer_epoch=5, partition=partition).name == code


def test_the_table_has_a_row_for_every_state() -> None:
    assert set(ALLOWED_PREVIOUS) == set(TransactionState)


def test_a_decision_cannot_be_taken_back() -> None:
    with pytest.raises(AssertionError, match="cannot go from PREPARE_COMMIT to PREPARE_ABORT"):
        state.prepare(transaction(S.PREPARE_COMMIT), commit=False, now_ms=NOW_MS)


@pytest.mark.parametrize("of", [s for s in S if s is not S.PREPARE_EPOCH_FENCE])
def test_records_come_back(of: TransactionState) -> None:
    written = replace(transaction(of), last_producer_epoch=-1)
    assert decode_key(encode_key("id")) == "id"
    assert decode_value("id", encode_value(written)) == written


def test_the_value_is_kafkas_transaction_log_value_0() -> None:
    value = encode_value(transaction(S.ONGOING))
    assert value.hex() == (
        "0000"  # version
        "0000000000000007" "0005" "000003e8" "01"  # producer id, epoch, timeout, ONGOING
        "00000001" "0001" "74" "00000001" "00000000"  # one topic "t", one partition 0
        "0000000000009c40" "0000000000009c40"  # last update, start
    )  # fmt: skip
