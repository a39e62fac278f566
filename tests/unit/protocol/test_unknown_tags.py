"""Tagged fields that a later client or broker may send, in whatever structure, are passed over (KIP-482)."""

from __future__ import annotations

import dataclasses
import datetime
import io
import json
import struct
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kio.serial import entity_writer
from support.fuzzing import frames

from suiro.protocol.fields import uvarint
from suiro.protocol.frame_check import check_counts, without_unknown_tags
from suiro.protocol.messages import (
    ErrorCode,
    known_versions,
    nested,
    read_request,
    read_response,
    request_class,
    response_class,
    write_request,
    write_response,
)

VECTORS = Path(__file__).parents[2] / "vectors" / "protocol" / "wire-fixtures.json"
LATER = b"\1" + uvarint(9_999) + b"\3new"  # a section with one field
LATER_TWO = b"\2" + uvarint(9_998) + b"\0" + uvarint(9_999) + b"\3new"


def structures(message: Any) -> int:
    """How many empty sections of tagged fields a message has, those within tagged fields left out."""
    if isinstance(message, tuple):
        return sum(map(structures, message))
    if not dataclasses.is_dataclass(message):
        return 0
    fields = dataclasses.fields(message)
    tagged = [field for field in fields if "tag" in field.metadata]
    is_empty = all(getattr(message, field.name) == field.default for field in tagged)
    found = [structures(getattr(message, field.name)) for field in fields if field not in tagged]
    return int(type(message).__flexible__ and is_empty) + sum(found)


def sections(frame: bytes, is_the_same: Callable[[bytes], bool]) -> list[int]:
    """Where a field may be added: nothing else can become one and leave the message as it is."""
    return [
        position
        for position, byte in enumerate(frame)
        if byte == 0 and is_the_same(frame[:position] + LATER + frame[position + 1 :])
    ]


def everywhere(frame: bytes, places: list[int], section: bytes) -> bytes:
    for position in reversed(places):
        frame = frame[:position] + section + frame[position + 1 :]
    return frame


def requests() -> Iterator[Any]:
    for frame in frames():
        api_key, version = struct.unpack_from(">hh", frame)
        if request_class(api_key, version).__flexible__ and len(frame) < 600:
            yield pytest.param(frame, id=f"{request_class(api_key, version).__name__}-{version}-{len(frame)}")


@pytest.mark.parametrize("frame", list(requests()))
def test_a_request(frame: bytes) -> None:
    api_key, version = struct.unpack_from(">hh", frame)
    header, request = wanted = read_request(frame, api_key, version)

    def is_the_same(changed: bytes) -> bool:
        try:
            return read_request(changed, api_key, version) == wanted
        except Exception:
            return False

    places = sections(frame, is_the_same)
    assert len(places) == structures(header) + structures(request)
    for section in (LATER, LATER_TWO):
        changed = everywhere(frame, places, section)
        assert read_request(changed, api_key, version) == wanted
        assert without_unknown_tags(changed, type(request)) == frame


def responses() -> Iterator[Any]:
    for fixture in json.loads(VECTORS.read_text())["fixtures"]:
        lowest, highest = known_versions(fixture["api_key"])
        if fixture["kind"] == "response" and lowest <= fixture["version"] <= highest:
            message_class = response_class(fixture["api_key"], fixture["version"])
            if message_class.__flexible__ and len(fixture["hex"]) < 1_200:
                yield pytest.param(message_class, fixture, id=f"{fixture['api']}-{fixture['name']}")


@pytest.mark.parametrize(("message_class", "fixture"), list(responses()))
def test_a_response(message_class: Any, fixture: dict[str, Any]) -> None:
    frame = struct.pack(">i", 7)
    frame += b"\0" if message_class.__header_schema__.__flexible__ else b""
    frame += bytes.fromhex(fixture["hex"])
    wanted = read_response(frame, fixture["api_key"], fixture["version"])
    assert write_response(wanted[1], correlation_id=7) == frame

    def is_the_same(changed: bytes) -> bool:
        try:
            return read_response(changed, fixture["api_key"], fixture["version"]) == wanted
        except Exception:
            return False

    places = sections(frame, is_the_same)
    assert places
    assert read_response(everywhere(frame, places, LATER), fixture["api_key"], fixture["version"]) == wanted


def test_in_the_structure_of_a_field_that_is_known() -> None:
    """The field becomes shorter with what is taken out of it."""
    fetch_class = response_class(1, 16)
    endpoints = next(field for field in dataclasses.fields(fetch_class) if field.name == "node_endpoints")
    endpoint_class = nested(fetch_class, "NodeEndpoint")
    endpoint = endpoint_class(node_id=1, host="h", port=9, rack=None)
    response = fetch_class(
        throttle_time=datetime.timedelta(0),
        error_code=ErrorCode.none,
        responses=(),
        node_endpoints=(endpoint,),
    )
    frame = write_response(response, correlation_id=7)
    written = io.BytesIO()
    entity_writer(endpoint_class)(written, endpoint)
    plain = written.getvalue()
    assert plain.endswith(b"\0")
    inner = b"\2" + plain[:-1] + LATER
    tag = uvarint(endpoints.metadata["tag"])
    later = frame.replace(tag + uvarint(1 + len(plain)) + b"\2" + plain, tag + uvarint(len(inner)) + inner)
    assert len(later) == len(frame) + len(LATER) - 1
    assert read_response(later, 1, 16) == (7, response)


def test_a_field_whose_size_is_not_that_of_its_value_is_refused() -> None:
    """kio goes on behind the value: what comes there would not have been looked at."""
    message_class = request_class(1, 15)
    fetch = next(read_request(f, 1, 15)[1] for f in frames() if f.startswith(struct.pack(">hh", 1, 15)))
    fetch = dataclasses.replace(fetch, cluster_id="cluster")
    frame = write_request(fetch, correlation_id=7, client_id=None)
    check_counts(frame, message_class)
    field = b"\0\x08\x08cluster"
    assert frame.endswith(b"\1" + field)
    for size in (7, 9):
        with pytest.raises(ValueError, match=r"its value has others|ends in the middle|claims"):
            check_counts(frame.replace(field, b"\0" + uvarint(size) + field[2:]), message_class)
