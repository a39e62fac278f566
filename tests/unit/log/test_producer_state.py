"""The append rules of a partition, row by row (exactly-once: broker checks on the data path)."""

from __future__ import annotations

import pytest
from support.batches import owned_header

from suiro.log.errors import (
    InvalidProducerEpochError,
    InvalidTransactionStateError,
    LogError,
    OutOfOrderSequenceError,
    TransactionCoordinatorFencedError,
)
from suiro.log.producer_state import ProducerStates
from suiro.protocol.record_batch import next_sequence

PRODUCER = 7
MAX_SEQUENCE = 2**31 - 1


class Partition:
    """Appends to a ProducerStates as a log does: duplicate first, then the check, then the record of it."""

    def __init__(self) -> None:
        self.states = ProducerStates()
        self.offset = 0

    def batch(self, epoch: int, first: int, count: int = 1, *, transactional: bool = False) -> str:
        header = owned_header(count, producer_id=PRODUCER, epoch=epoch, sequence=first, transactional=transactional)
        duplicate = self.states.duplicate_of(header)
        if duplicate is not None:
            return f"duplicate of {duplicate.first_offset}"
        self.states.check_batch(header)
        offset, self.offset = self.offset, self.offset + count
        self.states.add_batch(header, first_offset=offset, timestamp=1000)
        return f"at {offset}"

    def marker(self, epoch: int, coordinator_epoch: int) -> int | None:
        self.states.check_marker(PRODUCER, epoch, coordinator_epoch)
        self.offset += 1
        return self.states.add_marker(PRODUCER, epoch, coordinator_epoch, timestamp=1000)


# (what was appended before: (epoch, first sequence, count)), the batch, what becomes of it
ROWS: list[tuple[str, list[tuple[int, int, int]], tuple[int, int, int], str | type[LogError]]] = [
    ("a producer begins with 0", [], (0, 0, 5), "at 0"),
    ("nothing known: any sequence", [], (3, 17, 5), "at 0"),
    ("the next sequence follows", [(0, 0, 5)], (0, 5, 2), "at 5"),
    ("a gap is refused", [(0, 0, 5)], (0, 6, 2), OutOfOrderSequenceError),
    ("an overlap is refused", [(0, 0, 5)], (0, 4, 2), OutOfOrderSequenceError),
    ("the last batch again", [(0, 0, 5)], (0, 0, 5), "duplicate of 0"),
    ("same first, other last is no duplicate", [(0, 0, 5)], (0, 0, 4), OutOfOrderSequenceError),
    ("same last, other first is no duplicate", [(0, 0, 5)], (0, 1, 4), OutOfOrderSequenceError),
    ("the fifth last again", [(0, n, 1) for n in range(6)], (0, 1, 1), "duplicate of 1"),
    ("the sixth last is forgotten", [(0, n, 1) for n in range(6)], (0, 0, 1), OutOfOrderSequenceError),
    ("a new epoch begins with 0", [(0, 0, 5)], (1, 0, 1), "at 5"),
    ("a new epoch not at 0", [(0, 0, 5)], (1, 5, 1), OutOfOrderSequenceError),
    ("a new epoch forgets the old batches", [(0, 0, 5), (1, 0, 1)], (1, 0, 5), OutOfOrderSequenceError),
    ("an older epoch is fenced", [(1, 0, 5)], (0, 5, 1), InvalidProducerEpochError),
    ("its duplicates too", [(0, 0, 5), (1, 0, 1)], (0, 0, 5), InvalidProducerEpochError),
    ("sequences wrap to 0", [(0, MAX_SEQUENCE, 1)], (0, 0, 1), "at 1"),
    ("a batch across the wrap", [(0, MAX_SEQUENCE - 1, 1)], (0, MAX_SEQUENCE, 3), "at 1"),
    ("after a batch across the wrap", [(0, MAX_SEQUENCE, 3)], (0, 2, 1), "at 3"),
    ("its duplicate", [(0, MAX_SEQUENCE, 3)], (0, MAX_SEQUENCE, 3), "duplicate of 0"),
    ("0 follows only the last of all", [(0, 5, 1)], (0, 0, 1), OutOfOrderSequenceError),
]


@pytest.mark.parametrize(("before", "batch", "expected"), [row[1:] for row in ROWS], ids=[row[0] for row in ROWS])
def test_idempotent_batches(
    before: list[tuple[int, int, int]], batch: tuple[int, int, int], expected: str | type[LogError]
) -> None:
    partition = Partition()
    for epoch, first, count in before:
        partition.batch(epoch, first, count)
    if isinstance(expected, str):
        assert partition.batch(*batch) == expected
    else:
        with pytest.raises(expected):
            partition.batch(*batch)


def test_a_marker_ends_the_transaction_and_tells_what_it_ended() -> None:
    partition = Partition()
    partition.batch(0, 0, 3, transactional=True)
    partition.batch(0, 3, 2, transactional=True)
    assert partition.states.first_unstable_offset == 0
    assert partition.marker(0, 0) == 0
    assert partition.states.first_unstable_offset is None
    assert partition.batch(0, 5, 1, transactional=True) == "at 6"


def test_a_marker_without_a_transaction_completes_nothing() -> None:
    partition = Partition()
    assert partition.marker(0, 0) is None
    partition.batch(0, 0, 1)
    assert partition.marker(0, 0) is None


def test_a_marker_with_a_bumped_epoch_fences_the_old_one() -> None:
    partition = Partition()
    partition.batch(0, 0, 1, transactional=True)
    partition.marker(1, 0)
    with pytest.raises(InvalidProducerEpochError):
        partition.batch(0, 1, 1, transactional=True)
    with pytest.raises(OutOfOrderSequenceError):
        partition.batch(1, 1, 1, transactional=True)
    assert partition.batch(1, 0, 1, transactional=True) == "at 2"


def test_a_marker_of_an_older_epoch_or_coordinator_is_refused() -> None:
    partition = Partition()
    partition.batch(2, 0, 1, transactional=True)
    with pytest.raises(InvalidProducerEpochError):
        partition.marker(1, 5)
    partition.marker(2, 5)
    with pytest.raises(TransactionCoordinatorFencedError):
        partition.marker(2, 4)


def test_a_marker_of_transactions_v2_with_the_epoch_of_the_records_is_late() -> None:
    partition = Partition()
    partition.batch(0, 0, 1, transactional=True)
    partition.states.check_marker(PRODUCER, 1, 0, transaction_version=2)
    with pytest.raises(InvalidProducerEpochError):
        partition.states.check_marker(PRODUCER, 0, 0, transaction_version=2)
    partition.marker(0, 0)
    partition.states.check_marker(PRODUCER, 0, 0, transaction_version=2)  # a repeat


def test_no_plain_batch_while_a_transaction_is_open() -> None:
    partition = Partition()
    partition.batch(0, 0, 1, transactional=True)
    with pytest.raises(InvalidTransactionStateError):
        partition.batch(0, 1, 1)


def test_the_first_unstable_offset_is_that_of_the_oldest_open_transaction() -> None:
    states = ProducerStates()
    for producer, offset in ((1, 0), (2, 20), (3, 30)):
        header = owned_header(1, producer_id=producer, epoch=0, sequence=0, transactional=True)
        states.add_batch(header, first_offset=offset, timestamp=0)
    for known in (states, ProducerStates(reversed(list(states.entries.values())))):
        assert known.first_unstable_offset == 0
    states.add_marker(1, 0, 0, timestamp=0)
    assert states.first_unstable_offset == 20
    assert ProducerStates(reversed(list(states.entries.values()))).first_unstable_offset == 20


def test_idle_producers_expire_but_not_in_a_transaction() -> None:
    states = ProducerStates()
    for offset, (producer, timestamp, transactional) in enumerate(((2, 100, True), (1, 100, False), (3, 200, False))):
        header = owned_header(1, producer_id=producer, epoch=0, sequence=0, transactional=transactional)
        states.add_batch(header, first_offset=offset, timestamp=timestamp)
    states.expire(150)
    assert set(states.entries) == {2, 3}


@pytest.mark.parametrize(
    ("sequence", "count", "expected"),
    [(5, 2, 3), (5, 5, 0), (0, 1, MAX_SEQUENCE), (2, 5, MAX_SEQUENCE - 2)],
)
def test_sequences_count_back_across_the_wrap(sequence: int, count: int, expected: int) -> None:
    assert next_sequence(sequence, -count) == expected
