"""What a broker must answer to the exactly-once protocol, request by request; Apache Kafka is the reference.

Everything that the exactly-once sink relies on (sequences, epochs, verification, the retry table of EndTxn under
the V1 protocol, InitProducerId in each state) has a row here, and both subjects pass the same rows.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.batches import batch_of, owned_batch, read_all
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import Client

NewTopicFixture = Callable[..., str]


class Idempotent:
    """A producer without transactions, writing batches of two records each to one partition."""

    def __init__(self, wire: Wire, topic: str) -> None:
        self.wire, self.topic = wire, topic
        self.id, self.epoch = wire.new_producer()

    def produce(self, sequence: int, *, epoch: int | None = None, values: str = "ab") -> tuple[str, int]:
        batch = owned_batch(
            *values, producer_id=self.id, epoch=self.epoch if epoch is None else epoch, sequence=sequence
        )
        return self.wire.produce(self.topic, batch)


@pytest.fixture
def idempotent(wire: Wire, new_topic: NewTopicFixture) -> Idempotent:
    return Idempotent(wire, new_topic())


# -- sequences ------------------------------------------------------------------------------------------------


def test_sequences_in_order(idempotent: Idempotent) -> None:
    assert [idempotent.produce(2 * number) for number in range(4)] == [("none", 2 * n) for n in range(4)]


def test_each_of_the_last_five_batches_is_a_duplicate(idempotent: Idempotent) -> None:
    for number in range(7):
        idempotent.produce(2 * number)
    assert [idempotent.produce(2 * number) for number in range(2, 7)] == [
        ("none", 2 * number) for number in range(2, 7)
    ]


def test_a_duplicate_beyond_the_last_five_is_out_of_order(idempotent: Idempotent) -> None:
    for number in range(7):
        idempotent.produce(2 * number)
    assert idempotent.produce(2)[0] in ("out_of_order_sequence_number", "duplicate_sequence_number")


def test_a_duplicate_is_one_by_its_range_not_its_content(idempotent: Idempotent) -> None:
    idempotent.produce(0)
    assert idempotent.produce(0, values="xy") == ("none", 0)
    assert idempotent.produce(0, values="xyz")[0] == "out_of_order_sequence_number"
    assert idempotent.produce(2) == ("none", 2)


def test_a_gap_is_refused_and_closing_it_is_not(idempotent: Idempotent) -> None:
    idempotent.produce(0)
    assert idempotent.produce(4)[0] == "out_of_order_sequence_number"
    assert idempotent.produce(2) == ("none", 2)
    assert idempotent.produce(4) == ("none", 4)


def test_a_producer_the_partition_does_not_know_may_begin_anywhere(idempotent: Idempotent) -> None:
    """Retention may have taken all it wrote (KAFKA-14402 made this the rule for requests before TV2)."""
    assert idempotent.produce(10) == ("none", 0)
    assert idempotent.produce(12) == ("none", 2)


def test_a_new_epoch_begins_at_sequence_zero(idempotent: Idempotent) -> None:
    idempotent.produce(0)
    assert idempotent.produce(2, epoch=1)[0] == "out_of_order_sequence_number"
    assert idempotent.produce(0, epoch=1) == ("none", 2)
    assert idempotent.produce(2, epoch=1) == ("none", 4)


def test_an_old_epoch_is_refused(idempotent: Idempotent) -> None:
    idempotent.produce(0, epoch=3)
    assert idempotent.produce(2, epoch=2)[0] == "invalid_producer_epoch"
    assert idempotent.produce(0, epoch=2)[0] == "invalid_producer_epoch"
    assert idempotent.produce(2, epoch=3) == ("none", 2)


def test_sequences_wrap_around(idempotent: Idempotent) -> None:
    last = 2**31 - 1
    assert idempotent.produce(last - 1) == ("none", 0)
    assert idempotent.produce(0) == ("none", 2)
    assert idempotent.produce(2) == ("none", 4)


def test_a_batch_across_the_wrap(idempotent: Idempotent) -> None:
    last = 2**31 - 1
    assert idempotent.produce(last) == ("none", 0)
    assert idempotent.produce(1) == ("none", 2)
    assert idempotent.produce(last) == ("none", 0)


def test_partitions_have_their_own_sequences(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    producer_id, epoch = wire.new_producer()
    batch = owned_batch("a", producer_id=producer_id, epoch=epoch, sequence=0)
    assert wire.produce(topic, batch, partition=0) == ("none", 0)
    assert wire.produce(topic, batch, partition=1) == ("none", 0)


def test_two_batches_in_one_request(wire: Wire, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    assert wire.produce(topic, batch_of("a") + batch_of("b"))[0] == "invalid_record"


def test_a_transactional_batch_needs_the_id_in_the_request(wire: Wire, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic()
    producer_id, epoch = wire.new_producer(unique)
    wire.add_partitions(unique, producer_id, epoch, topic, 0)
    batch = owned_batch("a", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    assert wire.produce(topic, batch)[0] != "none"


# -- transactions ---------------------------------------------------------------------------------------------


class Transactional:
    """A transactional producer that sends what it is told."""

    def __init__(self, wire: Wire, transactional_id: str, topic: str) -> None:
        self.wire, self.transactional_id, self.topic = wire, transactional_id, topic
        self.id, self.epoch = wire.new_producer(transactional_id)

    def add(self, *partitions: int, epoch: int | None = None, producer_id: int | None = None) -> list[str]:
        """Waits for the markers of an earlier transaction: they come when they come."""
        ids = self.id if producer_id is None else producer_id
        at = self.epoch if epoch is None else epoch

        def once() -> list[str] | None:
            codes = self.wire.add_partitions(self.transactional_id, ids, at, self.topic, *partitions)
            return None if "concurrent_transactions" in codes else codes

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or []

    def produce(
        self, sequence: int, *values: str, epoch: int | None = None, partition: int = 0, version: int = 11
    ) -> tuple[str, int]:
        batch = owned_batch(
            *(values or ("v",)),
            producer_id=self.id,
            epoch=self.epoch if epoch is None else epoch,
            sequence=sequence,
            transactional=True,
        )
        return self.wire.produce(
            self.topic, batch, partition=partition, transactional_id=self.transactional_id, version=version
        )

    def end(self, *, commit: bool, epoch: int | None = None, settled: bool = False) -> str:
        """With `settled`, asks until the answer is not CONCURRENT_TRANSACTIONS."""
        at = self.epoch if epoch is None else epoch

        def once() -> str | None:
            code = self.wire.end_txn(self.transactional_id, self.id, at, commit=commit)
            return None if settled and code == "concurrent_transactions" else code

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or ""

    def init(self, *, producer_id: int = -1, epoch: int = -1) -> tuple[str, int, int]:
        def once() -> tuple[str, int, int] | None:
            answer = self.wire.init_producer_id(self.transactional_id, producer_id=producer_id, epoch=epoch)
            return None if answer[0] == "concurrent_transactions" else answer

        return wait_until(once, what="an answer other than CONCURRENT_TRANSACTIONS") or ("", -1, -1)

    def committed(self, *, commit: bool = True) -> Transactional:
        """After one whole transaction that ended so, its markers written."""
        self.add(0)
        assert self.produce(0)[0] == "none"
        assert self.end(commit=commit) == "none"
        self.end(commit=commit, settled=True)
        return self


@pytest.fixture
def transactional(wire: Wire, new_topic: NewTopicFixture, unique: str) -> Transactional:
    return Transactional(wire, unique, new_topic(2))


def test_an_unverified_partition_is_refused(transactional: Transactional) -> None:
    """Nothing gets into a log outside of a transaction (KIP-890 part 1)."""
    assert transactional.produce(0)[0] == "transaction_abortable"
    transactional.add(1)
    assert transactional.produce(0, partition=0)[0] == "transaction_abortable"
    assert transactional.produce(0, partition=1) == ("none", 0)


def test_an_old_client_hears_another_name_for_unverified(transactional: Transactional) -> None:
    assert transactional.produce(0, version=9)[0] == "invalid_txn_state"


def test_after_the_end_the_partition_has_to_be_added_again(transactional: Transactional) -> None:
    transactional.committed()
    assert transactional.produce(1)[0] == "transaction_abortable"


def test_an_old_epoch_cannot_produce_after_a_fence(client: Client, transactional: Transactional) -> None:
    transactional.add(0)
    assert transactional.produce(0) == ("none", 0)
    assert transactional.init()[0] == "none"
    assert transactional.produce(1)[0] == "invalid_producer_epoch"
    assert read_all(client, transactional.topic) == []


def test_an_old_epoch_is_refused_by_the_coordinator(transactional: Transactional, unique: str) -> None:
    code, producer_id, epoch = transactional.init()
    assert (code, producer_id, epoch) == ("none", transactional.id, transactional.epoch + 1)
    wire = transactional.wire
    assert transactional.add(0) == ["producer_fenced"]
    assert wire.add_offsets(unique, transactional.id, transactional.epoch, unique) == "producer_fenced"
    assert transactional.end(commit=True) == "producer_fenced"


def test_a_foreign_producer_id_is_refused_by_the_coordinator(transactional: Transactional, unique: str) -> None:
    assert transactional.add(0, producer_id=transactional.id + 1000) == ["invalid_producer_id_mapping"]


def test_adding_twice_is_adding_once(transactional: Transactional) -> None:
    assert transactional.add(0) == ["none"]
    assert transactional.add(0, 1) == ["none", "none"]


def test_a_missing_partition_spoils_the_whole_request(transactional: Transactional) -> None:
    assert transactional.add(0, 7) == ["operation_not_attempted", "unknown_topic_or_partition"]
    assert transactional.produce(0)[0] == "transaction_abortable"


def test_sequences_begin_anew_with_each_epoch(transactional: Transactional) -> None:
    transactional.committed()
    _, _, transactional.epoch = transactional.init(producer_id=transactional.id, epoch=transactional.epoch)
    transactional.add(0)
    assert transactional.produce(1)[0] == "out_of_order_sequence_number"
    assert transactional.produce(0)[0] == "none"


def test_sequences_go_on_within_an_epoch(transactional: Transactional) -> None:
    transactional.committed()
    transactional.add(0)
    assert transactional.produce(1)[0] == "none"


# The retry table of EndTxn (V1 protocol). Rows: the state the coordinator is in.


@pytest.mark.parametrize("commit", [True, False])
def test_end_without_a_transaction(transactional: Transactional, commit: bool) -> None:
    assert transactional.end(commit=commit) == "invalid_txn_state"


@pytest.mark.parametrize("commit", [True, False])
def test_end_repeated(transactional: Transactional, commit: bool) -> None:
    transactional.committed(commit=commit)
    assert transactional.end(commit=commit) == "none"
    assert transactional.end(commit=commit) == "none"


@pytest.mark.parametrize("commit", [True, False])
def test_end_contradicted(transactional: Transactional, commit: bool) -> None:
    transactional.committed(commit=commit)
    assert transactional.end(commit=not commit) == "invalid_txn_state"


def test_end_under_a_later_epoch(transactional: Transactional) -> None:
    transactional.add(0)
    assert transactional.end(commit=True, epoch=transactional.epoch + 1) == "producer_fenced"


def test_end_of_the_old_epoch_after_a_bump(transactional: Transactional) -> None:
    """The delayed duplicate of an EndTxn must not end the next transaction: that is what the bump is for."""
    transactional.committed()
    _, _, epoch = transactional.init(producer_id=transactional.id, epoch=transactional.epoch)
    assert transactional.add(0, epoch=epoch) == ["none"]
    assert transactional.produce(0, "next", epoch=epoch)[0] == "none"
    assert transactional.end(commit=True) == "producer_fenced"
    assert transactional.end(commit=True, epoch=epoch) == "none"


# InitProducerId in each state.


def test_init_of_a_new_id(wire: Wire, unique: str) -> None:
    producer_id, epoch = wire.new_producer(unique)
    assert producer_id >= 0
    assert epoch == 0


def test_init_again_when_empty(transactional: Transactional) -> None:
    assert transactional.init() == ("none", transactional.id, transactional.epoch + 1)


@pytest.mark.parametrize("commit", [True, False])
def test_init_after_an_end(transactional: Transactional, commit: bool) -> None:
    transactional.committed(commit=commit)
    assert transactional.init() == ("none", transactional.id, transactional.epoch + 1)


def test_init_during_a_transaction_aborts_it(client: Client, transactional: Transactional) -> None:
    transactional.add(0)
    transactional.produce(0, "lost")
    first = transactional.wire.init_producer_id(transactional.transactional_id)
    assert first == ("concurrent_transactions", -1, -1)
    code, producer_id, epoch = transactional.init()
    assert (code, producer_id) == ("none", transactional.id)
    assert epoch == transactional.epoch + 2, "one epoch fences, the next one is handed out"
    assert read_all(client, transactional.topic) == []
    assert read_all(client, transactional.topic, committed=False) == ["lost"]


def test_init_with_the_current_identity(transactional: Transactional) -> None:
    bumped = transactional.init(producer_id=transactional.id, epoch=transactional.epoch)
    assert bumped == ("none", transactional.id, transactional.epoch + 1)


def test_init_repeated_with_the_identity_before(transactional: Transactional) -> None:
    """A lost answer: the repetition gets the same epoch, not another one."""
    first = transactional.init(producer_id=transactional.id, epoch=transactional.epoch)
    assert transactional.init(producer_id=transactional.id, epoch=transactional.epoch) == first


def test_init_with_an_identity_two_epochs_old(transactional: Transactional) -> None:
    transactional.init()
    transactional.init()
    answer = transactional.init(producer_id=transactional.id, epoch=transactional.epoch)
    assert answer[0] == "producer_fenced"


def test_init_with_a_foreign_producer_id(transactional: Transactional) -> None:
    assert transactional.init(producer_id=transactional.id + 1000, epoch=0)[0] == "producer_fenced"


def test_init_with_half_an_identity(transactional: Transactional) -> None:
    assert transactional.init(producer_id=transactional.id, epoch=-1)[0] == "invalid_request"


def test_init_with_an_empty_id(wire: Wire) -> None:
    assert wire.init_producer_id("")[0] == "invalid_request"


@pytest.mark.parametrize("timeout_ms", [0, 24 * 3600 * 1000])
def test_init_with_a_timeout_out_of_range(wire: Wire, unique: str, timeout_ms: int) -> None:
    wire.new_producer(unique)
    assert wire.init_producer_id(unique, timeout_ms=timeout_ms)[0] == "invalid_transaction_timeout"


# Offsets in transactions.


def test_offsets_wait_for_the_decision(
    transactional: Transactional, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    marker = new_topic()
    client.offset_commit(unique, {(marker, 0): (1, "")})
    wire, identity = transactional.wire, (transactional.id, transactional.epoch)
    assert wire.add_offsets(unique, *identity, unique) == "none"
    assert wire.txn_offset_commit(unique, *identity, unique, marker, 2) == "none"
    assert wire.offset_fetch(unique, marker)[0] == "unstable_offset_commit"
    assert wire.offset_fetch(unique, marker, require_stable=False) == ("none", 1)
    assert transactional.end(commit=True) == "none"
    transactional.end(commit=True, settled=True)
    stable = wait_until(
        lambda: (found := wire.offset_fetch(unique, marker))[0] == "none" and found, what="a stable offset"
    )
    assert stable == ("none", 2)


def test_offsets_of_an_aborted_transaction_are_dropped(
    transactional: Transactional, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    marker = new_topic()
    client.offset_commit(unique, {(marker, 0): (1, "")})
    wire, identity = transactional.wire, (transactional.id, transactional.epoch)
    assert wire.add_offsets(unique, *identity, unique) == "none"
    assert wire.txn_offset_commit(unique, *identity, unique, marker, 2) == "none"
    assert transactional.init()[0] == "none"
    assert wire.offset_fetch(unique, marker) == ("none", 1)


def test_metadata_of_an_offset_that_is_too_long(
    transactional: Transactional, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    marker = new_topic()
    client.offset_fetch(unique, [(marker, 0)])
    wire, identity = transactional.wire, (transactional.id, transactional.epoch)
    assert wire.add_offsets(unique, *identity, unique) == "none"
    code = wire.txn_offset_commit(unique, *identity, unique, marker, 2, metadata="x" * 4097)
    assert code == "offset_metadata_too_large"


def test_offsets_of_a_missing_topic(transactional: Transactional, client: Client, unique: str) -> None:
    wire, identity = transactional.wire, (transactional.id, transactional.epoch)
    assert wire.add_offsets(unique, *identity, unique) == "none"
    code = wire.txn_offset_commit(unique, *identity, unique, "no-such-topic", 2)
    assert code == "unknown_topic_or_partition"


def test_offsets_under_an_old_epoch(
    transactional: Transactional, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    marker = new_topic()
    client.offset_fetch(unique, [(marker, 0)])
    wire, old = transactional.wire, transactional.epoch
    wire.add_offsets(unique, transactional.id, old, unique)
    wire.txn_offset_commit(unique, transactional.id, old, unique, marker, 2)
    assert transactional.init()[0] == "none"
    code = wire.txn_offset_commit(unique, transactional.id, old, unique, marker, 3)
    assert code in ("producer_fenced", "invalid_producer_epoch")
    assert wire.offset_fetch(unique, marker) == ("none", -1)
