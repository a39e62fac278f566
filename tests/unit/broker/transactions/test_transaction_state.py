"""The rules of one transactional id, row by row, as Kafka 4.3 answers them, in both protocols."""

from __future__ import annotations

from dataclasses import replace

import pytest

from suiro.broker.coordination.transactions import state
from suiro.broker.coordination.transactions.records import decode_key, decode_value, encode_key, encode_value
from suiro.broker.coordination.transactions.state import (
    ALLOWED_PREVIOUS,
    V1,
    V2,
    Transaction,
    TransactionState,
)
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
        of, expected=expected, timeout_ms=2000, version=V2, now_ms=NOW_MS, new_producer_id=new_id
    )


def end(
    of: Transaction | None, *, commit: bool, version: int = V1, producer_id: int = 7, epoch: int = 5
) -> state.Decision:
    return state.end(
        of,
        producer=(producer_id, epoch),
        commit=commit,
        version=version,
        now_ms=NOW_MS,
        new_producer_id=new_id,
    )


def new_id() -> int:
    return 100


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
        assert (decision.next.producer_id, decision.next.producer_epoch) == identity
        assert (decision.next.state, decision.next.timeout_ms, decision.next.partitions) == (
            S.EMPTY,
            2000,
            frozenset(),
        )


def test_a_new_id_starts_at_epoch_0() -> None:
    fresh = Transaction(transactional_id="id", producer_id=7, timeout_ms=1000)
    for expected in (None, (9, 5)):
        decision = init(fresh, expected)
        assert (decision.next.producer_id, decision.next.producer_epoch) == (7, 0)


@pytest.mark.parametrize("of", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_what_would_change_a_decision_waits_for_it(of: TransactionState) -> None:
    waits = state.Decision(code=ErrorCode.concurrent_transactions)
    assert (init(transaction(of)), add(transaction(of))) == (waits, waits)
    assert state.verify(transaction(of), producer=(7, 5), partition=PARTITION) is waits.code


def test_init_producer_fences_and_aborts_what_is_ongoing_then_succeeds() -> None:
    decision = init(transaction(S.ONGOING), (7, 5))
    assert decision.code is ErrorCode.concurrent_transactions
    fenced = decision.next
    assert (fenced.state, fenced.producer_epoch, fenced.version) == (S.PREPARE_ABORT, 6, V2)
    done = state.complete(fenced, now_ms=2)
    assert (done.state, done.partitions) == (S.COMPLETE_ABORT, frozenset())
    holder = init(done, (7, 5)).next  # who asked first asks again, and goes on
    assert holder.producer_epoch == 6
    successor = init(done).next  # somebody else takes the id: the holder is fenced
    assert successor.producer_epoch == 7
    assert init(successor, (7, 5)).code is ErrorCode.producer_fenced


def test_an_exhausted_epoch_gets_a_new_producer_id() -> None:
    worn = transaction(S.COMPLETE_COMMIT, epoch=state.LAST_PRODUCER_EPOCH)
    rotated = init(worn, (7, state.LAST_PRODUCER_EPOCH)).next
    assert (rotated.producer_id, rotated.producer_epoch) == (100, 0)
    # Its answer was lost: the old identity is still accepted as a retry.
    again = init(rotated, (7, state.LAST_PRODUCER_EPOCH)).next
    assert (again.producer_id, again.producer_epoch) == (100, 0)
    assert init(worn, (7, 3)).code is ErrorCode.producer_fenced
    for other in ((7, 0), (8, state.LAST_PRODUCER_EPOCH)):
        assert init(rotated, other).code is ErrorCode.producer_fenced


def test_a_fence_at_the_last_epoch_takes_a_new_producer_id() -> None:
    holder = (7, state.LAST_PRODUCER_EPOCH)
    fenced = init(transaction(S.ONGOING, epoch=state.LAST_PRODUCER_EPOCH), holder).next
    assert (fenced.producer_id, fenced.producer_epoch) == (7, state.MAX_PRODUCER_EPOCH)
    aborted = state.complete(fenced, now_ms=2)
    assert (aborted.producer_id, aborted.producer_epoch) == (100, 0)
    again = init(aborted, holder).next  # its holder goes on under the new id
    assert (again.producer_id, again.producer_epoch) == (100, 0)
    taken = init(aborted).next
    assert (taken.producer_id, taken.producer_epoch) == (100, 1)


def test_a_fence_where_the_node_speaks_v1_leaves_no_way_back() -> None:
    fenced = state.fence(transaction(S.ONGOING), version=V1, now_ms=NOW_MS, new_producer_id=new_id)
    assert (fenced.state, fenced.producer_epoch, fenced.last_producer_epoch) == (S.PREPARE_ABORT, 6, -1)
    aborted = state.complete(fenced, now_ms=NOW_MS)
    assert init(aborted, (7, 5)).code is ErrorCode.producer_fenced


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
    decision = end(transaction(of), commit=commit)
    assert (decision.code.name, decision.next) == (code, None)


@pytest.mark.parametrize(("commit", "to"), [(True, S.PREPARE_COMMIT), (False, S.PREPARE_ABORT)])
def test_end_decides_an_ongoing_transaction(commit: bool, to: TransactionState) -> None:
    decision = end(transaction(S.ONGOING), commit=commit)
    assert decision.next == replace(transaction(S.ONGOING), state=to, update_ms=NOW_MS, previous_producer_id=7)


# The table of EndTxn in V2: "again" is the epoch before the bump, as the repeated request bears it.
@pytest.mark.parametrize(
    ("of", "commit", "again", "code"),
    [
        (S.EMPTY, False, True, "producer_fenced"),
        (S.EMPTY, False, False, "bumped"),
        (S.EMPTY, True, True, "producer_fenced"),
        (S.EMPTY, True, False, "invalid_txn_state"),
        (S.COMPLETE_ABORT, False, True, "none"),
        (S.COMPLETE_ABORT, False, False, "bumped"),
        (S.COMPLETE_ABORT, True, True, "invalid_txn_state"),
        (S.COMPLETE_ABORT, True, False, "invalid_txn_state"),
        (S.COMPLETE_COMMIT, False, True, "invalid_txn_state"),
        (S.COMPLETE_COMMIT, False, False, "bumped"),
        (S.COMPLETE_COMMIT, True, True, "none"),
        (S.COMPLETE_COMMIT, True, False, "invalid_txn_state"),
        (S.PREPARE_COMMIT, True, True, "concurrent_transactions"),
        (S.PREPARE_COMMIT, True, False, "producer_fenced"),
        (S.PREPARE_COMMIT, False, True, "invalid_txn_state"),
        (S.PREPARE_ABORT, False, True, "concurrent_transactions"),
        (S.PREPARE_ABORT, True, True, "invalid_txn_state"),
        (S.ONGOING, True, True, "producer_fenced"),
        (S.ONGOING, True, False, "bumped"),
        (S.ONGOING, False, False, "bumped"),
    ],
)
def test_end_in_v2(of: TransactionState, commit: bool, again: bool, code: str) -> None:
    before = transaction(of)
    decision = end(before, commit=commit, version=V2, epoch=4 if again else 5)
    if code != "bumped":
        assert (decision.code.name, decision.next) == (code, None)
        return
    prepared = decision.next
    assert decision.code is ErrorCode.none
    assert prepared.state is (S.PREPARE_COMMIT if commit else S.PREPARE_ABORT)
    assert (prepared.producer_epoch, prepared.last_producer_epoch, prepared.version) == (6, 5, V2)
    assert prepared.partitions == before.partitions
    assert prepared.start_ms == (40_000 if of is S.ONGOING else NOW_MS)
    done = state.complete(prepared, now_ms=NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.start_ms) == (7, 6, prepared.start_ms)


def test_an_end_in_v2_at_the_last_epoch_goes_on_under_a_new_producer_id() -> None:
    last = state.LAST_PRODUCER_EPOCH
    prepared = end(transaction(S.ONGOING, epoch=last), commit=True, version=V2, epoch=last).next
    assert (prepared.producer_id, prepared.producer_epoch) == (7, state.MAX_PRODUCER_EPOCH)
    assert prepared.next_producer_id == 100
    done = state.complete(prepared, now_ms=NOW_MS)
    assert (done.producer_id, done.producer_epoch, done.next_producer_id) == (100, 0, -1)
    # The answer was lost, and the old identity asks again.
    assert end(done, commit=True, version=V2, epoch=last) == state.Decision(code=ErrorCode.none)
    assert end(done, commit=False, version=V2, epoch=last).code is ErrorCode.invalid_txn_state
    assert end(done, commit=True, version=V2, epoch=3).code is ErrorCode.invalid_producer_id_mapping
    begun = add(done, producer_id=100, epoch=0).next
    assert begun is not None
    # Once the new identity is in use there is no way back to the old one.
    assert end(begun, commit=True, version=V2, epoch=last).code is ErrorCode.invalid_producer_id_mapping
    over = state.complete(end(begun, commit=True, version=V2, producer_id=100, epoch=0).next or begun, now_ms=1)
    assert end(over, commit=True, version=V2, epoch=last).code is ErrorCode.invalid_producer_id_mapping


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
    added = add(ongoing, producer_id=producer_id, epoch=epoch)
    ended = end(ongoing, producer_id=producer_id, epoch=epoch, commit=True)
    verified = state.verify(ongoing, producer=(producer_id, epoch), partition=PARTITION)
    assert (added.code.name, ended.code.name, verified.name) == (code, code, code)
    assert (added.next, ended.next) == (None, None)


def test_an_unknown_id_maps_to_no_producer() -> None:
    assert end(None, commit=True).code is ErrorCode.invalid_producer_id_mapping
    assert end(None, commit=True, version=V2).code is ErrorCode.invalid_producer_id_mapping
    assert add(None).code is ErrorCode.invalid_producer_id_mapping
    found = state.verify(None, producer=(7, 5), partition=PARTITION)
    assert found is ErrorCode.invalid_producer_id_mapping


def add(
    of: Transaction | None,
    partition: tuple[str, int] = PARTITION,
    *,
    producer_id: int = 7,
    epoch: int = 5,
    now_ms: int = NOW_MS,
    version: int = V1,
) -> state.Decision:
    return state.add_partitions(
        of,
        producer=(producer_id, epoch),
        partitions=frozenset((partition,)),
        version=version,
        now_ms=now_ms,
    )


def test_add_partitions_begins_and_grows_a_transaction() -> None:
    begun = add(transaction(S.COMPLETE_COMMIT)).next
    assert (begun.state, begun.start_ms, begun.times_out_at()) == (S.ONGOING, NOW_MS, NOW_MS + 1000)
    same = add(begun, now_ms=NOW_MS + 1)
    assert (same.code, same.next) == (ErrorCode.none, None)
    grown = add(begun, ("u", 3), now_ms=NOW_MS + 1, version=V2).next
    assert (grown.partitions, grown.start_ms, grown.version) == (
        frozenset((PARTITION, ("u", 3))),
        NOW_MS,
        V2,
    )


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
    assert state.verify(transaction(of), producer=(7, 5), partition=partition).name == code


def test_the_table_has_a_row_for_every_state() -> None:
    assert set(ALLOWED_PREVIOUS) == set(TransactionState)


def test_a_decision_cannot_be_taken_back() -> None:
    with pytest.raises(AssertionError, match="cannot go from PREPARE_COMMIT to PREPARE_ABORT"):
        state.prepare(transaction(S.PREPARE_COMMIT), commit=False, version=V2, now_ms=NOW_MS, new_producer_id=new_id)


@pytest.mark.parametrize("flexible", [False, True])
@pytest.mark.parametrize("of", [s for s in S if s is not S.PREPARE_EPOCH_FENCE])
def test_records_come_back(of: TransactionState, flexible: bool) -> None:
    written = replace(transaction(of), last_producer_epoch=-1)
    if flexible:
        written = replace(written, previous_producer_id=3, next_producer_id=9, version=V2)
    assert decode_key(encode_key("id")) == "id"
    assert decode_value("id", encode_value(written, flexible=flexible)) == written


def test_the_value_is_kafkas_transaction_log_value_0() -> None:
    value = encode_value(transaction(S.ONGOING), flexible=False)
    assert value.hex() == (
        "0000"  # version
        "0000000000000007" "0005" "000003e8" "01"  # producer id, epoch, timeout, ONGOING
        "00000001" "0001" "74" "00000001" "00000000"  # one topic "t", one partition 0
        "0000000000009c40" "0000000000009c40"  # last update, start
    )  # fmt: skip


def test_the_value_is_kafkas_transaction_log_value_1() -> None:
    value = encode_value(replace(transaction(S.PREPARE_COMMIT), previous_producer_id=7, next_producer_id=8, version=V2))
    assert value.hex() == (
        "0001"  # version
        "0000000000000007" "0005" "000003e8" "02"  # producer id, epoch, timeout, PREPARE_COMMIT
        "02" "02" "74" "02" "00000000" "00"  # one topic "t", one partition 0
        "0000000000009c40" "0000000000009c40"  # last update, start
        "03" "00" "08" "0000000000000007"  # tag 0, the previous producer id
        "01" "08" "0000000000000008"  # tag 1, the next producer id
        "02" "02" "0002"  # tag 2, the client's transaction version
    )  # fmt: skip
    empty = encode_value(transaction(S.EMPTY))
    assert empty.hex() == (
        "0001" "0000000000000007" "0005" "000003e8" "00" "00" "0000000000009c40" "ffffffffffffffff" "00"
    )  # fmt: skip
