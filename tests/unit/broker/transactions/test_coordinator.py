"""The coordinator over real logs: what fails is tried again and holds nobody up; what was decided survives."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import TIMESTAMP, owned_batch
from support.brokers import started
from support.logs import open_transaction

from suiro.broker import Broker
from suiro.broker.coordination.transactions.state import V1, V2, Transaction, TransactionState
from suiro.broker.handlers.offsets import txn_offset_commit
from suiro.broker.handlers.transactions import add_offsets_to_txn
from suiro.broker.refusals import RefusedError
from suiro.broker.storage import system_log
from suiro.broker.storage.topics import Partition
from suiro.clock import ManualClock
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

S = TransactionState
TIMEOUT_MS = 60_000


def partition_of(broker: Broker, topic: str) -> Partition:
    found = broker.topics.partition(topic, 0)
    assert found is not None
    return found


def write(broker: Broker, transactional_id: str, topic: str) -> tuple[int, int]:
    """A transaction with one batch in the topic's partition; its producer."""
    code, producer_id, epoch = broker.transactions.init_producer_id(
        transactional_id, timeout_ms=TIMEOUT_MS, expected=None
    )
    assert code is ErrorCode.none
    added = broker.transactions.add_partitions(
        transactional_id,
        producer=(producer_id, epoch),
        partitions=frozenset(((topic, 0),)),
        version=V2,
    )
    assert added is ErrorCode.none
    batch = owned_batch("v", producer_id=producer_id, epoch=epoch, sequence=0, transactional=True)
    partition_of(broker, topic).log.append(batch)
    return producer_id, epoch


def end(
    broker: Broker,
    transactional_id: str,
    producer: tuple[int, int],
    *,
    commit: bool = True,
    version: int = V2,
) -> tuple[ErrorCode, int, int]:
    return broker.transactions.end(
        transactional_id, producer=(producer[0], producer[1]), commit=commit, version=version
    )


def found(broker: Broker, transactional_id: str) -> Transaction:
    transaction = broker.transactions.find(transactional_id)
    assert transaction is not None
    return transaction


class Broken:
    """A partition whose disk takes no marker, until `mend`."""

    def __init__(self, partition: Partition) -> None:
        self._log = partition.log
        partition.log.append_control = self._refuse  # type: ignore[method-assign]

    def _refuse(self, *args: object, **kwargs: object) -> int:
        raise StorageError("the disk is full")

    def mend(self) -> None:
        del self._log.append_control


def is_open(broker: Broker, topic: str, producer_id: int) -> bool:
    return open_transaction(partition_of(broker, topic).log, producer_id) is not None


def test_a_marker_that_cannot_be_written_is_tried_again_and_holds_up_nobody(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=TIMESTAMP)
    with started(tmp_path, clock) as broker:
        for topic in ("bad", "good"):
            broker.create_topic(topic)
        stuck, fine = write(broker, "stuck", "bad"), write(broker, "fine", "good")
        broken = Broken(partition_of(broker, "bad"))
        broker.transactions.add_partitions(
            "stuck",
            producer=(stuck[0], stuck[1]),
            partitions=frozenset((("good", 0),)),
            version=V2,
        )
        assert end(broker, "stuck", stuck) == (ErrorCode.none, stuck[0], stuck[1] + 1)
        assert found(broker, "stuck").state is S.PREPARE_COMMIT
        assert found(broker, "stuck").partitions == {("bad", 0)}, "the other one has its marker"
        assert end(broker, "stuck", stuck)[0] is ErrorCode.concurrent_transactions
        clock.advance(TIMEOUT_MS + 1)
        broker.transactions.retry_and_time_out()
        assert found(broker, "stuck").state is S.PREPARE_COMMIT
        assert found(broker, "fine").state is S.COMPLETE_ABORT, "timed out behind the one that is stuck"
        assert not is_open(broker, "good", fine[0])
        broken.mend()
        broker.transactions.retry_and_time_out()
        assert found(broker, "stuck").state is S.COMPLETE_COMMIT
        assert not is_open(broker, "bad", stuck[0])
        assert end(broker, "stuck", stuck) == (ErrorCode.none, stuck[0], stuck[1] + 1)


def test_a_decision_without_its_marker_survives_a_restart(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=TIMESTAMP)
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        producer = write(broker, "id", "t")
        broken = Broken(partition_of(broker, "t"))
        assert end(broker, "id", producer)[0] is ErrorCode.none
        broken.mend()
    with started(tmp_path, clock) as broker:
        assert found(broker, "id").state is S.COMPLETE_COMMIT
        assert not is_open(broker, "t", producer[0])
        assert found(broker, "id").producer_epoch == producer[1] + 1
        code, producer_id, epoch = broker.transactions.init_producer_id("id", timeout_ms=TIMEOUT_MS, expected=None)
        assert (code, producer_id, epoch) == (ErrorCode.none, producer[0], producer[1] + 2)


def test_a_state_that_cannot_be_written_changes_nothing(tmp_path: Path) -> None:
    with started(tmp_path, ManualClock(wall_ms=TIMESTAMP)) as broker:
        broker.create_topic("t")
        producer = write(broker, "id", "t")
        before = found(broker, "id")
        logs = [p.log for p in broker.internal_topic("__transaction_state").partitions]

        def refuse(*args: object, **kwargs: object) -> int:
            raise StorageError("the disk is full")

        for log in logs:
            log.append = refuse  # type: ignore[method-assign,assignment]
        assert end(broker, "id", producer)[0] is ErrorCode.not_coordinator
        assert found(broker, "id") == before
        for log in logs:
            del log.append
        assert end(broker, "id", producer)[0] is ErrorCode.none


def test_a_coordinator_takes_over_where_another_has_written(tmp_path: Path) -> None:
    """A folder that comes from a Kafka has markers of its coordinators' epochs, which are higher than ours."""
    with started(tmp_path, ManualClock(wall_ms=TIMESTAMP)) as broker:
        broker.create_topic("t")
        producer = write(broker, "id", "t")
        partition_of(broker, "t").log.append_control(True, producer[0], producer[1], 12)
        write_again = owned_batch("w", producer_id=producer[0], epoch=producer[1], sequence=1, transactional=True)
        partition_of(broker, "t").log.append(write_again)
        assert end(broker, "id", producer)[0] is ErrorCode.none
        assert not is_open(broker, "t", producer[0])


@pytest.mark.parametrize("level", [0, 1, 2])
def test_what_nobody_asked_for_goes_by_the_finalized_version(tmp_path: Path, level: int) -> None:
    clock = ManualClock(wall_ms=TIMESTAMP)
    with started(tmp_path, clock) as broker:
        broker.features.finalized = {**broker.features.finalized, "transaction.version": level}
        broker.create_topic("t")
        producer = write(broker, "id", "t")
        clock.advance(TIMEOUT_MS + 1)
        broker.transactions.retry_and_time_out()
        aborted = found(broker, "id")
        assert (aborted.state, aborted.producer_epoch) == (S.COMPLETE_ABORT, producer[1] + 1)
        assert aborted.version == (V2 if level == 2 else V1)
        assert end(broker, "id", producer, version=V1)[0] is ErrorCode.producer_fenced


def test_a_transaction_is_open_in_a_partition_for_its_own_epoch(tmp_path: Path) -> None:
    with started(tmp_path, ManualClock(wall_ms=TIMESTAMP)) as broker:
        broker.create_topic("t")
        producer_id, epoch = write(broker, "id", "t")
        partition = partition_of(broker, "t")
        assert partition.has_open_transaction(producer_id, epoch)
        assert not partition.has_open_transaction(producer_id, epoch + 1)
        assert not partition.has_open_transaction(producer_id + 1, epoch)
        end(broker, "id", (producer_id, epoch))
        assert not partition.has_open_transaction(producer_id, epoch + 1)


def test_unused_ids_and_producers_are_forgotten(tmp_path: Path) -> None:
    clock = ManualClock(wall_ms=TIMESTAMP)
    with started(tmp_path, clock, transactional_id_expiration_ms="5000") as broker:
        broker.create_topic("t")
        old, open_still = write(broker, "old", "t"), write(broker, "open", "t")
        end(broker, "old", old)
        clock.advance(4999)
        broker.transactions.expire_ids()
        assert broker.transactions.find("old") is not None
        clock.advance(1)
        broker.transactions.expire_ids()
        assert broker.transactions.find("old") is None
        assert broker.transactions.find("open") is not None
        assert end(broker, "old", old)[0] is ErrorCode.invalid_producer_id_mapping
        assert is_open(broker, "t", open_still[0])
    with started(tmp_path, clock) as broker:
        assert broker.transactions.find("old") is None
        code, producer_id, epoch = broker.transactions.init_producer_id("old", timeout_ms=TIMEOUT_MS, expected=None)
        assert (code, epoch) == (ErrorCode.none, 0)
        assert producer_id > open_still[0]


def test_many_unused_ids_are_forgotten_with_few_writes(tmp_path: Path) -> None:
    """The node answers nobody meanwhile: 20,000 ids took it seconds."""
    clock = ManualClock(wall_ms=TIMESTAMP)
    with started(tmp_path, clock, transactional_id_expiration_ms="5000") as broker:
        for index in range(600):
            broker.transactions.init_producer_id(f"id-{index}", timeout_ms=TIMEOUT_MS, expected=None)
        clock.advance(5000)
        partitions = broker.internal_topic("__transaction_state").partitions
        ends = [partition.log.log_end_offset for partition in partitions]
        broker.transactions.expire_ids()
        assert not list(broker.transactions)
        batches = 0
        for partition, end_before in zip(partitions, ends, strict=True):
            written = [h for h, _ in system_log.replay(partition.log) if h.base_offset >= end_before]
            batches += len(written)
        assert batches <= 2 * len(partitions)
        assert sum(partition.log.log_end_offset for partition in partitions) == sum(ends) + 600
    with started(tmp_path, clock) as broker:
        assert not list(broker.transactions)


def test_verification_can_be_switched_off(tmp_path: Path) -> None:
    refused = {}
    for setting in ("true", "false"):
        with started(
            tmp_path / setting,
            ManualClock(wall_ms=TIMESTAMP),
            transaction_partition_verification_enable=setting,
        ) as broker:
            broker.create_topic("t")
            _, producer_id, epoch = broker.transactions.init_producer_id("id", timeout_ms=TIMEOUT_MS, expected=None)
            refused[setting] = broker.transactions.admit(
                "id",
                producer=(producer_id, epoch),
                partitions=[partition_of(broker, "t")],
                version=V1,
            )
    assert refused == {"true": {("t", 0): ErrorCode.transaction_abortable}, "false": {}}


def test_a_disk_that_takes_no_producer_ids_refuses_for_now(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with started(tmp_path, ManualClock(wall_ms=TIMESTAMP)) as broker:

        def full(path: Path, content: bytes) -> None:
            raise OSError(28, "No space left on device")

        with monkeypatch.context() as patch:
            patch.setattr("suiro.broker.coordination.transactions.producer_ids.replace_file", full)
            for transactional_id in ("id", None):
                refused = broker.transactions.init_producer_id(transactional_id, timeout_ms=TIMEOUT_MS, expected=None)
                assert refused == (ErrorCode.coordinator_load_in_progress, -1, -1)
        code, _, _ = broker.transactions.init_producer_id("id", timeout_ms=TIMEOUT_MS, expected=None)
        assert code is ErrorCode.none


def test_offsets_of_a_transaction_are_refused_for_now_while_their_topic_cannot_be_made(tmp_path: Path) -> None:
    """A producer asks for these without looking for the group's coordinator. Its connection broke instead."""
    topics = [SimpleNamespace(name="t", partitions=[SimpleNamespace(partition_index=0)])]
    with started(tmp_path, ManualClock(wall_ms=TIMESTAMP)) as broker:
        broker.create_topic("t")
        producer_id, epoch = write(broker, "id", "t")
        request: Any = SimpleNamespace(
            transactional_id="id", producer=(producer_id, epoch), group_id="g", topics=topics
        )
        exchange: Any = SimpleNamespace(
            broker=broker,
            version=5,
            may=lambda *_: True,
            check=lambda *_: None,
            response=lambda **fields: SimpleNamespace(**fields),
        )

        def full(*_: object, **__: object) -> None:
            raise StorageError("No space left on device")

        broker.topics.create = full  # type: ignore[assignment, method-assign]
        with pytest.raises(RefusedError) as refusal:
            add_offsets_to_txn(exchange, request)
        committed: Any = txn_offset_commit(exchange, request)
    assert refusal.value.code is ErrorCode.coordinator_not_available
    assert committed.topics[0]["partitions"][0]["error_code"] is ErrorCode.coordinator_not_available
