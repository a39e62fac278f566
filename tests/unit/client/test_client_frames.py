"""The frames written and read by hand are the ones kio writes and reads."""

from __future__ import annotations

import struct
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from kio.index import load_request_schema

from suiro.client.connection import build
from suiro.client.fetch import Fetched, _Response, _topics
from suiro.client.produce import Outgoing, _encode, _Request
from suiro.client.security import _Scram
from suiro.protocol.file_regions import question, take_question
from suiro.protocol.messages import (
    API_KEYS,
    ErrorCode,
    nested,
    read_request,
    response_class,
    write_response,
)

IDS = {"t": UUID(int=7), "u": UUID(int=8)}
RECORDS = bytes(range(200)) * 3


def fetch_response(version: int) -> Any:
    message = response_class(API_KEYS["fetch"], version)
    partition_class = nested(message, "PartitionData")
    fields: dict[str, Any] = {
        "partition_index": 3,
        "error_code": ErrorCode.none,
        "high_watermark": 100,
        "last_stable_offset": 90,
        "log_start_offset": 10,
        "aborted_transactions": (nested(message, "AbortedTransaction")(producer_id=7, first_offset=42),),
        "records": RECORDS,
    }
    partition = build(partition_class, **fields)
    name: dict[str, Any] = {"topic_id": IDS["t"]} if version >= 13 else {"topic": "t"}
    topic = nested(message, "FetchableTopicResponse")(**name, partitions=(partition,))
    return build(message, throttle_time=timedelta(), error_code=ErrorCode.none, session_id=0, responses=(topic,))


@pytest.mark.parametrize("version", range(4, 14))
def test_a_fetch_response(version: int) -> None:
    frame = write_response(fetch_response(version), correlation_id=1)
    fetched = dict(_Response(frame, version, {("t", 3): 42}, topic_ids=IDS).read())["t", 3]
    assert isinstance(fetched, Fetched)
    assert fetched.data == RECORDS
    assert fetched.aborted == ((7, 42),)
    assert fetched.high_watermark == 100
    assert fetched.last_stable_offset == 90
    assert fetched.log_start_offset == (10 if version >= 5 else -1)


def test_a_fetch_response_that_names_another_topic_id_is_refused() -> None:
    frame = write_response(fetch_response(13), correlation_id=1)
    with pytest.raises(ValueError, match=f"names the topic id {IDS['t']}, which was not asked for"):
        _Response(frame, 13, {("t", 3): 42}, topic_ids={"t": IDS["u"]}).read()


@pytest.mark.parametrize("version", [4, 7, 11, 12, 13])
def test_a_fetch_response_cut_anywhere_is_an_error_and_nothing_else(version: int) -> None:
    frame = write_response(fetch_response(version), correlation_id=1)
    for size in range(4, len(frame)):
        with pytest.raises((ValueError, struct.error)):
            _Response(frame[:size], version, {("t", 3): 42}, topic_ids=IDS).read()


@pytest.mark.parametrize("version", range(4, 14))
def test_a_fetch_request(version: int) -> None:
    flexible = version >= 12
    header = struct.pack(">hhih", 1, version, 5, 2) + b"me" + b"\0" * flexible
    limits = struct.pack(">iiiib", -1, 500, 1, 1000, 1)
    frame = header + limits + _topics({("t", 0): 5, ("t", 2): 7, ("u", 1): 9}, version, 2000, IDS)
    assert take_question(frame + b"\0" * flexible) is None
    if flexible:
        asked = frame + question()
        assert take_question(asked) == (frame + b"\0", True)
        of_another_kernel = asked[:-1] + bytes((asked[-1] ^ 1,))
        assert take_question(of_another_kernel) == (frame + b"\0", False)
        frame += b"\0"
    header, request = read_request(frame, 1, version)
    assert (header.correlation_id, header.client_id) == (5, "me")
    names = {topic_id: topic for topic, topic_id in IDS.items()}
    assert [
        (
            names[topic.topic_id] if version >= 13 else topic.topic,
            item.partition,
            item.fetch_offset,
            item.partition_max_bytes,
        )
        for topic in request.topics
        for item in topic.partitions
    ] == [("t", 0, 5, 2000), ("t", 2, 7, 2000), ("u", 1, 9, 2000)]
    assert (request.isolation_level, request.max_bytes) == (1, 1000)


@pytest.mark.parametrize("transactional_id", [None, "id"])
@pytest.mark.parametrize("version", range(7, 13))
def test_a_produce_request(version: int, transactional_id: str | None) -> None:
    targets = [("t", 0), ("t", 1), ("u", 5)]
    batches = {target: Outgoing(place, target, bytes(place * 100 + 61), True) for place, target in enumerate(targets)}
    parts = _encode(
        _Request(batches, version),
        correlation_id=9,
        client_id="me",
        transactional_id=transactional_id,
        acks=-1,
        timeout_ms=1234,
    )
    header, request = read_request(b"".join(parts), 0, version)
    assert isinstance(request, load_request_schema(0, version))
    assert (header.correlation_id, header.client_id) == (9, "me")
    assert (request.transactional_id, request.acks, request.timeout) == (
        transactional_id,
        -1,
        timedelta(milliseconds=1234),
    )
    assert [
        (topic.name, item.index, len(item.records)) for topic in request.topic_data for item in topic.partition_data
    ] == [("t", 0, 61), ("t", 1, 161), ("u", 5, 261)]


def test_scram_with_the_vector_of_rfc_7677() -> None:
    scram = _Scram("user", "pencil", hash_name="sha256")
    scram._nonce = "rOprNGfwEbeRWgbNEkqO"
    scram._first_bare = "n=user,r=rOprNGfwEbeRWgbNEkqO"
    server_first = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    assert scram.final(server_first) == (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    scram.check_final(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")
