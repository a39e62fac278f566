"""Topics over restarts and crashes: names that collide, deletions cut short, folders of nobody."""

from __future__ import annotations

import errno
import json
import os
import shutil
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from support.full_disk import no_space

from suiro.broker.storage.topics import (
    INTERNAL_TOPICS,
    TIER_TOPIC,
    InvalidTopicError,
    TopicRegistry,
    at_once,
    internal_configs,
)
from suiro.clock import ManualClock
from suiro.config import WEEK_MS, NodeSettings
from suiro.errors import ConfigError
from suiro.log import DataDirectory, StorageError
from suiro.protocol.records import Record, encode_batch


@contextmanager
def registry(path: Path, settings: NodeSettings | None = None) -> Iterator[TopicRegistry]:
    directory = DataDirectory.open(path)
    topics = TopicRegistry(directory, settings=settings or NodeSettings(), clock=ManualClock())
    topics.load()
    try:
        yield topics
    finally:
        topics.close()
        directory.close()


def test_topics_come_back(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        made = topics.create("t", partitions=2, configs={"retention.ms": "5"})
        at_once(topics.growing(made, 3))
        topics.alter_configs(made, {"flush.ms": "7"})
        assert all(partition.log.config.flush_ms == 7 for partition in made.partitions)
    with registry(tmp_path) as topics:
        again = topics.topic("t")
        assert (again.topic_id, len(again.partitions)) == (made.topic_id, 3)
        assert again.configs == {"flush.ms": "7"}
        assert again.partitions[2].log.config.flush_ms == 7


def test_names_that_differ_in_dots_and_underscores_alone(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        made = topics.create("a.b_c", partitions=1, configs={})
        with pytest.raises(InvalidTopicError, match=r"collides with existing topic: a\.b_c"):
            topics.check_new_name("a_b.c")
        topics.check_new_name("a.b.d")
        at_once(topics.deleting(made))
        topics.check_new_name("a_b.c")


def test_settings_of_the_node_hold_for_topics_without_their_own(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        plain = topics.create("plain", partitions=1, configs={})
        own = topics.create("own", partitions=1, configs={"retention.ms": "5"})
        topics.settings_changed(NodeSettings(log_retention_ms=9))
        assert (plain.partitions[0].log.config.retention_ms, own.partitions[0].log.config.retention_ms) == (
            9,
            5,
        )


def test_settings_that_do_not_go_together_keep_nobody_from_starting(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        topics.create("t", partitions=1, configs={"max.compaction.lag.ms": "50"})
    with registry(tmp_path, NodeSettings(log_cleaner_min_compaction_lag_ms=100)) as topics:
        topic = topics.topic("t")
        assert topic.partitions[0].log.config.cleanup_policy == (), "Kafka's defaults would delete records"
        with pytest.raises(ConfigError, match="conflict"):
            topics.alter_configs(topic, {"max.compaction.lag.ms": "60"})


def test_a_retention_of_the_node_that_is_shorter_than_a_topics_local_one(tmp_path: Path) -> None:
    """The node did not start, and the change ended with an error after it was written."""
    tier, own = {"remote_log_storage_system_enable": True}, {"remote.storage.enable": "true", "local.retention.ms": "9"}
    with registry(tmp_path, NodeSettings(log_retention_ms=10, **tier)) as topics:
        (partition,) = topics.create("t", partitions=1, configs=own).partitions
        topics.settings_changed(NodeSettings(log_retention_ms=8, **tier))
        assert (partition.log.config.retention, partition.log.config.local_retention) == ((-1, -1), (-1, -1))
    own["local.retention.ms"] = str(30 * WEEK_MS)
    with registry(tmp_path, NodeSettings(log_retention_ms=31 * WEEK_MS, **tier)) as topics:
        topics.create("u", partitions=1, configs=own)
    with registry(tmp_path, NodeSettings(**tier)) as topics:
        assert topics.topic("u").partitions[0].log.config.remote_storage_enable


@pytest.mark.parametrize(
    ("wrong", "is_tiered"),
    [
        ({}, True),
        ({"cleanup.policy": "compact+delete", "retention.ms": "7"}, False),
        ({"retention.ms": "7"}, False),
        ({"remote.storage.enable": "yes"}, False),
        ({"remote.storage.enable": "yes"}, True),
    ],
)
def test_settings_that_are_not_valid_any_more_keep_nobody_from_starting(
    tmp_path: Path, wrong: dict[str, str], is_tiered: bool, caplog: pytest.LogCaptureFixture
) -> None:
    """A build took `1_000` and `nan`, too. The node's defaults delete records, and so do the other settings."""
    configs = {"retention.ms": "99999", "min.cleanable.dirty.ratio": "0.25", "cleanup.policy": "compact,delete"}
    configs["remote.storage.enable"] = "false"
    for _ in range(2):
        with registry(tmp_path) as topics:
            if "t" not in topics:
                topics.create("t", partitions=1, configs=configs)
                if is_tiered:
                    topics.create(TIER_TOPIC, partitions=1, configs={"cleanup.policy": "compact"})
    stored = tmp_path / "topics.json"
    content = json.loads(stored.read_text())
    content["topics"][0]["configs"] |= {"retention.ms": "99_999", "min.cleanable.dirty.ratio": "nan"} | wrong
    stored.write_text(json.dumps(content))
    for _ in range(2):
        with registry(tmp_path) as topics:
            topic = topics.topic("t")
            assert topic is not None
            config = topic.partitions[0].log.config
            assert (config.retention, config.compacted) == ((-1, -1), False)
            assert "min.cleanable.dirty.ratio" not in topic.configs
            # Without it, the tier would delete what it has. With it, a node that never had one would not start.
            assert config.remote_storage_enable == (is_tiered and "remote.storage.enable" in wrong)
            assert "t: a stored setting is left out, and it keeps all its records" in caplog.text
    assert "nan" in stored.read_text()


def test_a_deletion_that_a_crash_cut_short_is_finished(tmp_path: Path) -> None:
    """Also where the crash had emptied the file that says whose a folder is: it must not block a new topic, nor
    become a part of one."""
    with registry(tmp_path) as topics:
        topics.create("t", partitions=3, configs={})
        topics.create("other", partitions=1, configs={})
    kept = tmp_path / "kept"
    for index in range(3):
        shutil.copytree(tmp_path / f"t-{index}", kept / f"t-{index}")
    with registry(tmp_path) as topics:
        topic = topics.topic("t")
        assert topic is not None
        at_once(topics.deleting(topic))
    # As it was in the middle: the list says `deleting`, one folder is gone, one has an emptied file, one none.
    journal = tmp_path / "topics.journal"
    journal.write_bytes(b"".join(journal.read_bytes().splitlines(keepends=True)[:1]))
    shutil.move(kept / "t-1", tmp_path / "t-1")
    (tmp_path / "t-1" / "partition.metadata").write_bytes(b"")
    shutil.move(kept / "t-2", tmp_path / "t-2")
    (tmp_path / "t-2" / "partition.metadata").unlink()
    with registry(tmp_path) as topics:
        assert topics.topic("t") is None
        assert not list(tmp_path.glob("t-[0-9]"))
        assert (tmp_path / "other-0").exists()


def test_a_folder_that_is_gone_is_told_with_the_offsets_that_went_with_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    data = encode_batch([Record(offset=0, timestamp=0, key=None, value=b"v")])
    with registry(tmp_path) as topics:
        for name in ("gone", "other"):
            for partition in topics.create(name, partitions=2, configs={}).partitions:
                for _ in range(3):
                    partition.log.append(data)
    shutil.rmtree(tmp_path / "gone-1")
    with registry(tmp_path) as topics:
        topics.create("new", partitions=1, configs={})
    (told,) = [record for record in caplog.records if record.levelname == "ERROR"]
    assert "gone-1 is not there: offsets 0 to 2 are lost" in told.getMessage()


def test_a_folder_of_nobody_is_set_aside_not_adopted(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        topics.create("t", partitions=1, configs={})
    shutil.copytree(tmp_path / "t-0", tmp_path / "u-1")
    with registry(tmp_path) as topics:
        made = topics.create("u", partitions=2, configs={})
        assert len(made.partitions) == 2
        (aside,) = tmp_path.glob("u-1.*-stray")
        assert (aside / "partition.metadata").exists()
    with registry(tmp_path) as topics:
        assert sorted(topic.name for topic in topics) == ["t", "u"]


def test_a_creation_that_fails_leaves_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with registry(tmp_path) as topics:
        opened = DataDirectory.open_partition

        def full(self: DataDirectory, topic: str, partition: int, **more: object) -> object:
            if partition == 1:
                raise OSError("no space left on device")
            return opened(self, topic, partition, **more)  # type: ignore[arg-type]

        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "open_partition", full)
            with pytest.raises(StorageError, match="cannot write down topic t: no space"):
                topics.create("t", partitions=3, configs={})
        assert topics.topic("t") is None
        assert not list(tmp_path.glob("t-[0-9]"))
        kept = topics.create("kept", partitions=1, configs={})
        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "open_partition", full)
            with pytest.raises(StorageError, match="cannot write down new partitions of kept: no space"):
                at_once(topics.growing(kept, 2))
        assert len(kept.partitions) == 1
    with registry(tmp_path) as topics:
        assert [(topic.name, len(topic.partitions)) for topic in topics] == [("kept", 1)]


def test_a_disk_without_room_for_a_line_keeps_no_part_of_what_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Taking a change back needs no room: not one more byte can be written after the first line."""
    with registry(tmp_path) as topics:
        kept = topics.create("kept", partitions=1, configs={})
        write = os.write

        def full(self: DataDirectory, *names: object, **more: object) -> object:
            monkeypatch.setattr(os, "write", refuse)
            raise OSError(errno.ENOSPC, "no space")

        def refuse(descriptor: int, data: bytes) -> int:
            raise OSError(errno.ENOSPC, "no space")

        for change in (
            lambda: topics.create("t", partitions=1, configs={}),
            lambda: at_once(topics.growing(kept, 2)),
        ):
            with monkeypatch.context() as patch:
                patch.setattr(DataDirectory, "open_partition", full)
                with pytest.raises(StorageError):
                    change()
                monkeypatch.setattr(os, "write", write)
        topics.create("later", partitions=1, configs={})
    with registry(tmp_path) as topics:
        assert [(topic.name, len(topic.partitions)) for topic in topics] == [("kept", 1), ("later", 1)]


def test_a_topic_whose_files_stay_is_deleted_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    with registry(tmp_path) as topics:
        topic = topics.create("t", partitions=2, configs={})

        def full(self: DataDirectory, *names: object) -> None:
            raise OSError(errno.ENOSPC, "no space")

        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "delete_partition", full)
            at_once(topics.deleting(topic))
        assert topics.topic("t") is None
        assert "t-1 goes at the next start" in caplog.text
    with registry(tmp_path) as topics:
        assert not list(topics)
        assert not list(tmp_path.glob("t-*"))


def stepped(steps: Generator[None, None, object], count: int) -> None:
    for _ in range(count):
        next(steps)


def test_a_topic_that_is_made_in_steps_is_there_when_all_of_it_is(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        steps = topics.creating("big.one", partitions=5, configs={})
        stepped(steps, 3)
        assert topics.topic("big.one") is None
        assert topics.is_changing("big.one")
        with pytest.raises(InvalidTopicError, match="collides"):
            topics.check_new_name("big_one")
        topics.create("other", partitions=1, configs={})
        with pytest.raises(StopIteration) as ended:
            stepped(steps, 3)
        assert ended.value.value is topics.topic("big.one")
        assert not topics.is_changing("big.one")
    with registry(tmp_path) as topics:
        assert sorted((one.name, len(one.partitions)) for one in topics) == [("big.one", 5), ("other", 1)]


def test_a_node_that_ends_between_two_steps(tmp_path: Path) -> None:
    """What was begun is done by the next start: making, growing, deleting."""
    with registry(tmp_path) as topics:
        grown, gone = (topics.create(name, partitions=2, configs={}) for name in ("grown", "gone"))
        begun = [
            topics.creating("made", partitions=4, configs={"retention.ms": "7"}),
            topics.growing(grown, 6),
            topics.deleting(gone),
        ]
        for steps in begun:
            stepped(steps, 1)
        assert len(grown.partitions) == 2
        assert topics.topic("gone") is None
        for steps in begun:
            steps.close()
    with registry(tmp_path) as topics:
        assert {one.name: len(one.partitions) for one in topics} == {"grown": 6, "made": 4}
        made = topics.topic("made")
        assert made.configs == {"retention.ms": "7"}
        assert not list(tmp_path.glob("gone-*"))


def test_settings_that_come_while_a_topic_grows(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        topic = topics.create("t", partitions=1, configs={})
        steps = topics.growing(topic, 4)
        stepped(steps, 2)
        topics.alter_configs(topic, {"retention.ms": "5"})
        with pytest.raises(StopIteration):
            stepped(steps, 3)
        assert [one.log.config.retention_ms for one in topic.partitions] == [5] * 4
    with registry(tmp_path) as topics:
        assert [(one.name, len(one.partitions), one.configs) for one in topics] == [("t", 4, {"retention.ms": "5"})]


def test_a_name_is_free_again_when_all_of_its_topic_is_removed(tmp_path: Path) -> None:
    with registry(tmp_path) as topics:
        old = topics.create("t", partitions=3, configs={})
        steps = topics.deleting(old)
        stepped(steps, 1)
        assert all(one.deleted for one in old.partitions)
        assert topics.is_changing("t")
        with pytest.raises(StopIteration):
            stepped(steps, 3)
        assert not topics.is_changing("t")
        new = topics.create("t", partitions=2, configs={})
        assert new.topic_id != old.topic_id


def test_a_creation_in_steps_that_fails_takes_nothing_else_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Large topics are made a partition at a time. What other clients were told of meanwhile must be there after a
    restart, whichever creation fails first; and the numbers of the journal's lines must not be given twice."""
    with registry(tmp_path) as topics:
        opened = DataDirectory.open_partition

        def full(self: DataDirectory, topic: str, partition: int, **more: object) -> object:
            if topic in ("first", "second") and partition == 1:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
            return opened(self, topic, partition, **more)  # type: ignore[arg-type]

        monkeypatch.setattr(DataDirectory, "open_partition", full)
        grown = topics.create("first-grown", partitions=1, configs={})
        first = topics.creating("first", partitions=3, configs={})
        second = topics.creating("second", partitions=3, configs={})
        next(first)
        next(second)
        meanwhile = topics.create("meanwhile", partitions=1, configs={})
        altered = topics.create("altered", partitions=1, configs={})
        topics.alter_configs(altered, {"retention.ms": "5"})
        for steps in (first, second):
            with pytest.raises(StorageError):
                list(steps)
        topics.create("after", partitions=1, configs={})
        at_once(topics.growing(grown, 2))
    with registry(tmp_path) as topics:
        found = {topic.name: len(topic.partitions) for topic in topics}
        assert found == {"first-grown": 2, "meanwhile": 1, "altered": 1, "after": 1}
        kept = topics.topic("meanwhile")
        assert kept.topic_id == meanwhile.topic_id
        again = topics.topic("altered")
        assert again.configs == {"retention.ms": "5"}


def test_a_growth_in_steps_that_fails_keeps_what_was_altered_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with registry(tmp_path) as topics:
        topic = topics.create("t", partitions=1, configs={})
        steps = topics.growing(topic, 3)
        next(steps)
        topics.alter_configs(topic, {"retention.ms": "5"})
        monkeypatch.setattr(DataDirectory, "open_partition", no_space)
        with pytest.raises(StorageError):
            list(steps)
        assert len(topic.partitions) == 1
    monkeypatch.undo()
    with registry(tmp_path) as topics:
        (topic,) = topics
        assert (len(topic.partitions), topic.configs) == (1, {"retention.ms": "5"})


def test_what_could_not_be_taken_back_is_written_before_the_next_change(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the list would have two topics of one name, and their folders fit only one of them."""
    with registry(tmp_path) as topics:
        steps = topics.creating("t", partitions=2, configs={})
        next(steps)
        topics.create("meanwhile", partitions=1, configs={})
        with monkeypatch.context() as patch:
            patch.setattr(DataDirectory, "open_partition", no_space)
            patch.setattr("suiro.broker.storage.topic_list.os.write", no_space)
            with pytest.raises(StorageError):
                list(steps)
            with pytest.raises(StorageError):
                topics.create("t", partitions=1, configs={})
        made = topics.create("t", partitions=1, configs={})
    with registry(tmp_path) as topics:
        again = topics.topic("t")
        assert (again.topic_id, len(again.partitions)) == (made.topic_id, 1)
        assert {topic.name for topic in topics} == {"t", "meanwhile"}


def test_topics_whose_settings_are_lost_keep_all_that_they_have(tmp_path: Path) -> None:
    """Whoever follows the advice on a damaged list of topics must not lose records to the node's defaults."""
    settings = NodeSettings(log_retention_ms=1, log_retention_bytes=1)
    with registry(tmp_path, settings) as topics:
        topics.create("table", partitions=2, configs={"cleanup.policy": "compact"})
        for name in INTERNAL_TOPICS:
            topics.create(name, partitions=1, configs=internal_configs(name, settings))
        before = {topic.name: topic.configs for topic in topics}
        for partition in topics.partitions():
            partition.log.append(
                encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v")]), origin="coordinator"
            )
    (tmp_path / "topics.json").write_bytes(b"{")
    with pytest.raises(ConfigError, match="keep all records"), registry(tmp_path, settings):
        pass
    (tmp_path / "topics.json").unlink()
    (tmp_path / "topics.journal").unlink()
    for _ in range(2):
        with registry(tmp_path, settings) as topics:
            for partition in topics.partitions():
                partition.log.retention.apply(10**15)
                assert (partition.log.log_start_offset, partition.log.log_end_offset) == (0, 1)
            after = {topic.name: topic.configs for topic in topics}
            assert after.pop("table") == {"cleanup.policy": ""}
            assert after == {name: before[name] for name in INTERNAL_TOPICS}


def test_a_lost_list_of_tiered_topics_is_asked_for(tmp_path: Path) -> None:
    """As topics without a tier they would lose in the store what is only there."""
    with registry(tmp_path) as topics:
        topics.create("__remote_log_metadata", partitions=1, configs={})
    (tmp_path / "topics.json").unlink()
    with pytest.raises(ConfigError, match=r"topics\.json, which says"), registry(tmp_path):
        pass
    assert not (tmp_path / "topics.json").exists()
