"""What a broker knows of groups and transactions is in its logs: stop it, start it, ask it. No sockets involved."""

from __future__ import annotations

import errno
import os
import resource
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from support import brokers
from support.cleaning import batches, clean_log
from support.full_disk import no_space

from suiro.broker import Broker
from suiro.broker.coordination.groups.records import OffsetValue
from suiro.broker.coordination.transactions.producer_ids import NoProducerIdError, ProducerIds
from suiro.broker.coordination.transactions.state import V1
from suiro.clock import ManualClock
from suiro.errors import ConfigError
from suiro.log import DataDirectory, PartitionLog, StorageError
from suiro.protocol.messages import ErrorCode
from suiro.protocol.records import Record, encode_batch

PLACE = ("t", 0)


started = partial(brokers.started, offsets_topic_num_partitions=1)


def offset(value: int, clock: ManualClock) -> OffsetValue:
    return OffsetValue(offset=value, leader_epoch=0, metadata="m", commit_ms=clock.wall_ms())


def begin(broker: Broker, transactional_id: str = "id") -> tuple[int, int]:
    """A transaction with the group's partition and t-0 in it."""
    code, producer_id, epoch = broker.transactions.init_producer_id(transactional_id, timeout_ms=60_000, expected=None)
    assert code is ErrorCode.none
    offsets = broker.groups.partition_of("g")
    code = broker.transactions.add_partitions(
        transactional_id,
        producer=(producer_id, epoch),
        partitions=frozenset(((offsets.topic, offsets.index), PLACE)),
        version=V1,
    )
    assert code is ErrorCode.none
    return producer_id, epoch


def end(broker: Broker, producer: tuple[int, int], *, commit: bool) -> ErrorCode:
    code, _, _ = broker.transactions.end("id", producer=producer, commit=commit, version=V1)
    return code


@pytest.mark.parametrize("crash", [False, True])
def test_committed_offsets_and_ids_come_back(tmp_path: Path, crash: bool) -> None:
    clock = ManualClock()
    with started(tmp_path, clock, crash=crash) as broker:
        topic_id = broker.create_topic("t", partitions=2, configs={"retention.ms": "5"}).topic_id
        broker.groups.offsets.commit("g", {PLACE: offset(5, clock), ("t", 1): offset(6, clock)})
        first, _ = begin(broker)
    with started(tmp_path, clock) as broker:
        topic = broker.topics.topic("t")
        assert topic is not None
        assert (topic.topic_id, len(topic.partitions), topic.configs) == (topic_id, 2, {"retention.ms": "5"})
        assert {p: e.value.offset for p, e in broker.groups.offsets.store.committed("g").items()} == {
            PLACE: 5,
            ("t", 1): 6,
        }
        _, other, _ = broker.transactions.init_producer_id(None, timeout_ms=0, expected=None)
        assert other > first


@pytest.mark.parametrize("commit", [True, False])
def test_offsets_of_a_transaction_wait_for_its_end(tmp_path: Path, commit: bool) -> None:
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        broker.create_topic("t")
        broker.groups.offsets.commit("g", {PLACE: offset(1, clock)})
        producer = begin(broker)
        broker.groups.offsets.commit("g", {PLACE: offset(2, clock)}, producer=producer)
        assert broker.groups.offsets.store.undecided("g") == {PLACE}
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == 1
    with started(tmp_path, clock) as broker:
        assert broker.groups.offsets.store.undecided("g") == {PLACE}
        code = end(broker, producer, commit=commit)
        assert code is ErrorCode.none
        assert broker.groups.offsets.store.undecided("g") == set()
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == (2 if commit else 1)
    with started(tmp_path, clock) as broker:
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == (2 if commit else 1)


def test_a_decision_is_finished_at_the_next_start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        broker.create_topic("t")
        producer = begin(broker)
        broker.groups.offsets.commit("g", {PLACE: offset(2, clock)}, producer=producer)
        monkeypatch.setattr(broker.transactions, "_complete", lambda _: None)  # killed before the first marker
        end(broker, producer, commit=True)
        assert broker.groups.offsets.store.undecided("g") == {PLACE}
    with started(tmp_path, clock) as broker:
        assert broker.groups.offsets.store.undecided("g") == set()
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == 2
        log = broker.topics.partition(*PLACE)
        assert log is not None
        assert log.log.log_end_offset == 1  # the marker


def test_an_ongoing_transaction_is_aborted_at_its_timeout_after_a_restart(tmp_path: Path) -> None:
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        broker.create_topic("t")
        producer = begin(broker)
        broker.groups.offsets.commit("g", {PLACE: offset(2, clock)}, producer=producer)
    with started(tmp_path, clock) as broker:
        clock.advance(60_000)
        broker.transactions.retry_and_time_out()
        assert broker.groups.offsets.store.undecided("g") == {PLACE}
        clock.advance(1)
        broker.transactions.retry_and_time_out()
        assert broker.groups.offsets.store.undecided("g") == set()
        assert PLACE not in broker.groups.offsets.store.committed("g")
        assert end(broker, producer, commit=True) is ErrorCode.producer_fenced


def test_a_long_offsets_log_is_shortened_at_a_start(tmp_path: Path) -> None:
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        for value in range(13):
            batch = {("t", number): offset(value, clock) for number in range(1000)}
            broker.groups.offsets.commit("g", batch)
    for _ in range(2):
        with started(tmp_path, clock) as broker:
            log = broker.groups.partition_of("g").log
            assert (log.log_start_offset, log.log_end_offset) == (13_000, 14_000)
            assert {entry.value.offset for entry in broker.groups.offsets.store.committed("g").values()} == {12}


def test_offsets_expire_with_their_group_and_go_with_their_topic(tmp_path: Path) -> None:
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        topic = broker.create_topic("t")
        broker.create_topic("u")
        broker.groups.offsets.commit("g", {PLACE: offset(5, clock), ("u", 0): offset(6, clock)})
        broker.delete_topic(topic)
        assert set(broker.groups.offsets.store.committed("g")) == {("u", 0)}
        clock.advance(7 * 24 * 3600 * 1000 + 1)
        broker.groups.offsets.expire()
        assert broker.groups.offsets.store.committed("g") == {}
    with started(tmp_path, clock) as broker:
        assert broker.groups.offsets.store.committed("g") == {}
        assert "t" not in broker.topics


def test_no_producer_id_is_handed_out_that_the_disk_did_not_take(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ids = ProducerIds(tmp_path)
    with monkeypatch.context() as patch:
        patch.setattr("suiro.broker.coordination.transactions.producer_ids.replace_file", no_space)
        for _ in range(2):
            with pytest.raises(NoProducerIdError, match="No space"):
                ids.take()
    first = ids.take()
    assert [ids.take() for _ in range(2000)] == [*range(first + 1, first + 2001)]
    assert ProducerIds(tmp_path).take() == ids.reserved == 3000, "the block is on the disk before one of it is given"


def test_a_topic_that_could_not_be_made_whole_is_not_there(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()
    open_partition = DataDirectory.open_partition

    def no_descriptor_left(self: DataDirectory, topic: str, partition: int, **rest: Any) -> PartitionLog:
        log = open_partition(self, topic, partition, **rest)
        if partition == 1:
            raise OSError(24, "Too many open files")
        return log

    with started(tmp_path, clock) as broker:
        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "open_partition", no_descriptor_left)
            with pytest.raises(StorageError, match="Too many"):
                broker.create_topic("t", partitions=3)
        assert broker.topics.topic("t") is None
        assert len(broker.create_topic("t", partitions=3).partitions) == 3
    with started(tmp_path, clock) as broker:
        topic = broker.topics.topic("t")
        assert topic is not None
        assert len(topic.partitions) == 3


def test_retention_of_one_partition_that_fails_holds_up_no_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        topic = broker.create_topic("t", partitions=3, configs={"retention.ms": "1000"})
        for partition in topic.partitions:
            partition.log.append(encode_batch([Record(offset=0, timestamp=clock.wall_ms(), key=b"k", value=b"v")]))
        clock.advance(5000)

        def broken(*_: object) -> int:
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        monkeypatch.setattr(topic.partitions[0].log.retention, "apply", broken)
        broker._apply_retention()
        assert [partition.log.log_start_offset for partition in topic.partitions] == [0, 1, 1]


def test_a_marker_in_the_coordinators_own_log_is_no_state(tmp_path: Path) -> None:
    """Who may act for the cluster may write one anywhere; the node starts all the same."""
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        code, producer_id, _ = broker.transactions.init_producer_id("app", timeout_ms=1000, expected=None)
        assert code is ErrorCode.none
        for partition in broker.internal_topic("__transaction_state").partitions:
            partition.log.append_control(True, 5, 0, 0)
            partition.log.append_control(False, 5, 0, 0)
    with started(tmp_path, clock) as broker:
        assert [(t.transactional_id, t.producer_id) for t in broker.transactions] == [("app", producer_id)]


def test_a_marker_that_cleaning_has_emptied_keeps_no_node_from_starting(tmp_path: Path) -> None:
    """Cleaning keeps a batch without records in the place of a marker to remember the producer's epoch. It is that of
    every marker of a producer that goes on with one epoch for days, and has written nothing since a clean stop."""
    clock, day_ms = ManualClock(), 24 * 3600 * 1000

    def committed(broker: Broker, producer: tuple[int, int], value: int) -> None:
        place = broker.groups.partition_of("g")
        broker.transactions.add_partitions(
            "id",
            producer=producer,
            partitions=frozenset(((place.topic, place.index),)),
            version=V1,
        )
        broker.groups.offsets.commit("g", {PLACE: offset(value, clock)}, producer=producer)
        assert end(broker, producer, commit=True) is ErrorCode.none

    with started(tmp_path, clock) as broker:
        broker.create_topic("t")
        producer = begin(broker)
        log = broker.groups.partition_of("g").log
        committed(broker, producer, 1)
        committed(broker, producer, 2)
        log.roll()
        clean_log(log, clock.wall_ms(), compiled=False)  # the first commit's records go
        committed(broker, producer, 3)
        log.roll()
        clean_log(log, clock.wall_ms(), compiled=False)  # its marker has nothing left to mark, and gets its time
        clock.advance(day_ms + 1)
        committed(broker, producer, 4)
        log.roll()
    with started(tmp_path, clock) as broker:
        log = broker.groups.partition_of("g").log
        clean_log(log, clock.wall_ms(), compiled=False)
        assert any(header.is_control and header.count == 0 for header, _ in batches(log))
    with started(tmp_path, clock, crash=True) as broker:
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == 4
    with started(tmp_path, clock) as broker:
        assert broker.groups.offsets.store.committed("g")[PLACE].value.offset == 4


def _full(*_: object, **__: object) -> int:
    raise StorageError("no space left on device")


@contextmanager
def no_room() -> Iterator[None]:
    """No file of this process gets a byte longer, as on a full disk."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (0, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))


@pytest.mark.parametrize(("crash", "zeros"), [(False, 0), (True, 0), (True, 100)])
def test_a_node_starts_on_a_full_disk(tmp_path: Path, crash: bool, zeros: int) -> None:
    """It could not be told what may go, nor do what retention asks for. A power failure may leave zeros behind, and
    take the rows of files that are not synced."""
    clock = ManualClock()
    batch = encode_batch([Record(offset=0, timestamp=clock.wall_ms(), key=b"k", value=b"v")])
    with started(tmp_path, clock, crash=crash) as broker:
        topic = broker.create_topic("t", partitions=1, configs={"internal.segment.bytes": "200"})
        for _ in range(9):
            topic.partitions[0].log.append(batch)
    newest = max((tmp_path / "t-0").glob("*.log"))
    os.truncate(newest, newest.stat().st_size + zeros)
    if zeros:
        (tmp_path / "t-0" / "leader-epoch-checkpoint").write_bytes(b"")
    with no_room(), started(tmp_path, clock, crash=True) as broker:
        log = next(iter(broker.topics.partitions())).log
        assert log.log_end_offset == 9
        log.retention.delete_records_before(6)
        with pytest.raises(StorageError):
            log.append(batch)
    with started(tmp_path, clock) as broker:
        found = broker.topics.topic("t")
        assert found is not None
        assert found.topic_id == topic.topic_id
        assert found.partitions[0].log.append(batch).base_offset == 9


def test_readers_of_what_a_power_failure_took_find_where_their_log_ends(tmp_path: Path) -> None:
    """Once the log has as many records again, they would go on behind others than those that they read."""
    clock = ManualClock()
    batch = encode_batch([Record(offset=0, timestamp=clock.wall_ms(), key=b"k", value=b"v")])
    with started(tmp_path, clock, crash=True) as broker:
        log = broker.create_topic("t").partitions[0].log
        assert log.leader_epoch == 0
        for _ in range(3):
            log.append(batch)
    (path,) = (tmp_path / "t-0").glob("*.log")
    os.truncate(path, path.stat().st_size // 3 * 2)
    for _ in range(2):
        with started(tmp_path, clock, crash=True) as broker:
            partition = broker.topics.partition("t", 0)
            assert partition is not None
            log, given = partition.log, partition.log.leader_epoch
            assert partition.check_leader_epoch(0) is ErrorCode.fenced_leader_epoch
            assert log.end_offset_for_epoch(0) == (0, 2)
            assert broker.create_topic(f"new-{given}").partitions[0].log.leader_epoch == 0
    with started(tmp_path, clock) as broker:
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        log = partition.log
        assert log.leader_epoch > given
        given = log.leader_epoch
        for _ in range(2):
            log.append(batch)
        assert log.end_offset_for_epoch(0) == (0, 2)
    with started(tmp_path, clock) as broker:
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        assert partition.log.leader_epoch == given
        assert partition.log.end_offset_for_epoch(0) == (0, 2)


def test_a_leader_epoch_that_a_power_failure_took_is_not_given_again(tmp_path: Path) -> None:
    """Whoever read in it would be told that nothing is missing."""
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        broker.create_topic("t")
    given = []
    for _ in range(3):
        with started(tmp_path, clock, crash=True) as broker:
            partition = broker.topics.partition("t", 0)
            assert partition is not None
            given.append(partition.log.leader_epoch)
    (tmp_path / "t-0" / "leader-epoch-checkpoint").unlink()  # it is not synced
    with started(tmp_path, clock) as broker:
        partition = broker.topics.partition("t", 0)
        assert partition is not None
        assert given == sorted(set(given))
        assert partition.log.leader_epoch > given[-1] > 0


@pytest.mark.parametrize("how", ["retried", "restarted", "committed"])
def test_offsets_of_a_topic_that_was_deleted_to_make_room_do_not_come_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A new topic of the name would be read from where the old one was read to."""
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        first = broker.create_topic("t", partitions=2)
        old = OffsetValue(offset=5, leader_epoch=0, metadata="", commit_ms=clock.wall_ms(), topic_id=first.topic_id)
        broker.groups.offsets.commit("g", {PLACE: old, ("t", 1): old})
        with monkeypatch.context() as patch:
            patch.setattr(PartitionLog, "append", _full)
            broker.delete_topic(first)
        assert broker.groups.offsets.store.committed("g") == {}
        second = broker.create_topic("t", partitions=2)
        new = OffsetValue(offset=1, leader_epoch=0, metadata="", commit_ms=clock.wall_ms(), topic_id=second.topic_id)
        if how == "retried":
            broker.groups.offsets.expire()
        if how == "committed":
            broker.groups.offsets.commit("g", {PLACE: new})
    with started(tmp_path, clock) as broker:
        found = {place: entry.value for place, entry in broker.groups.offsets.store.committed("g").items()}
        assert found == ({PLACE: new} if how == "committed" else {})


def test_offsets_of_a_topic_whose_deletion_a_kill_cut_short_do_not_come_back(tmp_path: Path) -> None:
    clock = ManualClock()
    with started(tmp_path, clock, crash=True) as broker:
        topic = broker.create_topic("t", partitions=2)
        broker.create_topic("kept")
        broker.groups.offsets.commit("g", {PLACE: offset(5, clock), ("kept", 0): offset(6, clock)})
        next(broker.deleting_topic(topic))  # and killed
    for _ in range(2):
        with started(tmp_path, clock, crash=True) as broker:
            if "t" not in broker.topics:
                broker.create_topic("t", partitions=2)
            assert set(broker.groups.offsets.store.committed("g")) == {("kept", 0)}


def test_producer_ids_are_not_given_again_where_their_file_is_lost(tmp_path: Path) -> None:
    """The first batch of another producer would be taken for a repetition, acknowledged, and not written."""
    clock = ManualClock()
    with started(tmp_path, clock) as broker:
        topic = broker.create_topic("t")
        _, first, epoch = broker.transactions.init_producer_id(None, timeout_ms=0, expected=None)
        records = [Record(offset=0, timestamp=clock.wall_ms(), key=None, value=b"v")]
        data = encode_batch(records, producer_id=first, producer_epoch=epoch, base_sequence=0)
        topic.partitions[0].log.append(data)
    (tmp_path / "producer-ids").write_text("12a")
    with pytest.raises(ConfigError, match="producer-ids does not hold a number"), started(tmp_path, clock):
        pass
    (tmp_path / "producer-ids").unlink()
    with started(tmp_path, clock) as broker:
        _, second, _ = broker.transactions.init_producer_id(None, timeout_ms=0, expected=None)
        assert second > first
