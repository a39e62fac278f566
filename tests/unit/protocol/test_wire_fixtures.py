"""Recorded request and response bodies: decoding leaves nothing over, encoding gives the same bytes back."""

from __future__ import annotations

import io
import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_writer

from suiro.protocol import messages

VECTORS = Path(__file__).parents[2] / "vectors" / "protocol" / "wire-fixtures.json"
FIXTURES: list[dict[str, Any]] = json.loads(VECTORS.read_text())["fixtures"]

# Versions that Kafka 4.0 removed (KIP-896) and kio does not know, with the number of recordings of each.
REMOVED = {
    ("createAcls", 0): 2,
    ("createTopics", 0): 2,
    ("createTopics", 1): 2,
    ("deleteAcls", 0): 2,
    ("deleteTopics", 0): 2,
    ("describeAcls", 0): 2,
    ("describeConfigs", 0): 6,
    ("fetch", 0): 3,
    ("fetch", 1): 3,
    ("fetch", 2): 4,
    ("fetch", 3): 3,
    ("listOffsets", 0): 2,
    ("offsetCommit", 0): 3,
    ("offsetCommit", 1): 3,
    ("produce", 2): 5,
}


def is_known(fixture: dict[str, Any]) -> bool:
    lowest, highest = messages.known_versions(fixture["api_key"])
    return bool(lowest <= fixture["version"] <= highest)


def test_exactly_the_removed_versions_are_left_out() -> None:
    assert Counter((f["api"], f["version"]) for f in FIXTURES if not is_known(f)) == REMOVED
    assert len(FIXTURES) == 184
    assert sum(map(is_known, FIXTURES)) == 140


@pytest.mark.parametrize(
    "fixture",
    [pytest.param(f, id=f"{f['api']}-{f['kind']}-{f['name']}") for f in FIXTURES if is_known(f)],
)
def test_recorded_body(fixture: dict[str, Any]) -> None:
    find = messages.request_class if fixture["kind"] == "request" else messages.response_class
    message_class = find(fixture["api_key"], fixture["version"])
    recorded = bytes.fromhex(fixture["hex"])
    message, size = messages.read_body(message_class, recorded)
    assert size == len(recorded)
    out = io.BytesIO()
    entity_writer(message_class)(out, message)
    assert out.getvalue() == recorded
