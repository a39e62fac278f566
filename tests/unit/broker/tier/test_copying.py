"""What goes to the remote store and when; what stays here until then; what a deletion takes away."""

from __future__ import annotations

import os
from typing import Any

import pytest
from support.cleaning import clean_log
from support.full_disk import no_space
from support.logs import batch
from support.tiering import SEGMENT_BYTES, TieredNode, base_of, expected

from suiro.broker.storage.topics import TIER_TOPIC
from suiro.errors import ConfigError
from suiro.log import Cleaned, CleaningJob, InRemoteTierError
from suiro.log.cleaning import clean
from suiro.log.tier import open_store, segment_metadata
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import decode_batch


def test_closed_segments_are_copied_in_order_and_the_active_one_is_not(node: TieredNode) -> None:
    node.create()
    node.produce(20)
    bases = [segment.base_offset for segment in node.log.segments]
    assert len(bases) >= 4
    node.until_copied()
    names = node.stored(".log")
    assert [base_of(name) for name in names] == bases[:-1]
    assert len(node.stored(".index")) == len(node.stored(".timeindex")) == len(node.stored(".snapshot")) == len(names)
    assert len(node.stored(".leader-epoch-checkpoint")) == len(names)
    assert node.stored(".txnindex") == []
    for local, name in zip(node.log.segments, names, strict=False):
        assert (node.objects / name).read_bytes() == local.path.read_bytes()


def test_local_retention_takes_only_what_was_copied_and_reads_go_on(node: TieredNode) -> None:
    node.create()
    node.produce(20)
    node.store.fail("put")
    node.until(lambda: node.store.operations, "an attempt")
    assert node.log.retention.apply() == 0
    node.store.work_again()
    node.until_copied()
    count = len(node.log.segments)
    assert node.log.retention.apply() == count - 1
    assert node.log.log_start_offset == 0 < node.log.local_log_start_offset
    with pytest.raises(InRemoteTierError):
        node.log.read(0, max_bytes=1, read_committed=False)
    assert node.read_all() == expected(0, 20)
    assert node.read_all(max_bytes=1) == expected(0, 20)


def test_total_retention_removes_remote_segments_and_moves_the_start(node: TieredNode) -> None:
    node.only_in_store(60, retention_bytes="2000", local_retention_ms="-2", local_retention_bytes="400")
    start = node.log.log_start_offset
    assert start > 0
    remote = sum((node.objects / name).stat().st_size for name in node.stored(".log"))
    assert 2000 - 800 < remote + node.log.segments[-1].size < 2000 + 400
    assert node.read_all() == expected(start, 60)
    assert base_of(node.stored(".log")[0]) == start


def test_retention_by_time_removes_remote_segments(node: TieredNode) -> None:
    node.fill(retention_ms="1000000")
    told: list[int] = []  # a fetch that waits is woken, and a fetch session tells its client the new start
    node.partition.waiters["a fetch"] = lambda: told.append(node.log.log_start_offset)
    node.clock.advance(990_010)
    node.tier.work()
    node.until(lambda: node.log.log_start_offset > 0, "retention")
    node.until_idle()
    assert told[-1] == node.log.log_start_offset
    assert node.log.log_start_offset == base_of(node.stored(".log")[0])
    assert node.read_all() == expected(node.log.log_start_offset, 20)


def test_records_without_a_time_are_as_old_as_their_file(node: TieredNode) -> None:
    node.create(retention_ms="1000000")
    node.produce(20, timestamp=-1)
    node.until_copied()
    assert node.log.log_start_offset == 0
    assert node.read_all() == expected(0, 20)


@pytest.mark.parametrize("content", [bytes(7) + b"\1" + bytes(4), None], ids=["wrong", "gone"])
def test_a_segment_is_as_old_as_its_records_whatever_its_time_index_says(
    node: TieredNode, content: bytes | None
) -> None:
    """With a wrong one, the remote retention deleted what was just copied. Local retention checks the index first."""
    node.store.fail("put")
    node.create(retention_ms="1000000")
    node.produce(20)
    node.stop()
    for path in (node.data / "flights-0").glob("*.timeindex"):
        if content is None:
            path.unlink()
        else:
            path.write_bytes(content)
    node.store.work_again()
    node.start()
    node.until_copied()
    assert node.read_all() == expected(0, 20)


def test_delete_records_removes_what_lies_before(node: TieredNode) -> None:
    node.fill()
    before = len(node.stored(".log"))
    node.log.retention.delete_records_before(9)
    node.until(lambda: len(node.stored(".log")) < before, "the removal")
    node.until_idle()
    assert node.read_all() == expected(9, 20)
    bases = [base_of(name) for name in node.stored(".log")]
    assert bases[0] <= 9 < bases[1]


def test_deleting_a_topic_deletes_its_objects_and_a_new_one_begins_empty(node: TieredNode) -> None:
    node.fill()
    topic = node.topic
    failed: list[Any] = []
    node.loop.set_exception_handler(lambda _, context: failed.append(context))
    node.broker.delete_topic(topic)

    def look_for_work() -> None:
        """In every turn of the loop, and so between the end of a task and its next look at the topic."""
        node.tier.work()
        if (topic.topic_id, 0) in node.tier._tiered:
            node.loop.call_soon(look_for_work)

    look_for_work()
    node.until(lambda: node.stored() == [], "the removal")
    node.create()
    node.produce(2)
    node.until_idle()
    assert not failed
    assert node.read_all() == expected(0, 2)


def test_turning_the_tier_off_deletes_what_is_only_there(node: TieredNode) -> None:
    node.only_in_store()
    local = node.log.local_log_start_offset
    with pytest.raises(ConfigError, match=r"remote\.log\.delete\.on\.disable"):
        node.alter(remote_storage_enable="false")
    node.alter(remote_storage_enable="false", remote_log_delete_on_disable="true")
    node.tier.work()
    node.until(lambda: node.stored() == [], "the removal")
    assert node.log.log_start_offset == local
    assert node.read_all() == expected(local, 20)
    node.restart()
    assert node.read_all() == expected(local, 20)


def test_turning_the_tier_off_and_on_copies_again_before_anything_goes(node: TieredNode) -> None:
    node.fill(local_retention_ms="-2")
    node.alter(remote_storage_enable="false", remote_log_delete_on_disable="true")
    node.tier.work()
    node.until(lambda: node.stored() == [], "the removal")
    node.until_idle()
    start = node.log.log_start_offset
    node.store.fail("put")
    node.alter(remote_storage_enable="true", local_retention_ms="0")
    node.log.retention.apply()
    assert node.read_all() == expected(start, 20)
    node.store.work_again()
    node.until_copied()
    node.log.retention.apply()
    assert node.log.local_log_start_offset > start
    assert node.read_all() == expected(start, 20)


def test_copy_disabled_keeps_what_is_there_readable(node: TieredNode) -> None:
    node.fill(local_retention_ms="-2")
    copied = node.copied
    node.alter(remote_log_copy_disable="true")
    node.produce(20)
    node.until_idle()
    assert node.copied == copied
    assert node.read_all() == expected(0, 40)


def test_copy_disabled_leaves_no_hole_behind_the_tier(node: TieredNode) -> None:
    """`retention.bytes` then takes local segments that are nowhere else; what the tier has before them goes with them.
    A consumer would come to the hole, begin anew at the start, and come to the hole again."""
    node.only_in_store()
    node.alter(remote_log_copy_disable="true", local_retention_ms="-2", retention_bytes=str(3 * SEGMENT_BYTES))
    node.produce(40)
    node.log.retention.apply()
    node.until_idle()
    start = node.log.log_start_offset
    assert node.read_all() == expected(start, 60)
    node.restart()
    node.until_idle()
    assert node.log.log_start_offset == start
    assert node.read_all() == expected(start, 60)


def test_an_open_transaction_holds_the_copy_back(node: TieredNode) -> None:
    node.create()
    node.produce(4)
    node.log.append(batch(producer_id=7, epoch=0, sequence=0, transactional=True))
    open_from = node.log.last_stable_offset
    node.produce(20)
    node.until(lambda: node.copied >= 0, "the first copy")
    node.until_idle()
    assert node.copied < open_from
    node.log.append_control(False, 7, 0, 0)
    node.produce(10)
    node.until_copied()
    node.log.retention.apply()
    assert node.stored(".txnindex") != []
    result = node.read(open_from - 1, read_committed=True)
    assert result.aborted == [(7, open_from)]
    assert node.read(open_from - 1, read_committed=False).aborted == []


@pytest.mark.parametrize(("in_tier_first", "compiled"), [(False, False), (False, True), (True, False)])
def test_a_transaction_stays_aborted_when_its_topic_is_compacted(
    node: TieredNode, in_tier_first: bool, compiled: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its records were copied raw, and its marker is here. They passed for committed ones, and took the place of older
    ones of their keys."""

    def cleaned_here(job: CleaningJob) -> int:
        (last,) = [done for done in clean(job, compiled=compiled) if isinstance(done, Cleaned)]
        return last.end_offset

    def committed() -> list[bytes | None]:
        """The first record of each batch of the first segment, for a reader of committed ones."""
        result = node.read(0, read_committed=True)
        data = b"".join(os.pread(fd, length, position) for fd, position, length in result.regions)
        aborted = [producer_id for producer_id, _ in result.aborted]
        found = [(header, decode_batch(data, at)) for at, header in iter_headers(data)]
        return [records[0].value for header, records in found if records and header.producer_id not in aborted]

    node.tier.run_cleaning = cleaned_here
    node.create(local_retention_ms="-2", local_retention_bytes="1")
    node.log.append(batch(value=b"committed"))
    node.log.append(batch(producer_id=7, epoch=0, sequence=0, transactional=True, value=b"aborted"))
    node.log.roll()
    node.log.flush()
    with monkeypatch.context() as patch:  # for a moment the disk is full
        patch.setattr("suiro.log.transaction_index.write_all", no_space)
        node.log.append_control(False, 7, 0, 0)
    node.clock.advance(1)
    node.until_copied()
    node.log.retention.apply()
    assert node.log.local_log_start_offset == 2
    assert committed() == [b"committed"]
    node.alter(cleanup_policy="compact")
    if in_tier_first:
        node.log.cleaning.is_running = True  # It would replace the files with the markers.
        node.until_idle()
        assert not node.tier._cleaned
        node.log.cleaning.is_running = False
        node.until_idle()
        assert node.tier._cleaned
        assert committed() == [b"committed"]
    node.log.roll()
    node.log.cleaned_offset = clean_log(node.log, node.clock.wall_ms(), compiled=compiled)
    assert committed() == [b"committed"]
    node.until_copied()
    assert committed() == [b"committed"]
    assert not any(b"aborted" in (node.objects / name).read_bytes() for name in node.stored(".log"))


def test_a_restart_knows_what_is_in_the_tier(node: TieredNode) -> None:
    node.only_in_store()
    node.restart()
    assert node.copied > 0
    assert node.read_all() == expected(0, 20)
    node.produce(20)
    node.until_copied()
    assert node.read_all() == expected(0, 40)


@pytest.mark.parametrize("version", ["_VERSION", "_OBJECTS_VERSION"])
def test_what_a_later_release_has_copied_is_refused_and_stays(
    node: TieredNode, monkeypatch: pytest.MonkeyPatch, version: str
) -> None:
    """The log began behind what is in the tier, also when the later release was back."""
    with monkeypatch.context() as later:
        later.setattr(segment_metadata, version, 2)
        node.only_in_store()
        node.stop()
    with pytest.raises(ConfigError, match=r"__remote_log_metadata has version 2, .* reads [01]: use the release"):
        node.start()
    monkeypatch.setattr(segment_metadata, version, 2)
    node.start()
    assert node.read_all() == expected(0, 20)


def test_the_metadata_topic_is_compacted_and_written_again_when_deleted(node: TieredNode) -> None:
    node.fill()
    topic = node.broker.topics.topic(TIER_TOPIC)
    assert topic is not None
    assert topic.partitions[0].log.config.compacted
    node.broker.delete_topic(topic)
    node.produce(20)
    node.until_copied()
    node.log.retention.apply()
    node.restart()
    assert node.read_all() == expected(0, 40)


def test_tiered_topics_need_the_system_setting(node: TieredNode) -> None:
    node.create()
    node.stop()
    node.settings["remote.log.storage.system.enable"] = "false"
    with pytest.raises(ConfigError, match=r"remote\.log\.storage\.system\.enable"):
        node.start()
    node.settings["remote.log.storage.system.enable"] = "true"
    node.start()


@pytest.mark.parametrize("uri", ["", "/folder", "file://", "s3://", "http://host/x", "s3://bucket/x?speed=1"])
def test_a_store_that_is_none_is_refused(uri: str) -> None:
    with pytest.raises(ConfigError, match=r"remote\.log\.storage\.uri"):
        open_store(uri)
