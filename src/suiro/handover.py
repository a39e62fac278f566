"""Converts the data folder of a stopped node to the folder of an Apache Kafka cluster.

The folder of the node is only read. The folder of the cluster is written under a temporary name next to its target and
renamed when everything is on disk. Then the folder of the node is marked, so that no node starts on it by mistake. If
the process dies at any point, the folder of the node is unchanged, and the handover can be repeated.

`suiro.broker` reads a node's folder, `suiro.kafka` defines a cluster's; only this module uses both.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

from suiro.broker import HandedOver, handing_over, node_id_of
from suiro.clock import SystemClock
from suiro.config import NodeSettings, is_of_kafka, node_setting_names
from suiro.errors import ConfigError
from suiro.foundation.files import sync_folder
from suiro.kafka import SIZES, data_directory, write_settings

_UNFINISHED = ".handing-over"
_COORDINATOR_PARTITIONS = {
    "__consumer_offsets": "offsets.topic.num.partitions",
    "__transaction_state": "transaction.state.log.num.partitions",
}
_KAFKAS_PARTITIONS = "50"
_MIN_INSYNC = "min.insync.replicas"

_COPIES = frozenset(
    (
        "default.replication.factor",
        "offsets.topic.replication.factor",
        "transaction.state.log.min.isr",
        "transaction.state.log.replication.factor",
    )
)
"""A node has one copy of everything, whatever is set; the cluster's size says how many there are now."""
_OTHER_DEFAULTS = {
    "ssl.keystore.type": "PEM",
    "ssl.truststore.type": "PEM",
    "sasl.enabled.mechanisms": "PLAIN",
}
"""The node's defaults that differ from Kafka's."""


def hand_over(
    data: Path,
    to: Path,
    *,
    brokers: int = 1,
    listen: str | None = None,
    settings: Mapping[str, str] | None = None,
    link: bool = False,
) -> HandedOver:
    """Fill `to`, which is new or empty, with a cluster of 1 or 3 brokers that has what the node in `data` had.

    `settings` are those that the node was started with, and any for Kafka. Raises `ConfigError` where something
    cannot go over, with what to do, and OSError.
    """
    data, to, given = data.resolve(), to.resolve(), dict(settings or {})
    if brokers not in SIZES:
        raise ConfigError(f"--brokers {brokers}: a cluster has 1 or 3")
    if to.exists() and (not to.is_dir() or any(to.iterdir())):
        raise ConfigError(f"--to {to} already exists; name a new directory")
    if to.is_relative_to(data):
        raise ConfigError(f"--to {to} is within the node's own directory; name a directory outside of it")
    first = node_id_of(data)
    node_ids = range(first, first + brokers)
    node_settings = NodeSettings().with_settings(
        {name: value for name, value in given.items() if name in node_setting_names()}, source="--set"
    )
    min_insync = int(given.get(_MIN_INSYNC, 2 if brokers > 1 else 1))
    staging = to.with_name(f".{to.name}{_UNFINISHED}")
    to.parent.mkdir(parents=True, exist_ok=True)
    with handing_over(
        data,
        {node_id: data_directory(staging, node_id) for node_id in node_ids},
        staging=staging,
        settings=node_settings,
        coordinator_partitions={
            topic: int(given.get(setting, _KAFKAS_PARTITIONS)) for topic, setting in _COORDINATOR_PARTITIONS.items()
        },
        min_insync_replicas=min_insync,
        destination=str(to),
        link=link,
        clock=SystemClock(),
    ) as done:
        write_settings(staging, node_ids, home=to, listen=listen, settings=_for_kafka(given, min_insync))
        os.sync()  # the settings, and every name that leads to what was synced one by one
        staging.rename(to)
        sync_folder(to.parent)
    return done


def _for_kafka(given: Mapping[str, str], min_insync: int) -> dict[str, str]:
    left_out = _COPIES | {"node.id"}
    kept = {name: value for name, value in given.items() if is_of_kafka(name) and name not in left_out}
    return {**_OTHER_DEFAULTS, **kept, _MIN_INSYNC: str(min_insync)}
