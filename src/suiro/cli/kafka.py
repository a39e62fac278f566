"""`suiro kafka`: runs a real Apache Kafka for trials, and converts a node to one. `suiro log`: imports topic folders of
Apache Kafka into a node."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import tempfile
from pathlib import Path

from suiro.cli.command_groups import Group, argument, option
from suiro.cli.everyday import fail, reporting
from suiro.cli.services import SERVER_CONFIG, SERVER_SETTINGS
from suiro.clock import sleep_s

kafka = Group("kafka")

_LOOK_S = 0.5


class _Asked(BaseException):
    """A signal asks to stop, possibly during the start."""


@kafka.command
def up(
    brokers: int | None = option(None, "Number of brokers, 1 or 3. Default: that of DIR, or 1.", "N"),
    data: Path | None = option(None, "Data directory. Default: a temporary one, removed at exit.", "DIR"),
    listen: str | None = option(
        None,
        "Address of the first broker; the others use the next ports. Port 0 selects free ports. Default: that of DIR, "
        "or 127.0.0.1:9092.",
        "HOST:PORT",
    ),
    config: Path | None = SERVER_CONFIG,
    set_: list[str] | None = SERVER_SETTINGS,
    heap: str = option("512m", "Heap of each broker.", "SIZE"),
) -> None:
    """Run a real Apache Kafka on this machine until SIGTERM or SIGINT: one broker, or a quorum of three.

    The command needs Java 17 or later, and Maven the first time, to download Kafka. When all brokers are ready, it
    prints one JSON line on stdout. Kafka is unmodified and has its default settings, with one exception: on three
    brokers, a partition has three replicas, and a write needs two of them (min.insync.replicas); on one broker, it has
    one.
    """
    from suiro.errors import SuiroError
    from suiro.foundation.readiness import say_ready
    from suiro.kafka import KAFKA_VERSION, KafkaCluster

    def stop(*_: object) -> None:
        for number in (signal.SIGTERM, signal.SIGINT):
            signal.signal(number, signal.SIG_IGN)  # it is already stopping
        raise _Asked

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, stop)
    temporary = Path(tempfile.mkdtemp(prefix="suiro-kafka-")) if data is None else None
    try:
        settings = _settings(config, set_)
        with KafkaCluster.start(
            data or temporary or Path(), brokers=brokers, listen=listen, settings=settings, heap=heap
        ) as cluster:
            brokers_of = {
                node_id: {"bootstrap": process.bootstrap_servers, "pid": process.pid}
                for node_id, process in cluster.brokers.items()
            }
            bootstrap = {"bootstrap": cluster.bootstrap_servers, "kafka": KAFKA_VERSION}
            say_ready({**bootstrap, "brokers": brokers_of, "pid": os.getpid()})
            gone: set[int] = set()
            while len(gone) < len(cluster.brokers):
                sleep_s(_LOOK_S)
                for node_id, process in cluster.brokers.items():
                    if process.exit_code is not None and node_id not in gone:
                        gone.add(node_id)
                        print(
                            f"suiro kafka up: broker {node_id} has ended with exit code {process.exit_code}; "
                            f"its log is {process.log_path}",
                            file=sys.stderr,
                        )
        sys.exit(1)
    except _Asked:
        pass
    except (SuiroError, OSError) as error:
        fail(str(error), "suiro kafka up")
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@kafka.command
def handover(
    data: Path = option(..., "Data directory of the stopped node.", "DIR"),
    to: Path = option(..., "New directory, on which Apache Kafka starts.", "DIR"),
    brokers: int = option(1, "Number of brokers, 1 or 3. With 3, each has a copy of everything.", "N"),
    listen: str | None = option(
        None,
        "Address of the first broker; the others use the next ports. Default: the setting listeners, or "
        "127.0.0.1:9092.",
        "HOST:PORT",
    ),
    config: Path | None = option(None, "File of settings with which the node was started.", "FILE"),
    set_: list[str] | None = option(None, "A setting of the node or of Kafka; repeatable.", "NAME=VALUE"),
    link: bool = option(
        False,
        "Create hard links to closed segments for the first broker instead of copies. This takes no space, but both "
        "directories must be on one file system.",
    ),
) -> None:
    """Hand the data of a stopped node over to Apache Kafka 4.3 or later, which continues at the same offsets.

    The handover includes topics with their ids and settings, all records, committed offsets and groups, transactions,
    producer ids, ACLs, SCRAM users and quotas. Start Kafka with `suiro kafka up --data DIR`, or with its own scripts
    and DIR/broker-N/server.properties. The directory of the node is only read. At the end it is marked, so that no node
    starts on it by mistake.
    """
    from suiro.handover import hand_over

    with reporting("suiro kafka handover"):
        done = hand_over(data, to, brokers=brokers, listen=listen, settings=_settings(config, set_), link=link)
    print(
        f"{done.topics} topics, {done.partitions} partitions, {done.size} bytes, cluster {done.cluster_id}, "
        f"producer ids from {done.next_producer_id}"
    )
    if done.open_transactions:
        print(f"{done.open_transactions} transactions are open; they continue there, or time out")
    for name in done.left_out:
        print(f"left out: {name}, which Kafka does not use")
    print(f"start it: suiro kafka up --data {to}")


def _settings(config: Path | None, set_: list[str] | None) -> dict[str, str]:
    """Returns the settings of the file, overridden by those of `--set`. Raises `ConfigError`."""
    from suiro.config import read_properties
    from suiro.foundation.settings import assignments

    settings = {} if config is None else read_properties(config)
    return settings | assignments(set_ or (), "--set")


log = Group("log")


@log.command
def import_(
    folders: list[Path] = argument("FOLDER", "Folder of a partition, such as /kafka/flights-0."),
    data: Path = option(..., "Data directory of the node.", "DIR"),
    config: list[str] | None = option(
        None,
        "A setting of the imported topics, such as retention.ms=-1, because the folders do not contain settings; "
        "repeatable.",
        "NAME=VALUE",
    ),
) -> None:
    """Import topics that Apache Kafka wrote into the data directory of a node. Both must be stopped.

    Every batch is checked while it is copied. Either all topics are imported, or none.
    """
    from suiro.broker import import_topics
    from suiro.clock import SystemClock
    from suiro.foundation.settings import assignments

    with reporting("suiro log import"):
        configs = assignments(config or (), "--config")
        imported = import_topics(data, folders, configs=configs, clock=SystemClock())
    for topic in imported:
        print(
            f"{topic.name}: {topic.partitions} partitions, {topic.records} offsets, {topic.size} bytes "
            f"(topic id {topic.topic_id})"
        )
        for partition, producer_id, offset in topic.open_transactions:
            print(
                f"{topic.name}-{partition}: the transaction of producer {producer_id} is open since offset {offset}, "
                "and readers of committed records stop there; once the node runs, end it with kafka-transactions.sh "
                f"--bootstrap-server HOST:PORT abort --topic {topic.name} --partition {partition} "
                f"--start-offset {offset}",
                file=sys.stderr,
            )
