"""A remote store that is slow, fails, or lies; a node that dies at every step of copying and deleting."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from support.full_disk import no_space
from support.logs import batch
from support.tiering import NOW_MS, TOPIC, TieredNode, base_of, expected

from suiro.log import FlushJob, StorageError
from suiro.log.tier import DirectoryStore, RemoteStoreError


@pytest.mark.parametrize("operation", ["put", "size"])
def test_a_store_that_fails_stops_neither_appends_nor_loses_anything(node: TieredNode, operation: str) -> None:
    node.store.fail(operation, "delete")
    node.create()
    node.produce(20)
    node.until(lambda: len(node.store.operations) > 4, "some attempts")
    node.log.retention.apply()
    node.produce(20)
    assert node.copied == -1
    assert node.log.local_log_start_offset == 0
    assert node.read_all() == expected(0, 40)
    node.store.work_again()
    node.until_copied()
    node.log.retention.apply()
    assert node.read_all() == expected(0, 40)
    logs = node.stored(".log")  # once: more may come between two looks
    assert len(logs) == len({base_of(name) for name in logs})


class ShortStore(DirectoryStore):
    """Takes half of what it is given, and says nothing."""

    short = True

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        data = b"".join(chunks)
        super().put(name, [data[: len(data) // 2] if self.short else data])


def test_half_an_object_is_no_copy(node: TieredNode) -> None:
    short = ShortStore(node.objects)
    node.store.store = short
    node.create()
    node.produce(20)
    node.until(lambda: "size" in {op for op, _ in node.store.operations}, "an attempt")
    node.until(lambda: len(node.store.operations) > 30, "more attempts")
    assert node.copied == -1
    short.short = False
    node.until_copied()
    node.log.retention.apply()
    assert node.read_all() == expected(0, 20)


@pytest.mark.parametrize(
    ("ending", "damage"),
    [
        (".log", lambda data: data[:-10]),
        (".log", lambda data: data[:200] + b"\xff" + data[201:]),
        (".index", lambda data: data[:-4] + b"\xff" * 4),
    ],
)
def test_an_object_that_changed_in_the_store_is_an_error_and_never_records(
    node: TieredNode, ending: str, damage: Callable[[bytes], bytes]
) -> None:
    node.only_in_store()
    victim = node.objects / node.stored(ending)[0]
    whole = victim.read_bytes()
    victim.write_bytes(damage(whole))
    with pytest.raises(RemoteStoreError):
        node.read_all()
    victim.write_bytes(whole)
    assert node.read_all() == expected(0, 20)


def test_a_read_that_fails_says_so_and_the_next_one_works(node: TieredNode) -> None:
    node.only_in_store()
    node.store.fail("get")
    with pytest.raises(RemoteStoreError):
        node.read(0)
    node.store.work_again()
    assert node.read_all() == expected(0, 20)


def test_consumers_of_the_same_old_records_are_one_request(node: TieredNode) -> None:
    node.only_in_store()
    node.read_all()
    once = node.gets
    assert once > 0
    node.read_all()
    node.read_all(max_bytes=1)
    assert node.gets == once


def test_the_caches_stay_within_their_limits(tmp_path: Path) -> None:
    node = TieredNode(
        tmp_path,
        remote_log_chunk_cache_total_size_bytes="1000",
        remote_log_index_file_cache_total_size_bytes="100",
    )
    node.only_in_store(60)
    assert node.read_all() == expected(0, 60)
    assert node.tier._reader._chunk_bytes <= 1000
    assert node.tier._reader._index_bytes <= 100
    node.stop()


def test_copying_keeps_to_its_rate(tmp_path: Path) -> None:
    node = TieredNode(tmp_path, remote_log_manager_copy_max_bytes_per_second="10")
    node.create()
    node.produce(20)
    # The first object goes at once, and then it takes half a minute until the next may follow.
    node.until(lambda: node.stored(".log"), "the first object")
    assert node.copied == -1
    node.broker.replace_settings({"remote.log.manager.copy.max.bytes.per.second": "1000000"}, layer="broker")
    node.stop()  # A thread that waits for its turn does not hold the node up.


def test_a_death_at_any_step_of_copying_loses_nothing_and_leaves_nothing_behind(tmp_path: Path) -> None:
    def prepare(node: TieredNode) -> None:
        node.create()
        node.produce(12)

    node = TieredNode(tmp_path / "counting")
    prepare(node)
    node.until_copied()
    calls = len(node.store.operations)
    whole = len(node.stored())
    node.stop()
    assert calls > 20
    for number in range(calls):
        node = TieredNode(tmp_path / str(number))
        reached = node.store.stop_at(number)
        prepare(node)
        node.until(reached.is_set, f"call {number}")
        node.log.retention.apply()
        node.produce(2)
        node.kill()
        node.start()
        assert node.read_all() == expected(0, 14)
        node.until_copied()
        node.log.retention.apply()
        assert node.read_all() == expected(0, 14)
        node.until_copied()
        assert len(node.stored()) >= whole
        assert node.stored(".tmp") == []
        starts = [base_of(name) for name in node.stored(".log")]
        assert starts == sorted(set(starts))
        node.stop()


def test_a_death_at_any_step_of_deleting_is_finished_by_the_next_start(tmp_path: Path) -> None:
    node = TieredNode(tmp_path / "counting")
    node.fill(12)
    begin = len(node.store.operations)
    node.log.retention.delete_records_before(12)
    node.tier.work()
    node.until(lambda: node.stored() == [], "the deletion")
    node.until_idle()
    calls = len(node.store.operations) - begin
    node.stop()
    assert calls > 10
    for number in range(calls):
        node = TieredNode(tmp_path / str(number))
        node.only_in_store(12)
        reached = node.store.stop_at(number)
        node.log.retention.delete_records_before(12)
        node.tier.work()
        node.until(reached.is_set, f"call {number}")
        node.kill()
        node.start()
        node.until(lambda: node.stored() == [], "the deletion")  # noqa: B023
        node.until_idle()
        node.produce(4)
        assert node.read_all()[-4:] == expected(12, 16)
        node.stop()


def lose_the_end(node: TieredNode) -> int:
    """The disk loses what was written last, as at a power cut if it lies about syncs. Returns the end of the tier."""
    end = node.copied + 1
    node.kill()
    for path in (node.data / f"{TOPIC}-0").glob("*.log"):
        if int(path.stem) > 4:
            path.unlink()
    node.start()
    return end


def test_a_log_whose_end_was_lost_goes_on_behind_the_tier(node: TieredNode) -> None:
    node.create()
    node.produce(8)
    node.log.begin_epoch(3)
    node.produce(12)
    node.until_copied()
    end = lose_the_end(node)
    assert node.log.log_end_offset == end
    assert node.log.leader_epoch > 3
    assert node.log.end_offset_for_epoch(0) == (0, 8)
    assert node.read_all() == expected(0, end)
    node.produce(5)
    assert node.read_all() == expected(0, end + 5)


def test_a_transaction_that_the_lost_end_had_ended_holds_nobody_up(node: TieredNode) -> None:
    node.create()
    first = batch(producer_id=7, epoch=0, sequence=0, transactional=True)
    node.log.append(first)
    node.produce(6)
    node.log.append(batch(producer_id=7, epoch=0, sequence=1, transactional=True))
    node.log.append_control(True, 7, 0, 0, NOW_MS)
    node.produce(12)
    node.until_copied()
    end = lose_the_end(node)
    assert node.log.log_end_offset == node.log.last_stable_offset == end
    # Nor is the producer, which has gone on meanwhile, held against what the disk remembers.
    node.log.append(batch(producer_id=7, epoch=0, sequence=2))


def test_how_far_the_tier_is_cleaned_is_written_again_after_a_full_disk(
    node: TieredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next start took what was copied since then for cleaned."""
    node.tier._set_cleaned("id:0", 5)

    with monkeypatch.context() as patch:
        patch.setattr("suiro.broker.settings.cluster_state.replace_file", no_space)
        with pytest.raises(StorageError):
            node.tier._set_cleaned("id:0", None)
    node.tier._set_cleaned("id:0", None)
    node.restart()
    assert node.tier._cleaned == {}


def test_a_failed_sync_is_not_tried_again_before_the_local_copy_goes(
    node: TieredNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second sync would succeed with the bytes gone: what says where the copy is must have reached the disk."""
    node.create()
    with monkeypatch.context() as patch:
        failed: list[int] = []

        def fail(job: FlushJob) -> None:
            failed.append(job.end_offset)
            raise OSError(errno.EIO, os.strerror(errno.EIO))

        patch.setattr(FlushJob, "run", fail)
        node.produce(20)
        node.tier.work()
        node.until(lambda: failed, "a sync")
        node.until(lambda: node.log.offline is not None, "the end of the log")
    assert node.copied == -1
    node.kill()
    node.start()
    node.until_copied()
    assert node.read_all() == expected(0, 20)


@pytest.mark.parametrize("ending", ["", ".tmp"])
def test_what_a_directory_cannot_delete_is_an_error_of_a_store(tmp_path: Path, ending: str) -> None:
    """For the second name it was an OSError, which nobody expects."""
    (tmp_path / f"object{ending}").mkdir()
    with pytest.raises(RemoteStoreError, match="cannot delete"):
        DirectoryStore(tmp_path).delete("object")
