"""`suiro log import`: whole topics or nothing."""

from __future__ import annotations

import shutil
from pathlib import Path
from uuid import UUID, uuid4

import pytest
from support.commands import suiro
from support.logs import NOW_MS, batch, read_all

from suiro.broker import import_topics
from suiro.broker.coordination.transactions.producer_ids import ProducerIds
from suiro.broker.storage.topic_list import TopicList
from suiro.clock import ManualClock
from suiro.errors import ConfigError
from suiro.log import DataDirectory, LogConfig

CLOCK = ManualClock(wall_ms=NOW_MS)
CONFIG = LogConfig(segment_bytes=400)


def source(path: Path, *names: str, topic_id: UUID | None = None) -> list[Path]:
    """Folders as a stopped broker leaves them: records 0 to 29, those before 10 deleted."""
    directory = DataDirectory.open(path)
    ids: dict[str, UUID] = {}
    for name in names:
        topic, _, number = name.rpartition("-")
        log = directory.open_partition(
            topic,
            int(number),
            topic_id=topic_id or ids.setdefault(topic, uuid4()),
            config=CONFIG,
            clock=CLOCK,
        )
        for _ in range(10):
            log.append(batch(3))
        log.retention.delete_records_before(10)
    directory.close()
    return [path / name for name in names]


def topics_of(data: Path) -> dict[str, int]:
    known = TopicList(data)
    known.load()
    known.close()
    return {entry.name: entry.partitions for entry in known.topics.values()}


def test_topics_arrive_with_their_offsets_ids_and_settings(tmp_path: Path) -> None:
    folders = source(tmp_path / "kafka", "flights-0", "flights-1", "cities-0")
    done = suiro(
        "log",
        "import",
        "--data",
        str(tmp_path / "node"),
        "--config",
        "retention.ms=-1",
        *map(str, folders),
    )
    assert done.code == 0, done.output
    assert "flights: 2 partitions, 40 offsets" in done.output
    assert topics_of(tmp_path / "node") == {"cities": 1, "flights": 2}
    directory = DataDirectory.open(tmp_path / "node")
    assert directory.clean_shutdown
    for place in directory.partitions():
        assert place.topic_id is not None
        log = directory.open_partition(
            place.topic, place.partition, topic_id=place.topic_id, config=CONFIG, clock=CLOCK
        )
        assert (log.log_start_offset, log.log_end_offset, log.recovery_point) == (10, 30, 30)
        assert len(read_all(log)) == 20
    directory.close()
    assert [path.exists() for path in folders] == [True, True, True]


def test_the_node_may_have_any_id(tmp_path: Path) -> None:
    DataDirectory.open(tmp_path / "node", node_id=7).close()
    import_topics(tmp_path / "node", source(tmp_path / "kafka", "flights-0"), configs={}, clock=CLOCK)
    assert topics_of(tmp_path / "node") == {"flights": 1}
    with pytest.raises(ConfigError, match="belongs to node 7, not to node 1"):
        DataDirectory.open(tmp_path / "node", node_id=1)


def test_a_new_directory_belongs_to_the_node_that_is_started_on_it(tmp_path: Path) -> None:
    import_topics(tmp_path / "node", source(tmp_path / "kafka", "flights-0"), configs={}, clock=CLOCK)
    first = DataDirectory.open(tmp_path / "node", node_id=7)
    assert first.clean_shutdown
    first.close()
    again = DataDirectory.open(tmp_path / "node", node_id=7)
    assert again.cluster_id == first.cluster_id
    again.close()


@pytest.mark.parametrize(
    ("spoil", "says"),
    [
        ("cut", "is damaged"),
        ("exists", "exists in"),
        ("no id", "no partition.metadata"),
        ("gap", "all its partitions from 0 on"),
        ("internal", "belongs to Apache Kafka itself"),
        ("name", "expected a directory named"),
        ("running", "another node is running"),
    ],
)
def test_one_bad_folder_keeps_all_out(tmp_path: Path, spoil: str, says: str) -> None:
    good = source(tmp_path / "good", "good-0")
    bad = source(tmp_path / "bad", "__consumer_offsets-0" if spoil == "internal" else "bad-0")
    node = tmp_path / "node"
    running = None
    match spoil:
        case "cut":
            newest = max(bad[0].glob("*.log"))
            newest.write_bytes(newest.read_bytes()[:-5])
        case "exists":
            import_topics(node, bad, configs={}, clock=CLOCK)
        case "no id":
            (bad[0] / "partition.metadata").unlink()
        case "gap":
            bad = [bad[0].rename(tmp_path / "bad" / "bad-1")]
        case "name":
            bad = [bad[0].rename(tmp_path / "bad" / "nothing")]
        case "running":
            running = DataDirectory.open(node)
    before = sorted(path.name for path in node.iterdir()) if node.exists() else []
    with pytest.raises(ConfigError, match=says):
        import_topics(node, [*good, *bad], configs={}, clock=CLOCK)
    if running is not None:
        running.close()
    left = sorted(path.name for path in node.iterdir()) if node.exists() else []
    assert "good-0" not in left
    assert [name for name in left if name.endswith("-delete")] == []
    assert [name for name in before if name not in left] == []
    assert "good" not in topics_of(node) if node.exists() else True


def test_a_death_before_the_list_names_them_leaves_no_topic(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folders = source(tmp_path / "kafka", "flights-0")

    def dies(*_: object) -> None:
        raise OSError("the disk is full")

    with monkeypatch.context() as patch:
        patch.setattr(TopicList, "put", dies)
        with pytest.raises(OSError, match="full"):
            import_topics(tmp_path / "node", folders, configs={}, clock=CLOCK)
    assert topics_of(tmp_path / "node") == {}
    assert not (tmp_path / "node" / "flights-0").exists()
    shutil.rmtree(tmp_path / "kafka" / "flights-0" / "nothing", ignore_errors=True)
    assert import_topics(tmp_path / "node", folders, configs={}, clock=CLOCK)[0].records == 20


def test_what_the_logs_hold_of_epochs_and_producers_counts_on(tmp_path: Path) -> None:
    """Nobody here ends a transaction that was open, and no new producer gets an id that is in the logs."""
    directory = DataDirectory.open(tmp_path / "kafka")
    log = directory.open_partition("flights", 0, topic_id=uuid4(), config=CONFIG, clock=CLOCK)
    log.begin_epoch(3)
    log.append(batch(3, producer_id=2600, epoch=7, sequence=0))
    log.begin_epoch(5)
    log.append(batch(2, producer_id=17, epoch=0, sequence=0, transactional=True))
    log.append(batch(1, producer_id=1 << 62, epoch=0, sequence=0))  # made up by a client
    directory.close()
    (log.directory / "leader-epoch-checkpoint").unlink()
    done = suiro("log", "import", "--data", str(tmp_path / "node"), str(log.directory))
    assert done.code == 0, done.output
    assert "transaction of producer 17 is open since offset 3" in done.err
    assert "--topic flights --partition 0 --start-offset 3" in done.err
    assert ProducerIds(tmp_path / "node").take() == 2601
    directory = DataDirectory.open(tmp_path / "node")
    (place,) = directory.partitions()
    assert place.topic_id is not None
    log = directory.open_partition("flights", 0, topic_id=place.topic_id, config=CONFIG, clock=CLOCK)
    assert log.leader_epochs.entries == [(3, 0), (5, 3)]
    assert log.leader_epoch == 5
    assert [log.end_offset_for_epoch(epoch) for epoch in range(2, 7)] == [
        (2, 0),
        (3, 3),
        (3, 3),
        (5, 6),
        None,
    ]
    assert [log.epoch_of(offset) for offset in (0, 2, 3, 6)] == [3, 3, 5, 5]
    directory.close()
