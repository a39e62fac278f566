"""Formats that bytes look like."""

from __future__ import annotations

import json
import struct
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from typing import Any

import pytest
from support.waiting import wait_until

from suiro import registry
from suiro.console import formats, registry_waits
from suiro.console.formats import decoder
from suiro.console.records import LogRecord
from suiro.console.web import Masks
from suiro.console.web.application import CALL_THREADS, STREAM_THREADS
from suiro.console.web.record_json import RecordView
from suiro.errors import RegistryRefusedError, RegistryUnavailableError, SchemaNotFoundError
from suiro.foundation.http import Role
from suiro.registry.codecs import wire


def test_longs_do_not_ask_the_registry_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    """Small ones begin as the schema id 0 does, and are the values of every count."""
    asked: list[int] = []

    def schema(number: int) -> Any:
        asked.append(number)
        raise SchemaNotFoundError(f"there is no schema {number}", 404, 40403)

    monkeypatch.setattr(registry, "registry_client", lambda url: SimpleNamespace(schema=schema))
    decode = decoder("auto", "http://127.0.0.1:1")
    assert [decode(struct.pack(">q", number)).value for number in range(100)] == list(range(100))
    assert asked == [0]
    for number in range(3 * formats.UNKNOWN_IDS_MAX):
        decode(struct.pack(">q", number << 24))
    assert len(asked) == 3 * formats.UNKNOWN_IDS_MAX


def test_a_registry_that_does_not_answer_is_not_waited_for(monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    """Each page took a minute, on one of the sixteen threads of all."""
    answering = threading.Event()
    asked: list[int] = []
    schema = registry.Schema('"long"')

    def answer(number: int) -> Any:
        asked.append(number)
        assert answering.wait(60)
        return schema

    monkeypatch.setattr(registry, "registry_client", lambda url: SimpleNamespace(schema=answer))
    monkeypatch.setattr(wire, "registry_client", lambda url: SimpleNamespace(schema=answer))
    monkeypatch.setattr(registry_waits, "WAIT_S", 0.01)
    data = struct.pack(">bI", 0, 7) + b"\x54"
    for _ in range(3):  # pages of different users
        found = decoder("auto", f"http://{unique}")(data)
        assert (found.format, found.value) == ("hex", data.hex())
        assert found.error == "the registry does not answer within 0.01 s"
        assert decoder("auto", f"http://{unique}")(struct.pack(">q", 3)).error is None
    assert asked == [7]
    answering.set()
    wait_until(lambda: decoder("auto", f"http://{unique}")(data).value == 42, what="the registry answers")


def test_each_thread_of_the_console_may_wait_for_another_schema(monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    """The seventeenth was told at once that the registry is slow, although it was not."""
    count = CALL_THREADS + STREAM_THREADS
    all_asked = threading.Barrier(count)

    def schema(number: int) -> Any:
        all_asked.wait(60)
        return registry.Schema('"long"')

    client = SimpleNamespace(schema=schema)
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    long = SimpleNamespace(schema=lambda number: registry.Schema('"long"'))
    monkeypatch.setattr(wire, "registry_client", lambda url: long)
    monkeypatch.setattr(registry_waits, "WAIT_S", 60)
    decode = decoder("auto", f"http://{unique}")
    with ThreadPoolExecutor(count) as threads:
        found = threads.map(lambda number: decode(struct.pack(">bI", 0, number) + b"\x54").error, range(count))
    assert set(found) == {None}


def test_a_schema_that_lacks_a_reference_spoils_its_own_records_only(
    monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """A search ended at the first of them."""
    schema = registry.Schema(
        '{"type": "record", "name": "R", "fields": [{"name": "a", "type": "other"}]}',
        "AVRO",
        (registry.Reference(name="other", subject="other", version=1),),
    )

    def version(subject: str, number: int, *, fresh: bool) -> Any:
        raise SchemaNotFoundError(f"{subject} has no version {number}", 404, 40402)

    client = SimpleNamespace(schema=lambda number: schema, version=version)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    found = decoder("avro", f"http://{unique}")(struct.pack(">bI", 0, 7) + b"\x02")
    assert found.error is not None
    assert "other has no version 1" in found.error


def test_a_reference_that_cannot_be_asked_for_is_asked_for_once(monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    """Each record of a page asked for it again, on the thread of the page: three seconds, or up to a minute."""
    asked: list[int] = []
    schema = registry.Schema('"R"', "AVRO", (registry.Reference(name="R", subject="r", version=1),))

    def version(subject: str, number: int, **more: Any) -> Any:
        asked.append(threading.get_ident())
        raise RegistryUnavailableError("the registry is away", 503, 0)

    client = SimpleNamespace(schema=lambda number: schema, version=version)
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    decode = decoder("auto", f"http://{unique}")
    data = struct.pack(">bI", 0, 7) + b"\x02"
    assert decode(data).error == "the registry is away"
    assert decode(data).value == data.hex()
    assert len(asked) == 1
    assert threading.get_ident() not in asked


def test_a_schema_that_the_registry_refuses_spoils_its_own_records_only(
    monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """For ten seconds the console did without the registry, for all users and topics."""
    asked: list[int] = []

    def schema(number: int) -> Any:
        asked.append(number)
        if number != 7:
            raise RegistryRefusedError("you may not read it", 403, 40301)
        return registry.Schema('"long"')

    client = SimpleNamespace(schema=schema)
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    refused = struct.pack(">bI", 0, 2**32 - 1) + b"\x54"
    for _ in range(3):
        assert "you may not read it" in str(decoder("auto", f"http://{unique}")(refused).error)
    assert asked == [2**32 - 1]
    as_long_as_a_long = refused + b"\x02\x02"
    assert decoder("auto", f"http://{unique}")(as_long_as_a_long).error is None
    exact = decoder("auto", f"http://{unique}", is_exact=True)(as_long_as_a_long)
    assert "you may not read it" in str(exact.error)
    asked.clear()
    assert decoder("auto", f"http://{unique}")(struct.pack(">bI", 0, 7) + b"\x54").value == 42


def test_a_thread_that_cannot_be_started_is_started_later(monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    """From then on the console waited for an answer to what it had not asked."""
    client = SimpleNamespace(schema=lambda number: registry.Schema('"long"'))
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    data = struct.pack(">bI", 0, 7) + b"\x54"

    def refuse(thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as full:
        full.setattr(threading.Thread, "start", refuse)
        with pytest.raises(RuntimeError):
            decoder("auto", f"http://{unique}")(data)
    assert decoder("auto", f"http://{unique}")(data).value == 42


def test_the_format_avro_does_not_wait_long_in_the_console(monkeypatch: pytest.MonkeyPatch, unique: str) -> None:
    answering = threading.Event()

    def schema(number: int) -> Any:
        assert answering.wait(60)
        return registry.Schema('"long"')

    client = SimpleNamespace(schema=schema)
    monkeypatch.setattr(registry, "registry_client", lambda url: client)
    monkeypatch.setattr(wire, "registry_client", lambda url: client)
    monkeypatch.setattr(registry_waits, "WAIT_S", 0.01)
    settings = SimpleNamespace(registry=f"http://{unique}", masks=Masks())
    call: Any = SimpleNamespace(console=SimpleNamespace(settings=settings), query={"value": "avro"}, role=Role.ADMIN)
    view = RecordView(call, "t")
    data = struct.pack(">bI", 0, 7) + b"\x54"
    one = LogRecord(topic="t", partition=0, offset=0, timestamp=0, key=None, value=data, headers=())
    with pytest.raises(RegistryUnavailableError, match=r"within 0\.01 s"):
        view.key_and_value(one)
    answering.set()
    monkeypatch.setattr(registry_waits, "PAUSE_MS", 0)
    assert view.key_and_value(one)[1].value == 42


def test_a_key_that_may_have_a_schema_stays_masked_while_the_registry_is_away(
    monkeypatch: pytest.MonkeyPatch, unique: str
) -> None:
    """Eight bytes were shown as a long, without an error."""

    def schema(number: int) -> Any:
        raise RegistryUnavailableError("the registry is away", 503, 0)

    monkeypatch.setattr(registry, "registry_client", lambda url: SimpleNamespace(schema=schema))
    settings = SimpleNamespace(registry=f"http://{unique}", masks=Masks.parse(["t=email"]))
    call: Any = SimpleNamespace(console=SimpleNamespace(settings=settings), query={}, role=Role.VIEWER)
    key = struct.pack(">bI", 0, 7) + b"\x04ab"
    one = LogRecord(topic="t", partition=0, offset=0, timestamp=0, key=key, value=None, headers=())
    assert RecordView(call, "t").key_and_value(one)[0].format == "masked"


def test_half_of_a_surrogate_pair_stays_as_it_was_written(unique: str) -> None:
    """One such record, which JSON allows, was an error in place of every page that it was on."""
    url = f"{registry.MOCK_SCHEME}{unique}"
    schema = {"type": "object", "properties": {"a": {"type": "string"}}}
    number = registry.registry_client(url).register("t-value", registry.Schema(json.dumps(schema), "JSON"))
    found = decoder("auto", url)(struct.pack(">bI", 0, number) + rb'{"a": "\ud800", "b": "\u00e9"}')
    assert (found.format, found.text) == ("json-schema", r'{"a": "\ud800", "b": "\u00e9"}')
