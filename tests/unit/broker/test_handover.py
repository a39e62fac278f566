"""A stopped node's folder on its way to Apache Kafka: what is refused, what a death leaves, what the topics of the
coordinators hold afterwards. That Kafka takes it is tested in tests/e2e/test_handover.py."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from support.commands import suiro
from support.logs import NOW_MS, open_log, open_transaction

from suiro.broker.coordination.groups.records import OffsetValue, encode_offset_key, encode_offset_value
from suiro.broker.coordination.transactions.records import decode_value, encode_key, encode_value
from suiro.broker.coordination.transactions.state import Transaction, TransactionState
from suiro.broker.handover.coordinator_topics import Targets, distribute, distribute_transactions
from suiro.broker.handover.metadata_records import BrokerIdentity, cluster_records
from suiro.broker.settings.cluster_state import ClusterState
from suiro.broker.settings.dynamic_settings import DynamicSettings
from suiro.broker.storage import system_log
from suiro.broker.storage.system_log import partition_for
from suiro.client import Client, NewTopic
from suiro.config import NodeSettings, read_properties
from suiro.errors import ConfigError
from suiro.handover import hand_over
from suiro.log import PartitionLog
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch


@pytest.fixture(scope="module")
def stopped(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a node that has a topic. Tests only read it, or copies."""
    data = tmp_path_factory.mktemp("stopped") / "log"
    with NodeProcess.start(data=data) as node, Client(node.bootstrap_servers) as client:
        client.create_topics([NewTopic("numbers", 2)])
        client.produce({("numbers", 1): batch_of((b"key", b"value"))})
    return data


def batch_of(*entries: tuple[bytes, bytes | None], producer_id: int = -1) -> bytes:
    records = [
        Record(offset=index, timestamp=NOW_MS, key=key, value=value) for index, (key, value) in enumerate(entries)
    ]
    return encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=0 if producer_id >= 0 else -1,
        transactional=producer_id >= 0,
    )


def files(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != ".lock"
    }


def test_the_nodes_folder_is_only_read(stopped: Path, tmp_path: Path) -> None:
    before = files(stopped)
    hand_over(stopped, tmp_path / "kafka", listen="127.0.0.1:0")
    assert files(stopped).keys() - before.keys() == {"handed-over"}
    (stopped / "handed-over").unlink()
    after = files(stopped)
    assert {name for name in before if before[name] != after[name]} <= {"topics.json", "topics.journal"}
    for name in ("00000000000000000000.log", "partition.metadata"):
        copied = tmp_path / "kafka" / "broker-1" / "data" / "numbers-1" / name
        assert copied.read_bytes() == before[f"numbers-1/{name}"]
    assert (
        read_properties(copied.parents[1] / "meta.properties")["cluster.id"]
        == (read_properties(stopped / "meta.properties")["cluster.id"])
    )


def test_three_brokers_share_no_file(stopped: Path, tmp_path: Path) -> None:
    hand_over(stopped, tmp_path / "kafka", brokers=3, listen="127.0.0.1:0", link=True)
    (stopped / "handed-over").unlink()
    copies = list(tmp_path.glob("kafka/broker-*/data/numbers-1/*.log"))
    assert len({path.stat().st_ino for path in copies}) == 3
    assert len({path.read_bytes() for path in copies}) == 1
    settings = read_properties(tmp_path / "kafka" / "broker-2" / "server.properties")
    assert settings["min.insync.replicas"] == "2"


def test_settings_that_kafka_does_not_have_stay_behind(stopped: Path, tmp_path: Path) -> None:
    only_here = {
        "metrics.listen": "127.0.0.1:0",
        "max.unauthenticated.connections": "5",
        "listener.name.plaintext.max.unauthenticated.connections": "6",
        "group.max.bytes": "100000000",
    }
    hand_over(stopped, tmp_path / "kafka", listen="127.0.0.1:0", settings={**only_here, "fetch.max.bytes": "7000"})
    (stopped / "handed-over").unlink()
    settings = read_properties(tmp_path / "kafka" / "broker-1" / "server.properties")
    assert settings["fetch.max.bytes"] == "7000"
    assert not only_here.keys() & settings.keys()


def test_altered_settings_that_kafka_does_not_have_stay_behind(tmp_path: Path) -> None:
    state = ClusterState(tmp_path)
    settings = DynamicSettings(NodeSettings(), state)
    settings.replace(
        "broker",
        {
            "max.connections": "50",
            "max.unauthenticated.connections": "5",
            "listener.name.plaintext.max.unauthenticated.connections": "6",
        },
    )
    settings.replace("default", {"group.max.bytes": "100000000"})
    broker = BrokerIdentity(node_id=1, epoch=1, incarnation_id=uuid4(), directory_id=uuid4())
    records = b"".join(cluster_records(state, settings, [broker], min_insync_replicas=1))
    assert b"max.connections" in records
    assert b"max.unauthenticated.connections" not in records
    assert b"group.max.bytes" not in records


def test_a_death_on_the_way_leaves_the_node_whole(stopped: Path, tmp_path: Path) -> None:
    """Killed when all is copied and nothing is in its place; the next try begins anew."""
    code = (
        "import os, sys; from pathlib import Path; import suiro.handover as h\n"
        "h.write_settings = lambda *a, **k: os._exit(9)\n"
        "h.hand_over(Path(sys.argv[1]), Path(sys.argv[2]))"
    )
    command = [sys.executable, "-c", code, str(stopped), str(tmp_path / "kafka")]
    assert subprocess.run(command, check=False).returncode == 9
    assert not (tmp_path / "kafka").exists()
    assert not (stopped / "handed-over").exists()
    with NodeProcess.start(data=stopped) as node, Client(node.bootstrap_servers) as client:
        assert client.list_offsets({("numbers", 1): -1})["numbers", 1].offset == 1
    assert hand_over(stopped, tmp_path / "kafka", listen="127.0.0.1:0").topics == 1
    (stopped / "handed-over").unlink()
    assert os.listdir(tmp_path) == ["kafka"]


def test_what_is_refused(stopped: Path, tmp_path: Path) -> None:
    (tmp_path / "there").mkdir()
    (tmp_path / "there" / "file").touch()
    for data, to, brokers, says in (
        (tmp_path / "none", tmp_path / "k", 1, "is not the data folder of a node"),
        (stopped, tmp_path / "there", 1, "already exists; name a new directory"),
        (stopped, stopped / "k", 1, "is within the node's own directory"),
        (stopped, tmp_path / "k", 2, "a cluster has 1 or 3"),
    ):
        with pytest.raises(ConfigError, match=says):
            hand_over(data, to, brokers=brokers)
    assert not (tmp_path / "k").exists()


def test_a_node_that_runs(tmp_path: Path) -> None:
    others = tmp_path / ".kafka.handing-over" / "others"
    others.mkdir(parents=True)
    with NodeProcess.start(data=tmp_path / "log"):
        command = ["kafka", "handover", "--data", str(tmp_path / "log"), "--to", str(tmp_path / "kafka")]
        done = suiro(*command)
    assert done.code == 1
    assert "another node is running on" in done.err
    assert not (tmp_path / "kafka").exists()
    assert others.exists()  # whoever holds the folder may be another handover


def test_a_topic_with_a_remote_tier(tmp_path: Path) -> None:
    settings = {
        "remote.log.storage.system.enable": "true",
        "remote.log.storage.uri": f"file://{tmp_path / 'tier'}",
    }
    with (
        NodeProcess.start(data=tmp_path / "log", settings=settings) as node,
        Client(node.bootstrap_servers) as c,
    ):
        c.create_topics([NewTopic("far", 1, configs={"remote.storage.enable": "true"})])
    with pytest.raises(ConfigError, match=r"topic far has a remote tier.*remote.log.delete.on.disable=true"):
        hand_over(tmp_path / "log", tmp_path / "kafka", settings=settings)
    assert os.listdir(tmp_path / "log").count("handed-over") == 0
    with NodeProcess.start(data=tmp_path / "log", settings=settings):
        pass


# The coordinators' topics over another number of partitions.


class Logs:
    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def __call__(self, index: int) -> PartitionLog:
        return open_log(self.folder / f"topic-{index}")


@pytest.fixture
def source(tmp_path: Path) -> Iterator[PartitionLog]:
    log = open_log(tmp_path / "source-0")
    yield log
    log.close()


def commit(group: str, offset: int, partition: int = 0) -> tuple[bytes, bytes]:
    value = OffsetValue(offset=offset, leader_epoch=0, metadata="", commit_ms=NOW_MS)
    return encode_offset_key(group, "numbers", partition), encode_offset_value(value)


def append(log: PartitionLog, *entries: tuple[bytes, bytes | None], producer_id: int = -1) -> None:
    log.append(batch_of(*entries, producer_id=producer_id), origin="coordinator")


def content(targets: Targets) -> dict[int, list[tuple[int, bytes, bytes | None]]]:
    """(producer id, key, value) by partition, in order."""
    return {
        index: [
            (header.producer_id, record.key or b"", record.value)
            for header, records in system_log.replay(log)
            for record in records
        ]
        for index, log in sorted(targets.made.items())
    }


def test_committed_offsets_find_their_partition(source: PartitionLog, tmp_path: Path) -> None:
    groups = [f"group-{n}" for n in range(40)]
    for n, group in enumerate(groups):
        append(source, commit(group, 1), commit(group, n))
    append(source, (commit("group-3", 0)[0], None))
    targets = Targets(7, Logs(tmp_path))
    distribute([source], targets)
    expected: dict[int, list[tuple[int, bytes, bytes | None]]] = {}
    for n, group in enumerate(groups):
        if group != "group-3":
            expected.setdefault(partition_for(group, 7), []).append((-1, *commit(group, n)))
    assert content(targets) == dict(sorted(expected.items()))


def test_of_transactions_counts_what_was_committed(source: PartitionLog, tmp_path: Path) -> None:
    append(source, commit("g", 1, 0), commit("g", 1, 1), commit("g", 1, 2))
    append(source, commit("g", 2, 0), producer_id=7)
    append(source, commit("g", 3, 1), producer_id=8)
    append(source, commit("g", 4, 2), producer_id=9)
    append(source, commit("g", 5, 2))  # outside of the transaction, and later
    source.append_control(True, 7, 0, 0)
    source.append_control(False, 8, 0, 0)
    targets = Targets(3, Logs(tmp_path))
    distribute([source], targets)
    ((_, found),) = content(targets).items()
    # Committed; aborted, so the one before; open, and behind it what was committed after it.
    assert found == [
        (-1, *commit("g", 1, 1)),
        (-1, *commit("g", 2, 0)),
        (9, *commit("g", 4, 2)),
        (-1, *commit("g", 5, 2)),
    ]
    (log,) = targets.made.values()
    assert open_transaction(log, 9) == 2


def test_a_transaction_with_offsets_ends_in_all_of_their_partitions(source: PartitionLog, tmp_path: Path) -> None:
    def entry(name: str, *partitions: tuple[str, int]) -> tuple[bytes, bytes]:
        transaction = Transaction(
            transactional_id=name,
            producer_id=4,
            producer_epoch=0,
            timeout_ms=1000,
            state=TransactionState.ONGOING,
            partitions=frozenset(partitions),
        )
        return encode_key(name), encode_value(transaction)

    plain = entry("plain", ("numbers", 1))
    append(source, plain, entry("with-offsets", ("numbers", 1), ("__consumer_offsets", 3)))
    targets = Targets(1, Logs(tmp_path))
    distribute_transactions([source], targets, offsets_partitions=2)
    first, second = content(targets)[0]
    assert first == (-1, *plain)
    assert decode_value("with-offsets", second[2] or b"").partitions == {
        ("numbers", 1),
        ("__consumer_offsets", 0),
        ("__consumer_offsets", 1),
    }
