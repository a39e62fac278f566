"""Transactions V2 and what operators see of transactions, in raw requests: the node and Apache Kafka alike."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from support.admin import ask
from support.batches import read_all
from support.transactional import Transactional, describe
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import Client

NewTopic = Callable[..., str]


@pytest.fixture
def producer(wire: Wire, new_topic: NewTopic, unique: str) -> Transactional:
    return Transactional(wire, unique, new_topic(2))


# One epoch a transaction.


def test_an_end_takes_the_next_epoch_and_writing_begins_the_transaction(
    producer: Transactional, client: Client
) -> None:
    before = (producer.id, producer.epoch)
    assert producer.produce(0, "a", "b") == ("none", 0)
    assert producer.produce(0, "c", partition=1) == ("none", 0)
    assert producer.end(commit=True) == ("none", before[0], before[1] + 1)
    producer.settled()
    producer.epoch += 1
    assert producer.produce(0, "lost")[0] == "none"
    assert producer.finish(commit=False).epoch == before[1] + 2
    assert producer.produce(0, "d")[0] == "none"
    producer.finish()
    assert read_all(client, producer.topic) == ["a", "b", "d"]
    assert read_all(client, producer.topic, 1) == ["c"]
    assert read_all(client, producer.topic, committed=False) == ["a", "b", "lost", "d"]


@pytest.mark.parametrize("commit", [True, False])
def test_an_end_repeated_with_the_epoch_before_gets_the_same_answer(producer: Transactional, commit: bool) -> None:
    producer.produce(0)
    first = producer.end(commit=commit)
    assert first == ("none", producer.id, producer.epoch + 1)
    assert producer.end(commit=commit) == first
    assert producer.end(commit=not commit) == ("invalid_txn_state", -1, -1)


def test_an_end_two_epochs_late_is_fenced(producer: Transactional) -> None:
    old = producer.epoch
    for _ in range(2):
        producer.produce(0)
        producer.finish()
    assert producer.end(commit=True, epoch=old) == ("producer_fenced", -1, -1)
    assert producer.end(commit=True, epoch=producer.epoch + 1) == ("producer_fenced", -1, -1)
    assert producer.end(commit=True, producer_id=producer.id + 1000)[0] == "invalid_producer_id_mapping"


def test_the_repeated_end_of_one_transaction_does_not_end_the_next(producer: Transactional) -> None:
    """What KIP-890 is for."""
    producer.produce(0)
    old = producer.epoch
    producer.finish()
    assert producer.produce(0)[0] == "none"
    assert producer.end(commit=True, epoch=old)[0] == "producer_fenced"
    assert producer.describe()["transaction_state"] == "Ongoing"


def test_an_end_of_nothing(producer: Transactional) -> None:
    assert producer.end(commit=True) == ("invalid_txn_state", -1, -1)
    assert producer.end(commit=False) == ("none", producer.id, producer.epoch + 1)
    assert producer.end(commit=False) == ("none", producer.id, producer.epoch + 1), "the same one again"
    producer.epoch += 1
    assert producer.end(commit=True)[0] == "invalid_txn_state"
    assert producer.end(commit=False) == ("none", producer.id, producer.epoch + 1)
    described = producer.settled()
    assert (described["transaction_state"], described["topics"]) == ("CompleteAbort", [])


def test_an_old_epoch_cannot_write_after_the_end(producer: Transactional) -> None:
    producer.produce(0)
    old = producer.epoch
    producer.finish()
    assert producer.produce(1, epoch=old) == ("invalid_producer_epoch", -1)
    assert producer.produce(0, epoch=old, partition=1) == ("invalid_producer_epoch", -1)
    assert producer.describe()["transaction_state"] == "CompleteCommit"


def test_each_epoch_begins_with_sequence_0(producer: Transactional) -> None:
    assert producer.produce(3)[0] == "out_of_order_sequence_number", "the partition knows nothing of it"
    assert producer.produce(0)[0] == "none"
    producer.finish()
    assert producer.produce(1)[0] == "out_of_order_sequence_number"
    assert producer.produce(0)[0] == "none"
    assert producer.produce(1)[0] == "none"


def test_the_client_of_before_needs_its_partitions_added(producer: Transactional) -> None:
    """One after the other on one id: an application is upgraded, and downgraded again."""
    assert producer.produce(0, version=11)[0] == "transaction_abortable"
    add = producer.wire.add_partitions
    assert add(producer.transactional_id, producer.id, producer.epoch, producer.topic, 0) == ["none"]
    assert producer.produce(0, version=11)[0] == "none"
    assert producer.end(commit=True, version=4)[0] == "none"
    producer.settled()
    assert producer.produce(1, version=12)[0] == "none", "the epoch is still the same"
    producer.finish()
    assert add(producer.transactional_id, producer.id, producer.epoch, producer.topic, 1) == ["none"]
    assert producer.produce(0, partition=1, version=11)[0] == "none"
    assert producer.end(commit=False, version=4)[0] == "none"


def test_a_batch_without_the_id_in_the_request(producer: Transactional, wire: Wire) -> None:
    producer.transactional_id = ""
    assert producer.produce(0)[0] == "invalid_request"


# Fences.


def test_init_in_the_middle_fences_and_its_holder_may_go_on(producer: Transactional, client: Client) -> None:
    producer.produce(0, "lost")
    holder = (producer.id, producer.epoch)
    assert producer.init(producer_id=producer.id, epoch=producer.epoch) == ("none", holder[0], holder[1] + 1)
    assert producer.produce(1)[0] == "invalid_producer_epoch"
    assert producer.end(commit=True) == ("producer_fenced", -1, -1)
    producer.epoch += 1
    assert producer.produce(0, "kept")[0] == "none"
    producer.finish()
    assert read_all(client, producer.topic) == ["kept"]


def test_another_that_takes_the_id_fences_for_good(producer: Transactional, client: Client) -> None:
    producer.produce(0, "lost")
    assert producer.init() == ("none", producer.id, producer.epoch + 2)
    assert producer.produce(1)[0] == "invalid_producer_epoch"
    assert producer.end(commit=True) == ("producer_fenced", -1, -1)
    assert producer.init(producer_id=producer.id, epoch=producer.epoch)[0] == "producer_fenced"
    assert read_all(client, producer.topic) == []


def test_a_transaction_is_aborted_at_its_timeout(wire: Wire, new_topic: NewTopic, unique: str) -> None:
    producer = Transactional(wire, unique, new_topic(), timeout_ms=100)
    producer.produce(0, "lost")
    wait_until(lambda: producer.describe()["transaction_state"] == "CompleteAbort", what="the abort at the timeout")
    assert producer.describe()["producer_epoch"] == producer.epoch + 1
    assert producer.produce(1)[0] == "invalid_producer_epoch"
    assert producer.end(commit=True)[0] == "invalid_txn_state"
    assert producer.end(commit=False) == ("none", producer.id, producer.epoch + 1)
    assert producer.init(producer_id=producer.id, epoch=producer.epoch) == (
        "none",
        producer.id,
        producer.epoch + 1,
    )


# Offsets.


def test_offsets_join_the_transaction_by_themselves(
    producer: Transactional, wire: Wire, new_topic: NewTopic, unique: str, client: Client
) -> None:
    read = new_topic()
    client.offset_commit(unique, {(read, 0): (1, "")})
    assert producer.commit_offset(unique, read, 5) == "none"
    (offsets,) = producer.describe()["topics"]
    assert offsets["topic"] == "__consumer_offsets"
    assert wire.offset_fetch(unique, read)[0] == "unstable_offset_commit"
    old = producer.epoch
    producer.finish()
    assert wire.offset_fetch(unique, read) == ("none", 5)
    assert producer.commit_offset(unique, read, 6, epoch=old) == "invalid_producer_epoch"
    assert producer.commit_offset(unique, read, 7) == "none"
    assert producer.describe()["topics"][0]["topic"] == "__consumer_offsets"
    producer.finish(commit=False)
    assert wire.offset_fetch(unique, read) == ("none", 5)


def test_offsets_of_the_client_of_before_need_the_group_added(
    producer: Transactional, new_topic: NewTopic, unique: str, client: Client
) -> None:
    read = new_topic()
    client.offset_commit(unique, {(read, 0): (1, "")})
    assert producer.commit_offset(unique, read, 5, version=3) == "invalid_txn_state"
    assert producer.commit_offset(unique, read, 5, version=4) == "transaction_abortable"
    assert producer.commit_offset(unique, "no-such-topic", 5) == "unknown_topic_or_partition"
    assert producer.describe()["transaction_state"] == "Empty"
    assert producer.commit_offset("", read, 5) == "invalid_group_id"


# Between brokers: AddPartitionsToTxn from version 4 on.


def batched(
    producer: Transactional, *, verify_only: bool, version: int, epoch: int | None = None, partition: int = 0
) -> dict[str, Any]:
    return {
        "transactional_id": producer.transactional_id,
        "producer_id": producer.id,
        "producer_epoch": producer.epoch if epoch is None else epoch,
        "verify_only": verify_only,
        "topics": [{"name": producer.topic, "partitions": (partition,)}],
    }


@pytest.mark.parametrize("version", [4, 5])
def test_several_transactions_in_one_request(wire: Wire, new_topic: NewTopic, unique: str, version: int) -> None:
    first, second = (Transactional(wire, f"{unique}-{n}", new_topic()) for n in range(2))
    first.produce(0)

    def codes(*transactions: dict[str, Any]) -> list[str]:
        answer = ask(wire, "add_partitions_to_txn", version, transactions=transactions)
        assert answer["error_code"] == "none"
        assert [r["transactional_id"] for r in answer["results_by_transaction"]] == [
            t["transactional_id"] for t in transactions
        ]
        return [
            partition["partition_error_code"]
            for result in answer["results_by_transaction"]
            for topic in result["topic_results"]
            for partition in topic["results_by_partition"]
        ]

    verified = [batched(p, verify_only=True, version=version) for p in (first, second)]
    assert codes(*verified) == ["none", "transaction_abortable"]
    assert second.describe()["transaction_state"] == "Empty"
    added = [
        batched(first, verify_only=False, version=version, partition=7),
        batched(second, verify_only=False, version=version),
    ]
    assert codes(*added) == ["unknown_topic_or_partition", "none"]
    assert second.describe()["transaction_state"] == "Ongoing"
    fenced = [batched(first, verify_only=verify, version=version, epoch=9) for verify in (True,)]
    assert codes(*fenced) == ["producer_fenced"]


# What operators see and do.


def test_a_transaction_described(producer: Transactional, wire: Wire) -> None:
    empty = producer.describe()
    assert (empty["error_code"], empty["transaction_state"], empty["topics"]) == ("none", "Empty", [])
    assert empty["transaction_start_time"] == -1
    assert (empty["producer_id"], empty["producer_epoch"]) == (producer.id, producer.epoch)
    assert empty["transaction_timeout"] == 60_000
    producer.produce(0, partition=1)
    ongoing = producer.describe()
    assert ongoing["topics"] == [{"topic": producer.topic, "partitions": [1]}]
    assert ongoing["transaction_start_time"] > 1_600_000_000_000
    producer.finish()
    complete = producer.describe()
    assert (complete["transaction_state"], complete["topics"]) == ("CompleteCommit", [])
    assert complete["transaction_start_time"] == ongoing["transaction_start_time"]
    unknown = describe(wire, "no such id")
    assert (unknown["error_code"], unknown["producer_id"]) == ("transactional_id_not_found", 0)
    assert (unknown["transaction_start_time"], unknown["transaction_state"]) == (0, "")
    assert describe(wire, "")["error_code"] == "invalid_request"


def test_transactions_listed(producer: Transactional, wire: Wire, unique: str) -> None:
    def listed(version: int = 2, **filters: Any) -> list[str]:
        answer = ask(wire, "list_transactions", version, **filters)
        assert answer["error_code"] == "none"
        return [
            entry["transaction_state"] for entry in answer["transaction_states"] if entry["transactional_id"] == unique
        ]

    assert listed(0) == ["Empty"]
    producer.produce(0)
    assert listed(0, state_filters=("Ongoing", "CompleteCommit")) == ["Ongoing"]
    assert listed(0, state_filters=("Empty",)) == []
    assert listed(1, producer_id_filters=(producer.id,)) == ["Ongoing"]
    assert listed(1, producer_id_filters=(producer.id + 1000,)) == []
    assert listed(1, duration_filter=0, state_filters=("Ongoing",)) in (["Ongoing"], [])
    assert listed(1, duration_filter=600_000) == []
    assert listed(2, transactional_id_pattern=f"{unique[:4]}.*") == ["Ongoing"]
    assert listed(2, transactional_id_pattern=unique[:4]) == [], "the whole id has to match"
    assert listed(2, transactional_id_pattern="") == ["Ongoing"]
    answer = ask(wire, "list_transactions", 0, state_filters=("Ongoing", "Asleep", "ongoing"))
    assert sorted(answer["unknown_state_filters"]) == ["Asleep", "ongoing"]
    wrong = ask(wire, "list_transactions", 2, transactional_id_pattern="(")
    assert (wrong["error_code"], wrong["transaction_states"]) == ("invalid_regular_expression", [])


def producers_of(wire: Wire, topic: str, *partitions: int) -> list[dict[str, Any]]:
    answer = ask(wire, "describe_producers", 0, topics=[{"name": topic, "partition_indexes": partitions}])
    (found,) = answer["topics"]
    assert found["name"] == topic
    return list(found["partitions"])


def test_producers_described(producer: Transactional, wire: Wire) -> None:
    producer.produce(0, "a", "b")
    (open_here,) = producers_of(wire, producer.topic, 0)[0]["active_producers"]
    assert open_here["last_timestamp"] > 0
    del open_here["last_timestamp"]
    assert open_here == {
        "producer_id": producer.id,
        "producer_epoch": producer.epoch,
        "last_sequence": 1,
        "coordinator_epoch": -1,
        "current_txn_start_offset": 0,
    }
    producer.finish()
    (ended,) = producers_of(wire, producer.topic, 0)[0]["active_producers"]
    assert (ended["producer_epoch"], ended["last_sequence"]) == (producer.epoch, -1)
    assert (ended["coordinator_epoch"], ended["current_txn_start_offset"]) == (0, -1)
    nobody, missing = producers_of(wire, producer.topic, 1, 7)
    assert (nobody["error_code"], nobody["active_producers"]) == ("none", [])
    assert (missing["error_code"], missing["active_producers"]) == ("unknown_topic_or_partition", [])
    assert producers_of(wire, "no-such-topic", 0)[0]["error_code"] == "unknown_topic_or_partition"
    assert producers_of(wire, "a/b", 0)[0]["error_code"] == "invalid_topic_exception"


def mark(
    wire: Wire,
    producer: Transactional,
    *partitions: int,
    epoch: int,
    coordinator_epoch: int = 0,
    version: int,
) -> list[str]:
    """Send an abort marker as an operator's tool does; in version 2 with the rules of V2."""
    marker: dict[str, Any] = {
        "producer_id": producer.id,
        "producer_epoch": epoch,
        "transaction_result": False,
        "topics": [{"name": producer.topic, "partition_indexes": partitions}],
        "coordinator_epoch": coordinator_epoch,
    }
    if version >= 2:
        marker["transaction_version"] = 2
    (result,) = ask(wire, "write_txn_markers", version, markers=[marker])["markers"]
    assert result["producer_id"] == producer.id
    return [p["error_code"] for t in result["topics"] for p in t["partitions"]]


def test_an_operator_ends_what_hangs_in_a_partition(producer: Transactional, wire: Wire, client: Client) -> None:
    producer.finish(commit=False)
    producer.produce(0, "lost")
    epoch = producer.epoch
    assert mark(wire, producer, 0, epoch=epoch, version=2) == ["invalid_producer_epoch"], "V2 asks for more"
    assert mark(wire, producer, 0, epoch=epoch - 1, version=1) == ["invalid_producer_epoch"]
    assert mark(wire, producer, 0, epoch=epoch, version=1) == ["none"]
    assert read_all(client, producer.topic) == []
    assert client.list_offsets({(producer.topic, 0): -1}, read_committed=True)[producer.topic, 0].offset == 2
    (ended,) = producers_of(wire, producer.topic, 0)[0]["active_producers"]
    assert ended["current_txn_start_offset"] == -1
    assert producer.describe()["transaction_state"] == "Ongoing", "its coordinator was not asked"
    assert mark(wire, producer, 0, epoch=epoch + 1, version=2) == ["none"]
    assert mark(wire, producer, 0, epoch=epoch + 1, version=2) == ["none"], "written twice, no harm"
    assert producer.produce(1)[0] == "invalid_producer_epoch"
    assert mark(wire, producer, 7, epoch=epoch + 1, version=1) == ["unknown_topic_or_partition"]


def test_a_marker_of_a_coordinator_that_was_replaced(producer: Transactional, wire: Wire) -> None:
    producer.produce(0)
    assert mark(wire, producer, 0, epoch=producer.epoch, coordinator_epoch=5, version=1) == ["none"]
    fenced = mark(wire, producer, 0, epoch=producer.epoch, coordinator_epoch=4, version=1)
    assert fenced == ["transaction_coordinator_fenced"]
    assert ask(wire, "write_txn_markers", 1, markers=[])["markers"] == []
