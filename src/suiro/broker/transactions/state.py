"""One transactional id's life as pure rules: a request and the present state give an answer and the next state.

    state                 may come from
    EMPTY                 EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT      InitProducerId
    ONGOING               EMPTY, COMPLETE_*, ONGOING                  AddPartitionsToTxn, AddOffsetsToTxn
    PREPARE_COMMIT        ONGOING                                     EndTxn(commit): decided, markers to be written
    PREPARE_ABORT         ONGOING, PREPARE_EPOCH_FENCE                EndTxn(abort), or after a fence
    COMPLETE_COMMIT       PREPARE_COMMIT                              every marker is written
    COMPLETE_ABORT        PREPARE_ABORT
    PREPARE_EPOCH_FENCE   ONGOING                                     InitProducerId or the timeout, in memory only
    DEAD                  EMPTY, COMPLETE_*, DEAD                     the id expired

The rules are those of Kafka's TransactionMetadata and TransactionCoordinator in the V1 protocol. What always holds:
a decision (PREPARE_*) never changes; a new epoch is handed out only when no decision is open; an epoch never goes
back, and when it is used up the id gets a new producer id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import TypeAlias

from suiro.protocol.messages import ErrorCode

TopicPartition: TypeAlias = tuple[str, int]

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
LAST_PRODUCER_EPOCH = 32_767 - 1
"""The epoch after which a new producer id is handed out. (32767 is left for a last fence.)"""


class TransactionState(IntEnum):
    """The numbers are those of Kafka's transaction log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7


_S = TransactionState
IDLE = frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
PREPARED = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))

ALLOWED_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset((_S.ONGOING,)),
    _S.PREPARE_ABORT: frozenset((_S.ONGOING, _S.PREPARE_EPOCH_FENCE)),
    _S.COMPLETE_COMMIT: frozenset((_S.PREPARE_COMMIT,)),
    _S.COMPLETE_ABORT: frozenset((_S.PREPARE_ABORT,)),
    _S.PREPARE_EPOCH_FENCE: frozenset((_S.ONGOING,)),
    _S.DEAD: IDLE | {_S.DEAD},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """What the coordinator knows of one transactional id. `start_ms` is -1 unless ONGOING or later."""

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_PRODUCER_EPOCH

    def times_out_at(self) -> int | None:
        """When it will be aborted, in wall-clock milliseconds; None unless it is ongoing."""
        return self.start_ms + self.timeout_ms if self.state is TransactionState.ONGOING else None


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The answer, and the state to write first (None: nothing changes)."""

    code: ErrorCode
    next: Transaction | None = None


def _refused(code: ErrorCode) -> Decision:
    return Decision(code=code)


def _to(transaction: Transaction, state: TransactionState) -> Transaction:
    if transaction.state not in ALLOWED_PREVIOUS[state]:
        raise AssertionError(
            f"transaction {transaction.transactional_id} cannot go from {transaction.state.name} to {state.name}"
        )
    return replace(transaction, state=state)


def init_producer(
    transaction: Transaction,
    *,
    expected: tuple[int, int] | None,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: Callable[[], int],
) -> Decision:
    """InitProducerId. `expected` is the (producer id, epoch) that the caller believes to hold (KIP-360).

    NONE comes with the state to write and to answer from. CONCURRENT_TRANSACTIONS comes with a next state where
    the ongoing transaction must be fenced and aborted first; the caller asks again.
    """
    if expected is not None and not _may_continue(transaction, expected):
        return _refused(ErrorCode.producer_fenced)
    match transaction.state:
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            return _refused(ErrorCode.concurrent_transactions)
        case TransactionState.ONGOING:
            return Decision(code=ErrorCode.concurrent_transactions, next=fence(transaction, now_ms=now_ms))
        case TransactionState.EMPTY | TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
            pass
        case _:
            raise AssertionError(f"InitProducerId in {transaction.state.name}")
    fresh = replace(
        _to(transaction, TransactionState.EMPTY),
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        update_ms=now_ms,
    )
    expected_epoch = None if expected is None else expected[1]
    current = transaction.producer_epoch
    # Beyond the last epoch stands only the one that a fence has taken. Its holder may go on, but under a new id:
    # a second fence would find no epoch left.
    fenced_at_last = current > LAST_PRODUCER_EPOCH and expected_epoch == transaction.last_producer_epoch
    if transaction.is_epoch_exhausted and (expected_epoch in (None, current) or fenced_at_last):
        return Decision(
            code=ErrorCode.none,
            next=replace(
                fresh,
                producer_id=new_producer_id(),
                producer_epoch=0,
                previous_producer_id=transaction.producer_id,
                last_producer_epoch=NO_PRODUCER_EPOCH if expected is None else expected[1],
            ),
        )
    if expected_epoch is None or current == NO_PRODUCER_EPOCH or expected_epoch == current:
        last = NO_PRODUCER_EPOCH if expected is None else current
        bumped = replace(fresh, producer_epoch=current + 1, last_producer_epoch=last)
        return Decision(code=ErrorCode.none, next=bumped)
    if expected_epoch == transaction.last_producer_epoch:
        # The bump was done, its answer was lost: the same answer again.
        return Decision(code=ErrorCode.none, next=fresh)
    return _refused(ErrorCode.producer_fenced)


def _may_continue(transaction: Transaction, expected: tuple[int, int]) -> bool:
    producer_id, producer_epoch = expected
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and producer_epoch >= LAST_PRODUCER_EPOCH)
    )


def fence(transaction: Transaction, *, now_ms: int) -> Transaction:
    """The ongoing transaction under an epoch that its producer does not have; what follows is an abort.

    The epoch it had stays known as the last one: its holder may go on from there (KIP-588), unless somebody else
    takes the id first.
    """
    return replace(
        _to(transaction, TransactionState.PREPARE_EPOCH_FENCE),
        producer_epoch=transaction.producer_epoch + 1,
        last_producer_epoch=transaction.producer_epoch,
        update_ms=now_ms,
    )


def add_partitions(
    transaction: Transaction | None,
    *,
    producer_id: int,
    producer_epoch: int,
    partitions: frozenset[TopicPartition],
    now_ms: int,
) -> Decision:
    """AddPartitionsToTxn, and AddOffsetsToTxn with the group's partition of `__consumer_offsets`."""
    refusal = _check_producer(transaction, producer_id, producer_epoch)
    if refusal is not None or transaction is None:
        return refusal or _refused(ErrorCode.invalid_producer_id_mapping)
    if transaction.state in PREPARED:
        return _refused(ErrorCode.concurrent_transactions)
    if transaction.state is TransactionState.ONGOING and partitions <= transaction.partitions:
        return Decision(code=ErrorCode.none)
    begun = transaction.state is TransactionState.ONGOING
    return Decision(
        code=ErrorCode.none,
        next=replace(
            _to(transaction, TransactionState.ONGOING),
            partitions=transaction.partitions | partitions if begun else partitions,
            start_ms=transaction.start_ms if begun else now_ms,
            update_ms=now_ms,
        ),
    )


def verify(
    transaction: Transaction | None, *, producer_id: int, producer_epoch: int, partition: TopicPartition
) -> ErrorCode:
    """Whether this producer may write to the partition now (KIP-890 part 1)."""
    refusal = _check_producer(transaction, producer_id, producer_epoch)
    if refusal is not None or transaction is None:
        return refusal.code if refusal else ErrorCode.invalid_producer_id_mapping
    if transaction.state in PREPARED:
        return ErrorCode.concurrent_transactions
    if transaction.state is TransactionState.ONGOING and partition in transaction.partitions:
        return ErrorCode.none
    return ErrorCode.transaction_abortable


def end(
    transaction: Transaction | None, *, producer_id: int, producer_epoch: int, commit: bool, now_ms: int
) -> Decision:
    """EndTxn. With a next state: write it (that is the decision), write the markers, then `complete`."""
    refusal = _check_producer(transaction, producer_id, producer_epoch)
    if refusal is not None or transaction is None:
        return refusal or _refused(ErrorCode.invalid_producer_id_mapping)
    match transaction.state:
        case TransactionState.ONGOING:
            return Decision(code=ErrorCode.none, next=prepare(transaction, commit=commit, now_ms=now_ms))
        case TransactionState.COMPLETE_COMMIT:
            return _refused(ErrorCode.none if commit else ErrorCode.invalid_txn_state)
        case TransactionState.COMPLETE_ABORT:
            return _refused(ErrorCode.invalid_txn_state if commit else ErrorCode.none)
        case TransactionState.PREPARE_COMMIT:
            return _refused(ErrorCode.concurrent_transactions if commit else ErrorCode.invalid_txn_state)
        case TransactionState.PREPARE_ABORT:
            return _refused(ErrorCode.invalid_txn_state if commit else ErrorCode.concurrent_transactions)
        case _:
            return _refused(ErrorCode.invalid_txn_state)


def prepare(transaction: Transaction, *, commit: bool, now_ms: int) -> Transaction:
    """The decision."""
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    return replace(_to(transaction, state), update_ms=now_ms)


def complete(transaction: Transaction, *, now_ms: int) -> Transaction:
    """Every marker is written."""
    done = (
        TransactionState.COMPLETE_COMMIT
        if transaction.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    return replace(_to(transaction, done), partitions=frozenset(), start_ms=-1, update_ms=now_ms)


def _check_producer(
    transaction: Transaction | None, producer_id: int, producer_epoch: int
) -> Decision | None:
    if transaction is None or transaction.producer_id != producer_id:
        return _refused(ErrorCode.invalid_producer_id_mapping)
    if transaction.producer_epoch != producer_epoch:
        return _refused(ErrorCode.producer_fenced)
    return None
