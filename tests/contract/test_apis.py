"""What the node says it speaks: the APIs and versions of Apache Kafka 4.3, and nothing else."""

from __future__ import annotations

from typing import Any

import pytest
from support.admin import ask
from support.wire import Wire

from suiro.protocol.messages import API_NAMES

pytestmark = pytest.mark.kafka

LEFT_OUT = {
    "share groups": (76, 77, 78, 79, 90, 91, 92),
    "delegation tokens": (38, 39, 40, 41),
    "Streams groups": (88, 89),
    "client telemetry": (71, 72),
    "among brokers": (53, 56, 58, 62, 63, 67, 70, 73, 80, 81, 82, 83, 84, 85, 86, 87),
}
"""By their keys. The node is one process, and the others serve clients of their own."""


def spoken(bootstrap_servers: str) -> dict[int, tuple[int, int]]:
    fields: dict[str, Any] = {"client_software_name": "suiro", "client_software_version": "1"}
    with Wire(bootstrap_servers) as wire:
        found = ask(wire, "api_versions", 4, **fields)["api_keys"]
    return {api["api_key"]: (api["min_version"], api["max_version"]) for api in found}


def test_every_api_and_version_of_kafka(suiro_node: Any, kafka: Any) -> None:
    ours, theirs = spoken(suiro_node.bootstrap_servers), spoken(kafka.bootstrap_servers)
    left_out = {key for keys in LEFT_OUT.values() for key in keys}
    assert ours == {key: versions for key, versions in theirs.items() if key not in left_out}
    assert ours.keys() <= API_NAMES.keys()
