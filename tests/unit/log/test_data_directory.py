"""A node's folder: one owner, Kafka's marker files, partitions found again with their offsets."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from uuid import uuid4

import pytest
from support.logs import NOW_MS, batch, read_all

from suiro.clock import ManualClock
from suiro.errors import ConfigError
from suiro.log import DataDirectory, LogConfig, PartitionLog, replace_file
from suiro.log.checkpoints import id_from_text, id_text

CLOCK = ManualClock(wall_ms=NOW_MS)
TOPIC = uuid4()


def _open_partition(directory: DataDirectory, topic: str = "flights", partition: int = 0) -> PartitionLog:
    return directory.open_partition(topic, partition, topic_id=TOPIC, config=LogConfig(), clock=CLOCK)


def test_a_second_node_is_told_whose_directory_it_is(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path)
    with pytest.raises(ConfigError, match="another node is running"):
        DataDirectory.open(tmp_path)
    first.close()
    DataDirectory.open(tmp_path).close()


def test_a_directory_that_cannot_be_used_is_named_with_the_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(ConfigError, match=r"the data directory .*/file cannot be used: File exists.*; choose"):
        DataDirectory.open(tmp_path / "file")
    with pytest.raises(ConfigError, match=r"file/log cannot be used: Not a directory"):
        DataDirectory.open(tmp_path / "file" / "log")
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / ".lock").mkdir()  # also root cannot write this
    with pytest.raises(ConfigError, match=r"log cannot be used: Is a directory: .*/log/\.lock"):
        DataDirectory.open(tmp_path / "log")


def test_identity_is_kept_and_checked(tmp_path: Path) -> None:
    first = DataDirectory.open(tmp_path, node_id=3)
    first.close()
    again = DataDirectory.open(tmp_path, node_id=3)
    assert again.cluster_id == first.cluster_id
    assert len(again.cluster_id) == 22
    again.close()
    with pytest.raises(ConfigError, match="belongs to node 3"):
        DataDirectory.open(tmp_path, node_id=4)


def test_partitions_are_found_again(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    for topic, partition in (("b-2", 10), ("b-2", 9), ("__consumer_offsets", 0)):
        _open_partition(directory, topic, partition).append(batch())
    directory.close()
    again = DataDirectory.open(tmp_path)
    places = again.partitions()
    assert [(p.topic, p.partition) for p in places] == [("__consumer_offsets", 0), ("b-2", 9), ("b-2", 10)]
    assert {place.topic_id for place in places} == {TOPIC}


def test_only_a_clean_stop_is_called_one(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    assert directory.clean_shutdown  # an empty one
    _open_partition(directory).append(batch(3))
    directory.close()
    assert (tmp_path / ".kafka_cleanshutdown").exists()
    again = DataDirectory.open(tmp_path)
    assert again.clean_shutdown
    assert not (tmp_path / ".kafka_cleanshutdown").exists()
    _open_partition(again).append(batch())
    again.abandon()
    after_crash = DataDirectory.open(tmp_path)
    assert not after_crash.clean_shutdown
    assert len(read_all(_open_partition(after_crash))) == 4


def test_checkpoints_are_kafkas_text_and_are_obeyed(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    log = _open_partition(directory)
    log.append(batch(5))
    log.retention.delete_records_before(2)
    log.flush()
    directory.checkpoint()
    assert (tmp_path / "recovery-point-offset-checkpoint").read_text() == "0\n1\nflights 0 5\n"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nflights 0 2\n"
    directory.abandon()
    again = DataDirectory.open(tmp_path)
    assert _open_partition(again).log_start_offset == 2
    metadata = (tmp_path / "flights-0" / "partition.metadata").read_text()
    assert metadata == f"version: 0\ntopic_id: {id_text(TOPIC)}"
    assert id_from_text(id_text(TOPIC)) == TOPIC
    assert (tmp_path / "flights-0" / "leader-epoch-checkpoint").read_text() == "0\n1\n0 2\n"


def test_where_a_log_starts_is_durable_before_it_replaces_what_was(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An empty file after a power failure would bring back what DeleteRecords has deleted."""
    directory = DataDirectory.open(tmp_path)
    log = _open_partition(directory)
    log.append(batch(5))
    done: list[str] = []
    sync, replace = os.fsync, os.replace
    monkeypatch.setattr(os, "fsync", lambda descriptor: (done.append("sync"), sync(descriptor))[1])
    monkeypatch.setattr(os, "replace", lambda path, to: (done.append(Path(to).name), replace(path, to))[1])
    directory.checkpoint()
    for _ in range(2):
        log.retention.delete_records_before(2)
        done.clear()
        directory.checkpoint()
        starts = [name for name in done if name != "recovery-point-offset-checkpoint"]
        assert starts in (["sync", "log-start-offset-checkpoint", "sync"], [])
    assert not starts, "nothing has changed"
    assert (tmp_path / "log-start-offset-checkpoint").read_text() == "0\n1\nflights 0 2\n"
    directory.abandon()


def test_a_deleted_partition_is_gone_even_when_half_removed(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    _open_partition(directory).append(batch())
    directory.delete_partition("flights", 0)
    assert directory.partitions() == []
    half = tmp_path / "flights-0.0123-delete"
    half.mkdir()
    (half / "00000000000000000000.log").touch()
    directory.close()
    DataDirectory.open(tmp_path).close()
    assert not half.exists()


def test_a_new_partition_does_not_inherit_what_checkpoints_say_of_a_deleted_one(tmp_path: Path) -> None:
    """Killed between the removal of the folder and the writing of the checkpoints."""
    rows = {
        "recovery-point-offset-checkpoint": "flights 0 5",
        "log-start-offset-checkpoint": "flights 0 5",
        "cleaner-offset-checkpoint": "flights 0 4",
    }
    for name, row in rows.items():
        (tmp_path / name).write_text(f"0\n1\n{row}\n")
    directory = DataDirectory.open(tmp_path)
    log = _open_partition(directory)
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 0, None)
    log.append(batch())
    directory.abandon()
    again = DataDirectory.open(tmp_path)
    log = _open_partition(again)
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_offset) == (0, 1, None)
    again.close()


def test_a_directory_of_another_topic_is_refused(tmp_path: Path) -> None:
    directory = DataDirectory.open(tmp_path)
    _open_partition(directory)
    with pytest.raises(ConfigError, match="belongs to topic id"):
        directory.open_partition("flights", 0, topic_id=uuid4(), config=LogConfig(), clock=CLOCK)


@pytest.mark.parametrize("left", [b"", b"\0" * 64])
def test_files_that_a_power_cut_emptied_count_as_absent(tmp_path: Path, left: bytes) -> None:
    directory = DataDirectory.open(tmp_path)
    _open_partition(directory).append(batch(3))
    directory.checkpoint()
    directory.abandon()
    for name in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / name).write_bytes(left)
    for name in ("leader-epoch-checkpoint", "partition.metadata"):
        assert (tmp_path / "flights-0" / name).exists()
        (tmp_path / "flights-0" / name).write_bytes(left)
    again = DataDirectory.open(tmp_path)
    assert [place.topic_id for place in again.partitions()] == [None]
    assert len(read_all(_open_partition(again))) == 3
    assert [place.topic_id for place in again.partitions()] == [TOPIC]


def test_the_log_loads_no_compiler_and_no_arrow() -> None:
    check = "import sys, suiro.log; print(*sorted({'numba', 'pyarrow', 'numpy', 'pandas'} & set(sys.modules)))"
    done = subprocess.run([sys.executable, "-c", check], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == ""


def test_names_are_on_the_disk_before_anything_relies_on_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A file system may have what was synced after a rename or a removal, and not that itself."""
    done: list[str] = []
    real_fsync, real_replace, real_unlink = os.fsync, os.replace, Path.unlink

    def fsync(descriptor: int) -> None:
        done.append("sync " + Path(os.readlink(f"/proc/self/fd/{descriptor}")).name)
        real_fsync(descriptor)

    def replace(old: Path, new: Path) -> None:
        done.append(f"name {Path(new).name}")
        real_replace(old, new)

    def unlink(path: Path, missing_ok: bool = False) -> None:
        done.append(f"remove {path.name}")
        real_unlink(path, missing_ok=missing_ok)

    data = tmp_path / "data"
    DataDirectory.open(data).close()
    monkeypatch.setattr(os, "fsync", fsync)
    monkeypatch.setattr(os, "replace", replace)
    monkeypatch.setattr(Path, "unlink", unlink)
    replace_file(data / "producer-ids", b"1000")
    directory = DataDirectory.open(data)
    assert directory.clean_shutdown
    assert done == [
        "sync producer-ids.tmp",
        "name producer-ids",
        "sync data",
        "remove .kafka_cleanshutdown",
        "sync data",
    ]
    directory.abandon()
