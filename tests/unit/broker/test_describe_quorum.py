"""DescribeQuorum on a data directory of an Apache Kafka before 3.7, whose meta.properties has no directory.id."""

from __future__ import annotations

from pathlib import Path

from support.admin import ask
from support.wire import Wire

from suiro.node import InProcessNode


def test_a_directory_without_an_id(tmp_path: Path) -> None:
    (tmp_path / "meta.properties").write_text("version=1\ncluster.id=5L6g3nShT-eMCtK--X86sw\nnode.id=1\n")
    asked = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    with InProcessNode.start(data=tmp_path) as node, Wire(node.bootstrap_servers) as wire:
        answer = ask(wire, "describe_quorum", 2, topics=asked)
    (voter,) = answer["topics"][0]["partitions"][0]["current_voters"]
    assert (voter["replica_id"], voter["replica_directory_id"]) == (1, None)
