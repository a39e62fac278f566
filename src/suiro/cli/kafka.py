"""`suiro kafka`: runs a real Apache Kafka for trials, and converts a node to one."""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path
from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import reporting

kafka = Group("kafka", "A real Apache Kafka, and the way from a node to one.")

_LOOK_S = 0.5


class _Asked(BaseException):
    """A signal asks to stop, possibly during the start."""


_Config = Annotated[
    Path | None,
    Option("--config", "FILE", "Settings as in Kafka's server.properties."),
]
_Set = Annotated[
    list[str] | None,
    Option("--set", "NAME=VALUE", "One setting, by Kafka's name; repeatable."),
]


@kafka.command
def up(
    brokers: Annotated[
        int | None,
        Option("--brokers", "N", "1 or 3; default: what DIR has, a new one: 1."),
    ] = None,
    data: Annotated[Path | None, Option("--data", "DIR", "Default: temporary, removed at exit.")] = None,
    listen: Annotated[
        str | None,
        Option(
            "--listen",
            "HOST:PORT",
            "Of the first broker; the others take the ports behind it. Default: what DIR has, a new one: "
            "127.0.0.1:9092; port 0: free ones.",
        ),
    ] = None,
    config: _Config = None,
    set_: _Set = None,
    heap: Annotated[str, Option("--heap", "SIZE", "Memory of each broker.")] = "512m",
) -> None:
    """Run a real Apache Kafka until SIGTERM or SIGINT: one broker, or three that are a quorum, on this machine.

    It needs Java 17 or later, and Maven the first time, to fetch Kafka. Once every broker is there it prints one JSON
    line on stdout. It is Kafka as it is, with Kafka's defaults, except that three brokers keep three copies, of which
    two must be written (min.insync.replicas), and one broker keeps one.
    """
    from suiro.errors import SuiroError
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
            ready = {
                "event": "ready",
                "bootstrap": cluster.bootstrap_servers,
                "kafka": KAFKA_VERSION,
                "brokers": {
                    node_id: {"bootstrap": process.bootstrap_servers, "pid": process.pid}
                    for node_id, process in cluster.brokers.items()
                },
                "pid": os.getpid(),
            }
            print(json.dumps(ready))
            sys.stdout.flush()
            gone: set[int] = set()
            while len(gone) < len(cluster.brokers):
                threading.Event().wait(_LOOK_S)
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
        print(f"suiro kafka up: {error}", file=sys.stderr)
        sys.exit(1)
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


@kafka.command
def handover(
    data: Annotated[Path, Option("--data", "DIR", "The stopped node's data directory.")],
    to: Annotated[Path, Option("--to", "DIR", "What Apache Kafka starts on: a new directory.")],
    brokers: Annotated[
        int,
        Option("--brokers", "N", "1, or 3 of which each has a copy of everything."),
    ] = 1,
    listen: Annotated[
        str | None,
        Option(
            "--listen",
            "HOST:PORT",
            "Of the first broker; the others take the ports behind it. Default: the setting listeners, else "
            "127.0.0.1:9092.",
        ),
    ] = None,
    config: Annotated[Path | None, Option("--config", "FILE", "What the node was started with.")] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", "NAME=VALUE", "A setting of the node, or one for Kafka; repeatable."),
    ] = None,
    link: Annotated[
        bool,
        Option(
            "--link",
            help="Give sealed segments a second name for the first broker instead of copying them: no room is "
            "needed, but both directories have to be on one file system.",
        ),
    ] = False,
) -> None:
    """Hand the data of a stopped node over to Apache Kafka 4.3 or later, which goes on at the very same offsets.

    Topics with their ids and settings, every record, committed offsets and groups, transactions and producer ids,
    access rules, SCRAM users and quotas go over. Start it with `suiro kafka up --data DIR`, or with Kafka's own
    scripts on DIR/broker-N/server.properties. The node's directory is only read; at the end it is marked, so that no
    node starts on it by mistake.
    """
    from suiro.handover import hand_over

    with reporting("suiro kafka handover"):
        done = hand_over(
            data, to, brokers=brokers, listen=listen, settings=_settings(config, set_), link=link
        )
    print(
        f"{done.topics} topics, {done.partitions} partitions, {done.size} bytes, cluster {done.cluster_id}, "
        f"producer ids from {done.next_producer_id}"
    )
    if done.open_transactions:
        print(f"{done.open_transactions} transactions are open and go on there, or time out")
    for name in done.left_out:
        print(f"left out: {name}, which is of no use there")
    print(f"start it: suiro kafka up --data {to}")


def _settings(config: Path | None, set_: list[str] | None) -> dict[str, str]:
    """Returns the settings of the file, overridden by those of `--set`. Raises `ConfigError`."""
    from suiro.config import read_properties
    from suiro.foundation.settings import assignments

    settings = {} if config is None else read_properties(config)
    return settings | assignments(set_ or (), "--set")
