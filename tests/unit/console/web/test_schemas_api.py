"""Schemas over the console's API: a registry in memory with all the rules of the real one, and one that is silent."""

from __future__ import annotations

import json
import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest
from support.console_api import Api, console_api, users_file
from support.registry import MemoryStorage
from support.waiting import wait_until

from suiro.clock import ManualClock
from suiro.console import schemas as functions
from suiro.console.web import ConsoleSettings
from suiro.console.web.api import schemas as endpoints
from suiro.console.web.console import Console
from suiro.foundation.http import HttpServer, Users, listen_on
from suiro.registry import RegisteredSchema, Schema, registry_client
from suiro.registry.app import RegistryApp


def record(*fields: str, default: bool = False) -> str:
    made = [{"name": one, "type": "int"} | ({"default": 0} if default else {}) for one in fields]
    return json.dumps({"type": "record", "name": "Flight", "fields": made})


@pytest.fixture
def registry() -> str:
    return f"mock://{uuid4().hex}"


@pytest.fixture
def api(registry: str, tmp_path: Path) -> Iterator[Api]:
    with console_api(tmp_path, registry=registry) as made:
        yield made


def test_a_subject_from_its_first_version_on(api: Api) -> None:
    first, second = record("a"), record("a", "b", default=True)
    path = "/schemas/flights-value"
    assert api.get("/schemas") == {"subjects": [], "complete": True}
    made = api.post(f"{path}/register", {"schema": first}, role="operator")
    assert made == {"id": made["id"], "version": 1}
    assert api.post(f"{path}/register", {"schema": first}) == made
    assert api.post(f"{path}/check", {"schema": second}, role="viewer") == {
        "compatible": True,
        "reasons": [],
    }
    api.post(f"{path}/register", {"schema": second, "type": "AVRO"})
    assert [one["subject"] for one in api.get("/schemas")["subjects"]] == ["flights-value"]
    page = api.get(path)
    assert (page["compatibility"], page["earlier"]) == ("BACKWARD", 0)
    assert [(one["version"], one["type"], one["references"]) for one in page["versions"]] == [
        (2, "AVRO", []),
        (1, "AVRO", []),
    ]
    assert json.loads(page["versions"][1]["text"]) == json.loads(first)
    assert "\n" in page["versions"][1]["text"]
    lines = api.get(f"{path}/diff", old=1, new=2)["lines"]
    assert lines[0] == "--- flights-value version 1"
    assert any(line.startswith("+") and '"b"' in line for line in lines)
    assert api.get(f"{path}/diff", old=2, new=2)["lines"] == []


def test_topics_are_found_by_the_subjects_name(api: Api) -> None:
    api.console.model.topics = {"flights": None, "a-value": None}  # type: ignore[dict-item]
    for subject, topics in (
        ("flights-value", ["flights"]),
        ("flights-key", ["flights"]),
        (":.ctx:flights-key", ["flights"]),
        ("a-value-value", ["a-value"]),
        ("other-value", []),
        ("flights", []),
    ):
        api.post(f"/schemas/{subject.replace(':', '%3A')}/register", {"schema": record("a")})
        assert api.get(f"/schemas/{subject.replace(':', '%3A')}")["topics"] == topics, subject


def test_a_subject_may_have_any_name(api: Api) -> None:
    quoted = "a%2Fb%3Fc%20%C3%A9"
    api.post(f"/schemas/{quoted}/register", {"schema": record("a")})
    assert api.get(f"/schemas/{quoted}")["subject"] == "a/b?c é"
    assert [one["subject"] for one in api.get("/schemas")["subjects"]] == ["a/b?c é"]


def test_references(api: Api) -> None:
    api.post("/schemas/inner/register", {"schema": record("a")})
    outer = {"type": "record", "name": "Outer", "fields": [{"name": "one", "type": "Flight"}]}
    reference = {"name": "Flight", "subject": "inner", "version": 1}
    body = {"schema": json.dumps(outer), "references": [reference]}
    api.post("/schemas/outer/register", body)
    assert api.get("/schemas/outer")["versions"][0]["references"] == [reference]


def test_changes_that_are_refused_register_nothing(api: Api) -> None:
    path = "/schemas/flights-value"
    assert "operator" in api.post(f"{path}/register", {"schema": record("a")}, role="viewer", status=403)
    for body, said in (
        ({}, "schema"),
        ({"schema": 7}, "$.schema"),
        ({"schema": "  "}, '"schema" is empty'),
        ({"schema": record("a"), "type": "XML"}, "$.type"),
        ({"schema": record("a"), "typ": "AVRO"}, "typ"),
        ({"schema": record("a"), "references": [{"name": "x"}]}, "$.references[0]"),
        ({"schema": '{"type": "recor'}, "schema"),
        ({"schema": record("a"), "references": [{"name": "x", "subject": "no", "version": 1}]}, "no"),
    ):
        assert said in api.post(f"{path}/register", body, status=400), body
    assert api.get("/schemas")["subjects"] == []
    api.post(f"{path}/register", {"schema": record("a")})
    broken = {"schema": record("b")}
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in api.post(f"{path}/register", broken, status=409)
    checked = api.post(f"{path}/check", broken, role="viewer")
    assert not checked["compatible"]
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(checked["reasons"])
    assert [one["version"] for one in api.get(path)["versions"]] == [1]


def test_questions_that_are_wrong(api: Api) -> None:
    api.post("/schemas/s/register", {"schema": record("a")})
    assert "no" in api.get("/schemas/no", status=404)
    assert "old=VERSION and new=VERSION" in api.get("/schemas/s/diff", old=1, status=400)
    assert "versions count from 1" in api.get("/schemas/s/diff", old=0, new=1, status=400)
    assert "'-1'" in api.get("/schemas/s/diff", old=-1, new=1, status=400)
    assert "2147483647" in api.get("/schemas/s/diff", old=1 << 31, new=1, status=400)
    api.get("/schemas/s/diff", old=1, new=9, status=404)


def test_what_was_deleted_elsewhere_is_registered_again(api: Api, registry: str) -> None:
    body = {"schema": record("a")}
    api.post("/schemas/s/register", body)
    registry_client(registry).delete_subject("s")
    assert api.get("/schemas")["subjects"] == []
    assert api.post("/schemas/s/register", body)["version"] == 2


def test_a_version_whose_number_is_used_again_is_shown_as_it_is_now(api: Api, registry: str) -> None:
    """It was shown as it had been before it was deleted permanently."""
    api.post("/schemas/s/register", {"schema": record("a")})
    assert '"a"' in api.get("/schemas/s")["versions"][0]["text"]
    client = registry_client(registry)
    client.delete_subject("s")
    client.delete_subject("s", permanent=True)
    assert api.post("/schemas/s/register", {"schema": record("b")})["version"] == 1
    assert '"b"' in api.get("/schemas/s")["versions"][0]["text"]


def test_without_a_registry(tmp_path: Path) -> None:
    with console_api(tmp_path) as api:
        for path in ("/schemas", "/schemas/s"):
            assert "--registry" in api.get(path, status=400)


def test_a_registry_with_users(tmp_path: Path) -> None:
    folder = tmp_path / "registry"
    folder.mkdir()
    storage: Any = MemoryStorage()
    server = HttpServer(RegistryApp(storage, Users(users_file(folder))), listen_on("127.0.0.1", 0, name="r"), name="r")
    address = server.url.removeprefix("http://")
    body = {"schema": record("a")}
    try:
        with console_api(tmp_path, registry=server.url) as api:
            api.get("/schemas", status=500)  # the console has no login there, whoever asks it
        with console_api(tmp_path, registry=f"http://viewer:secret@{address}") as api:
            assert api.get("/schemas")["subjects"] == []
            assert "for the role operator" in api.post("/schemas/s/register", body, status=403)
        with console_api(tmp_path, registry=f"http://operator:secret@{address}") as api:
            assert api.post("/schemas/s/register", body)["version"] == 1
    finally:
        server.stop()


# -- many, large, slow ---------------------------------------------------------------------------------------


class Counted:
    """A registry's client that notes what it is asked."""

    def __init__(self, url: str) -> None:
        self._client = registry_client(url)
        self.asked: list[str] = []

    def __getattr__(self, name: str) -> Any:
        def call(*arguments: Any, **more: Any) -> Any:
            self.asked.append(name)
            return getattr(self._client, name)(*arguments, **more)

        return call


def test_a_list_of_many_is_known_bit_by_bit(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(endpoints, "ROWS_ASKED_MAX", 4)
    counted = Counted(registry)
    for number in range(10):
        registry_client(registry).register(f"s{number}", Schema('"string"'))
    clock = ManualClock()
    console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1"), clock=clock)
    for known in (4, 8, 10):
        found = endpoints._listed(console, counted)  # type: ignore[arg-type]
        assert [one.subject for one in found.subjects] == [f"s{number}" for number in range(10)]
        assert sum(one.latest_id is not None for one in found.subjects) == known
        assert found.complete == (known == 10)
    counted.asked.clear()
    endpoints._listed(console, counted)  # type: ignore[arg-type]
    assert counted.asked == ["subjects"]
    clock.advance(endpoints.ROW_KEPT_MS)
    endpoints._listed(console, counted)  # type: ignore[arg-type]
    assert counted.asked.count("latest") == 4


def test_versions_are_shown_in_bounds(registry: str, monkeypatch: pytest.MonkeyPatch) -> None:
    client = registry_client(registry)
    client.set_compatibility("NONE")
    for number in range(6):
        client.register("s", Schema(record(f"f{number}")))
    monkeypatch.setattr(functions, "VERSIONS_MAX", 4)
    found = functions.describe_subject(client, "s")
    assert ([one.version for one in found.versions], found.earlier) == ([6, 5, 4, 3], 2)
    monkeypatch.setattr(functions, "TEXT_CHARS_MAX", 1)
    found = functions.describe_subject(client, "s")
    assert ([one.version for one in found.versions], found.earlier) == ([6], 5)


def test_versions_are_not_fetched_one_by_one(registry: str) -> None:
    """A hundred versions took a hundred times as long as one."""
    together = threading.Barrier(functions.VERSIONS_AT_ONCE)

    def version(subject: str, number: int, *, fresh: bool) -> RegisteredSchema:
        together.wait(60)
        return RegisteredSchema(subject=subject, id=number, version=number, schema=Schema('"string"'))

    numbers = list(range(1, 2 * functions.VERSIONS_AT_ONCE + 1))
    client: Any = SimpleNamespace(
        versions=lambda subject: numbers, version=version, compatibility=lambda subject: "NONE"
    )
    found = functions.describe_subject(client, "s")
    assert [one.version for one in found.versions] == numbers[::-1]


def test_numbers_in_a_schema_stay_as_they_were_written() -> None:
    text = '{"const": [123456789012345678901234567890.10, 1E400, 9007199254740993]}'
    assert "".join(functions.pretty(Schema(text, "JSON")).split()) == "".join(text.split())
    assert functions.pretty(Schema("{no json", "JSON")) == "{no json"
    assert functions.pretty(Schema("[" * 100_000, "JSON")) == "[" * 100_000


def protobuf(version: int, lines: list[str]) -> RegisteredSchema:
    return RegisteredSchema(id=version, subject="s", version=version, schema=Schema("\n".join(lines), "PROTOBUF"))


def test_a_diff_of_what_differs_everywhere_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    def matched(*arguments: Any, **more: Any) -> Any:
        raise AssertionError("these are too many lines to match")

    same = ["same"] * 5
    old = protobuf(1, [*same, *(f"{n % 90}" for n in range(2_000)), *same])
    new = protobuf(2, [*same, *(f"{n % 89}x" for n in range(2_000)), *same])
    monkeypatch.setattr(functions.difflib, "unified_diff", matched)
    lines = functions.diff(old, new)
    assert lines[2] == "@@ -6,2000 +6,2000 @@"
    assert (lines[3], lines[2_003], len(lines)) == ("-0", "+0x", 4_003)


def test_a_diff_names_the_lines_of_the_whole_text() -> None:
    text = [f"line {number}" for number in range(100)]
    changed = [*text[:50], "new", *text[51:]]
    assert functions.diff(protobuf(1, text), protobuf(2, changed)) == (
        "--- s version 1", "+++ s version 2", "@@ -48,7 +48,7 @@",
        " line 47", " line 48", " line 49", "-line 50", "+new", " line 51", " line 52", " line 53",
    )  # fmt: skip


def test_a_registry_that_does_not_answer_holds_up_nobody_else(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with console_api(tmp_path, registry=url) as api, ThreadPoolExecutor(20) as threads:
            places = endpoints._turns._places
            for _ in range(endpoints.AT_ONCE + endpoints.WAITING):
                threads.submit(api.get, "/schemas/s", status=503)
            wait_until(lambda: places._value == 0, what="as many ask as may")
            assert "try again" in api.get("/schemas", status=503)
            assert api.get("/me")["role"] == "viewer"
            silent.close()
            threads.shutdown(wait=False, cancel_futures=True)
            api.console.registry().close()


def test_a_registry_that_is_not_there(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        url = f"http://127.0.0.1:{taken.getsockname()[1]}"
    with console_api(tmp_path, registry=url) as api:
        assert "is the registry running?" in api.get("/schemas", status=503)


def test_a_list_looks_at_each_name_a_few_times(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not at all names for each."""
    looked = 0

    class Name(str):
        def __hash__(self) -> int:
            nonlocal looked
            looked += 1
            return super().__hash__()

    names = [Name(f"s-{number}") for number in range(200)]
    monkeypatch.setattr(endpoints, "_row", lambda registry, name: endpoints.SubjectRow(subject=name))
    console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1"), clock=ManualClock())
    registry: Any = SimpleNamespace(subjects=lambda: names)
    assert endpoints._listed(console, registry).complete
    looked = 0
    assert len(endpoints._listed(console, registry).subjects) == 200
    assert looked < 20 * len(names)
