"""A pipeline that is stopped midway on a node goes on on Apache Kafka, to which the node's folder was handed over."""

from __future__ import annotations

import struct
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from support.spark_streams import Outputs, Running, Sent, last_by_key

from suiro.client import Client
from suiro.handover import hand_over
from suiro.kafka import KafkaCluster
from suiro.node import NodeProcess
from suiro.streams import Materialized, StreamsBuilder, serdes
from suiro.streams.topology.topology import Topology

pytestmark = [pytest.mark.spark, pytest.mark.kafka, pytest.mark.soak]

TEXT = {"key": serdes.string, "value": serdes.string}
PARTITIONS = 3


def word_count() -> Topology:
    """By another key than the records': it has a repartition topic, a changelog and an output."""
    builder = StreamsBuilder()
    words = builder.stream("words", **TEXT).group_by(lambda key, value: value, name="words")
    words.count(materialized=Materialized.as_("counts")).to_stream().to("counts")
    return builder.build()


def test_the_totals_are_exact(spark: Any, tmp_path: Path) -> None:
    sent = [Sent("words", f"key{n % 11}", f"word{n % 17}", 1_000 + n) for n in range(400)]
    options = {"application_id": "counting", "directory": tmp_path / "state", "partitions": PARTITIONS}

    def start(bootstrap_servers: str, before: list[Sent]) -> Running:
        return Running(
            spark,
            word_count(),
            bootstrap_servers=bootstrap_servers,
            before=before,
            max_offsets_per_trigger=100,
            **options,
        )

    with NodeProcess.start(data=tmp_path / "log") as node:
        running = start(node.bootstrap_servers, sent[:250])
        running.finish()
        running.close()
        with Client(node.bootstrap_servers) as client:
            seen = Outputs(client, ["counts"], PARTITIONS).read()["counts"]
            done = client.offset_fetch("counting")
    hand_over(tmp_path / "log", tmp_path / "kafka", listen="127.0.0.1:0")
    with KafkaCluster.start(tmp_path / "kafka") as cluster:
        with Client(cluster.bootstrap_servers) as client:
            assert client.offset_fetch("counting") == done
            assert Outputs(client, ["counts"], PARTITIONS).read()["counts"] == seen
        with start(cluster.bootstrap_servers, sent[250:]) as running:
            running.finish()
            rows = Outputs(running.client, ["counts"], PARTITIONS).read()["counts"]
    counts = {
        (key or b"").decode(): struct.unpack(">q", value or b"")[0] for key, (value, _) in last_by_key(rows).items()
    }
    assert counts == Counter(item.value for item in sent)
    # Every update once: an update that was repeated or lost would leave a step out, or take one twice.
    steps = Counter((row.key, struct.unpack(">q", row.value or b"")[0]) for row in rows)
    assert max(steps.values()) == 1
