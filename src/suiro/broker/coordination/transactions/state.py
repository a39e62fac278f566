"""One transactional id's life as pure rules: a request and the present state give an answer and the next state.

    state                 may come from
    EMPTY                 EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT      InitProducerId
    ONGOING               EMPTY, COMPLETE_*, ONGOING                  the first and every further partition
    PREPARE_COMMIT        ONGOING                                     EndTxn(commit): decided, markers to be written
    PREPARE_ABORT         ONGOING; in V2 also EMPTY, COMPLETE_*       EndTxn(abort), a fence, a timeout
    COMPLETE_COMMIT       PREPARE_COMMIT                              every marker is written
    COMPLETE_ABORT        PREPARE_ABORT
    PREPARE_EPOCH_FENCE   ONGOING                                     Kafka keeps it in memory only; never seen here
    DEAD                  EMPTY, COMPLETE_*, DEAD                     the id expired

The rules are those of Kafka's TransactionMetadata and TransactionCoordinator. In transactions V1 an epoch lasts
until the next InitProducerId; in V2 (KIP-890) every end of a transaction takes the next epoch, so that a late
request can never reach the transaction after its own. A client says with each request which of the two it speaks.

What always holds: a decision (PREPARE_*) never changes; a new epoch is handed out only when no decision is open;
an epoch never goes back, and when it is used up the id gets a new producer id.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import IntEnum
from typing import Any, NamedTuple, TypeAlias

from suiro.foundation.types import TopicPartition
from suiro.protocol.messages import ErrorCode

NewProducerId: TypeAlias = Callable[[], int]
Producer: TypeAlias = tuple[int, int]
"""(producer id, epoch)."""

NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
MAX_PRODUCER_EPOCH = 32_767
LAST_PRODUCER_EPOCH = MAX_PRODUCER_EPOCH - 1
"""The epoch after which a new producer id is handed out. (32767 is left for a last fence.)"""

V1 = 0
V2 = 2
"""Kafka's levels of `transaction.version`. Level 1 changes the log's format only; its rules are those of 0."""


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

    @property
    def title(self) -> str:
        """Kafka's name, as its tools show it."""
        return self.name.title().replace("_", "")


_S = TransactionState
IDLE = frozenset((_S.EMPTY, _S.COMPLETE_COMMIT, _S.COMPLETE_ABORT))
PREPARED = frozenset((_S.PREPARE_COMMIT, _S.PREPARE_ABORT))

ALLOWED_PREVIOUS: dict[TransactionState, frozenset[TransactionState]] = {
    _S.EMPTY: IDLE,
    _S.ONGOING: IDLE | {_S.ONGOING},
    _S.PREPARE_COMMIT: frozenset((_S.ONGOING,)),
    _S.PREPARE_ABORT: IDLE | {_S.ONGOING, _S.PREPARE_EPOCH_FENCE},
    _S.COMPLETE_COMMIT: frozenset((_S.PREPARE_COMMIT,)),
    _S.COMPLETE_ABORT: frozenset((_S.PREPARE_ABORT,)),
    _S.PREPARE_EPOCH_FENCE: frozenset((_S.ONGOING,)),
    _S.DEAD: IDLE | {_S.DEAD},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """The state of one transactional id. `start_ms` is -1 until its first transaction.

    `previous_producer_id` is the id before the last change of state, `next_producer_id` the one that takes over
    when the open decision is complete, `version` that of the client which made the last change.
    """

    transactional_id: str
    producer_id: int
    producer_epoch: int = NO_PRODUCER_EPOCH
    previous_producer_id: int = NO_PRODUCER_ID
    next_producer_id: int = NO_PRODUCER_ID
    last_producer_epoch: int = NO_PRODUCER_EPOCH
    timeout_ms: int
    state: TransactionState = TransactionState.EMPTY
    partitions: frozenset[TopicPartition] = frozenset()
    start_ms: int = -1
    update_ms: int = -1
    version: int = V1

    @property
    def is_epoch_exhausted(self) -> bool:
        return self.producer_epoch >= LAST_PRODUCER_EPOCH

    def times_out_at(self) -> int | None:
        """When it will be aborted, in wall-clock milliseconds; None unless it is ongoing."""
        return self.start_ms + self.timeout_ms if self.state is TransactionState.ONGOING else None


class Decision(NamedTuple):
    """The answer, and the state to write first (None: nothing changes)."""

    code: ErrorCode
    next: Transaction | None = None


_DONE = Decision(ErrorCode.none)
_INVALID = Decision(ErrorCode.invalid_txn_state)
_CONCURRENT = Decision(ErrorCode.concurrent_transactions)


def _to(transaction: Transaction, state: TransactionState, **changes: Any) -> Transaction:
    if transaction.state not in ALLOWED_PREVIOUS[state]:
        raise AssertionError(
            f"transaction {transaction.transactional_id} cannot go from {transaction.state.name} to {state.name}"
        )
    return replace(transaction, state=state, previous_producer_id=transaction.producer_id, **changes)


def init_producer(
    transaction: Transaction,
    *,
    expected: Producer | None,
    timeout_ms: int,
    version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Decision:
    """InitProducerId. `expected` is the identity that the caller believes to hold (KIP-360).

    NONE comes with the state to write and to answer from. CONCURRENT_TRANSACTIONS comes with a next state where
    the ongoing transaction must be aborted first; the caller asks again.
    """
    if expected is not None and not _may_continue(transaction, expected):
        return Decision(ErrorCode.producer_fenced)
    match transaction.state:
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            return _CONCURRENT
        case TransactionState.ONGOING:
            fenced = fence(transaction, version=version, now_ms=now_ms, new_producer_id=new_producer_id)
            return Decision(ErrorCode.concurrent_transactions, fenced)
        case TransactionState.EMPTY | TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
            pass
        case _:
            raise AssertionError(f"InitProducerId in {transaction.state.name}")
    fresh = _to(
        transaction,
        TransactionState.EMPTY,
        timeout_ms=timeout_ms,
        partitions=frozenset(),
        start_ms=-1,
        update_ms=now_ms,
    )
    expected_epoch = None if expected is None else expected[1]
    current = transaction.producer_epoch
    if transaction.is_epoch_exhausted and expected_epoch in (None, current):
        last = NO_PRODUCER_EPOCH if expected_epoch is None else current
        rotated = replace(fresh, producer_id=new_producer_id(), producer_epoch=0, last_producer_epoch=last)
        return Decision(ErrorCode.none, rotated)
    if expected_epoch is None or current == NO_PRODUCER_EPOCH or expected_epoch == current:
        last = NO_PRODUCER_EPOCH if expected_epoch is None else current
        bumped = replace(fresh, producer_epoch=current + 1, last_producer_epoch=last)
        return Decision(ErrorCode.none, bumped)
    if expected_epoch == transaction.last_producer_epoch and not transaction.is_epoch_exhausted:
        # The bump was done and its answer was lost: the producer gets the same answer again.
        return Decision(ErrorCode.none, fresh)
    return Decision(ErrorCode.producer_fenced)


def _may_continue(transaction: Transaction, expected: Producer) -> bool:
    producer_id, producer_epoch = expected
    return (
        transaction.producer_epoch == NO_PRODUCER_EPOCH
        or producer_id == transaction.producer_id
        or (producer_id == transaction.previous_producer_id and producer_epoch >= LAST_PRODUCER_EPOCH)
    )


def fence(transaction: Transaction, *, version: int, now_ms: int, new_producer_id: NewProducerId) -> Transaction:
    """The decision to abort what is ongoing, under an epoch that its producer does not have.

    In V2 the epoch it had stays known as the last one: its holder may go on from there, unless somebody else
    takes the id first.
    """
    if version < V2:
        epoch = min(transaction.producer_epoch + 1, MAX_PRODUCER_EPOCH)
        transaction = replace(transaction, producer_epoch=epoch, last_producer_epoch=NO_PRODUCER_EPOCH)
    return prepare(transaction, commit=False, version=version, now_ms=now_ms, new_producer_id=new_producer_id)


def add_partitions(
    transaction: Transaction | None,
    *,
    producer: Producer,
    partitions: frozenset[TopicPartition],
    version: int,
    now_ms: int,
) -> Decision:
    """Partitions join: by AddPartitionsToTxn, AddOffsetsToTxn, or in V2 with what is written into them."""
    refusal = _check_producer(transaction, producer)
    if refusal is not None or transaction is None:
        return refusal or Decision(ErrorCode.invalid_producer_id_mapping)
    if transaction.state in PREPARED:
        return _CONCURRENT
    if transaction.state is TransactionState.ONGOING and partitions <= transaction.partitions:
        return _DONE
    begun = transaction.state is TransactionState.ONGOING
    ongoing = _to(
        transaction,
        TransactionState.ONGOING,
        partitions=transaction.partitions | partitions,
        start_ms=transaction.start_ms if begun else now_ms,
        update_ms=now_ms,
        version=version,
    )
    return Decision(ErrorCode.none, ongoing)


def verify(transaction: Transaction | None, *, producer: Producer, partition: TopicPartition) -> ErrorCode:
    """Whether this producer may write to the partition now (KIP-890 part 1)."""
    refusal = _check_producer(transaction, producer)
    if refusal is not None or transaction is None:
        return refusal.code if refusal else ErrorCode.invalid_producer_id_mapping
    if transaction.state in PREPARED:
        return ErrorCode.concurrent_transactions
    return ErrorCode.none if partition in transaction.partitions else ErrorCode.transaction_abortable


def end(
    transaction: Transaction | None,
    *,
    producer: Producer,
    commit: bool,
    version: int,
    now_ms: int,
    new_producer_id: NewProducerId,
) -> Decision:
    """EndTxn. With a next state: write it (that is the decision), write the markers, then `complete`."""
    if transaction is None:
        return Decision(ErrorCode.invalid_producer_id_mapping)
    if version < V2:
        refusal = _check_producer(transaction, producer)
        retried, may_abort_nothing = True, False
    else:
        retried = _is_retry(transaction, producer)
        refusal = _check_end(transaction, producer, retried=retried)
        may_abort_nothing = not retried
    if refusal is not None:
        return refusal
    match transaction.state:
        case TransactionState.ONGOING:
            pass
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            decided = transaction.state is TransactionState.PREPARE_COMMIT
            return _CONCURRENT if commit is decided else _INVALID
        case TransactionState.COMPLETE_COMMIT if retried:
            return _DONE if commit else _INVALID
        case TransactionState.COMPLETE_ABORT if retried:
            return _INVALID if commit else _DONE
        case _ if commit or not may_abort_nothing:
            return _INVALID
    prepared = prepare(transaction, commit=commit, version=version, now_ms=now_ms, new_producer_id=new_producer_id)
    return Decision(ErrorCode.none, prepared)


def _is_retry(transaction: Transaction, producer: Producer) -> bool:
    """V2: whether an EndTxn bears the identity that the end it asks for has taken away."""
    return transaction.producer_epoch == producer[1] + 1 or _overflowed(transaction, producer)


def _overflowed(transaction: Transaction, producer: Producer) -> bool:
    before = (transaction.previous_producer_id, LAST_PRODUCER_EPOCH)
    return producer == before and transaction.producer_epoch == 0


def _check_end(transaction: Transaction, producer: Producer, *, retried: bool) -> Decision | None:
    """V2: who may end. The epoch tells a repeated request from the one that ends the next transaction."""
    producer_id, producer_epoch = producer
    if transaction.producer_id != producer_id and not _overflowed(transaction, producer):
        return Decision(ErrorCode.invalid_producer_id_mapping)
    current = producer_epoch == transaction.producer_epoch
    match transaction.state:
        case TransactionState.PREPARE_COMMIT | TransactionState.PREPARE_ABORT:
            valid = transaction.producer_epoch == producer_epoch + 1
        case TransactionState.COMPLETE_COMMIT | TransactionState.COMPLETE_ABORT:
            valid = retried or current
        case _:
            valid = current
    return None if valid else Decision(ErrorCode.producer_fenced)


def prepare(
    transaction: Transaction, *, commit: bool, version: int, now_ms: int, new_producer_id: NewProducerId
) -> Transaction:
    """The decision. In V2 it takes the next epoch, under which the markers are written."""
    state = TransactionState.PREPARE_COMMIT if commit else TransactionState.PREPARE_ABORT
    changes: dict[str, Any] = {"update_ms": now_ms, "version": version if version >= V2 else V1}
    if transaction.state is not TransactionState.ONGOING:
        changes["start_ms"] = now_ms  # nothing was begun, and a decision has a start
    if version >= V2:
        if transaction.is_epoch_exhausted:
            changes["next_producer_id"] = new_producer_id()
        changes["producer_epoch"] = min(transaction.producer_epoch + 1, MAX_PRODUCER_EPOCH)
        changes["last_producer_epoch"] = transaction.producer_epoch
    return _to(transaction, state, **changes)


def complete(transaction: Transaction, *, now_ms: int) -> Transaction:
    """Every marker is written."""
    done = (
        TransactionState.COMPLETE_COMMIT
        if transaction.state is TransactionState.PREPARE_COMMIT
        else TransactionState.COMPLETE_ABORT
    )
    changes: dict[str, Any] = {"partitions": frozenset(), "update_ms": now_ms}
    if transaction.version >= V2 and transaction.next_producer_id != NO_PRODUCER_ID:
        # The last epoch stays the one before the overflow: a repeated EndTxn bears it.
        changes |= {"producer_id": transaction.next_producer_id, "producer_epoch": 0}
    return _to(transaction, done, next_producer_id=NO_PRODUCER_ID, **changes)


def _check_producer(transaction: Transaction | None, producer: Producer) -> Decision | None:
    if transaction is None or transaction.producer_id != producer[0]:
        return Decision(ErrorCode.invalid_producer_id_mapping)
    if transaction.producer_epoch != producer[1]:
        return Decision(ErrorCode.producer_fenced)
    return None
