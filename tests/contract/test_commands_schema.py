"""`suiro schema` on a registry with a log, and on one in memory."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.commands import Done, suiro

from suiro.registry import InProcessRegistry, RegistryConfig

Call = Callable[..., Done]
SUBJECT = "flights-value"


def record(*fields: str, default: bool = False) -> str:
    made = [{"name": one, "type": "int"} | ({"default": 0} if default else {}) for one in fields]
    return json.dumps({"type": "record", "name": "Flight", "fields": made})


@pytest.fixture(scope="module")
def registry(log_under_test: LogUnderTest) -> Iterator[str]:
    topic = f"_schemas-{uuid4().hex[:8]}"
    config = RegistryConfig(bootstrap_servers=log_under_test.bootstrap_servers, port=0, topic=topic)
    with InProcessRegistry(config) as started:
        yield started.url


@pytest.fixture
def call(registry: str) -> Call:
    return lambda *arguments, **more: suiro("schema", *arguments, "--registry", registry, **more)


def test_a_subject_from_its_first_version_to_its_end(call: Call, unique: str, tmp_path: Path) -> None:
    first, second, broken = (tmp_path / name for name in ("1.avsc", "2.avsc", "3.avsc"))
    first.write_text(record("a"))
    second.write_text(record("a", "b", default=True))
    broken.write_text(record("c"))
    assert call("register", unique, str(first)).out.startswith(f"{unique} version 1 has id ")
    assert call("register", unique, str(first), "--json").json["version"] == 1
    assert call("check", unique, str(second)).code == 0
    assert call("register", unique, "-", stdin=second.read_text()).code == 0
    refused = call("check", unique, str(broken))
    assert refused.code == 1
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in refused.out
    assert call("register", unique, str(broken)).code == 1
    rows = {row[0]: row for row in call("list").rows}
    assert rows[unique][1] == "1,2"
    assert rows[unique][3:] == ["AVRO", "BACKWARD"]
    assert [unique] in call("list", "--names-only").rows
    assert json.loads(call("get", unique, "--version", "1").out) == json.loads(record("a"))
    lines = call("diff", unique).out.splitlines()
    assert lines[:2] == [f"--- {unique} version 1", f"+++ {unique} version 2"]
    assert any(line.startswith("+") and '"b"' in line for line in lines)
    assert call("diff", unique, "--from", "2", "--to", "2").out == ""
    assert call("delete", unique).code == 2
    assert call("delete", unique, "--version", "1", "--yes").out == f"deleted {unique}: versions 1\n"
    assert call("delete", unique, "--permanent", "--yes").code == 1  # version 2 is not deleted yet
    assert call("delete", unique, "--yes").code == 0
    assert call("delete", unique, "--permanent", "--yes").code == 0
    assert call("get", unique).code == 1


def test_a_schema_that_refers_to_another(call: Call, unique: str) -> None:
    assert call("register", f"{unique}-a", "-", stdin=record("a")).code == 0
    outer = json.dumps({"type": "record", "name": "Outer", "fields": [{"name": "f", "type": "Flight"}]})
    assert call("register", unique, "-", stdin=outer).code == 1
    done = call("register", unique, "-", "--reference", f"Flight={unique}-a:1", stdin=outer)
    assert done.code == 0
    wrong = call("register", unique, "-", "--reference", "Flight", stdin=outer)
    assert (wrong.code, "NAME=SUBJECT:VERSION" in wrong.err) == (1, True)


@pytest.mark.parametrize("subject", ["a/b", "ü", "a b?x=1#", "%2e%2e"])
def test_subjects_of_any_name(call: Call, subject: str) -> None:
    assert call("register", subject, "-", stdin='"string"').code == 0
    assert [subject] in [[one["subject"]] for one in call("list", "--json").json]
    assert subject in [row[0] for row in call("list").rows]
    assert call("delete", subject, "--yes").code == 0


def test_a_subject_that_a_terminal_would_obey(call: Call) -> None:
    done = call("register", "\x1b[31mred", "-", stdin='"string"')
    assert done.code == 1
    assert "\x1b" not in done.err


@pytest.mark.parametrize("text", ["", "{", '{"type": "no"}', "[" * 100_000])
def test_what_is_no_schema(call: Call, unique: str, text: str) -> None:
    done = call("register", unique, "-", stdin=text)
    assert done.code == 1
    assert done.err.count("\n") == 1


def test_a_registry_that_is_not_there() -> None:
    assert suiro("schema", "list").code == 1
    gone = suiro("schema", "list", "--registry", "http://127.0.0.1:1")
    assert (gone.code, "is the registry running?" in gone.err) == (1, True)
    assert suiro("schema", "list", "--registry", "nonsense").code == 1


def test_avro_is_written_and_read_by_the_registry(
    registry: str, log_under_test: LogUnderTest, new_topic: Callable[..., str]
) -> None:
    name = new_topic()
    address = ("--bootstrap-servers", log_under_test.bootstrap_servers, "--registry", registry)
    assert suiro("schema", "register", f"{name}-value", "-", "--registry", registry, stdin=record("a")).code == 0
    wrong = suiro("topic", "produce", name, "--value-format", "avro", *address, stdin='{"b": 1}\n')
    assert wrong.code == 1
    done = suiro("topic", "produce", name, "--value-format", "avro", *address, stdin='{"a": 1}\n{"a": 2}\n')
    assert done.code == 0, done.err
    found = suiro("topic", "records", name, "--value-format", "avro", "--filter", "a > 1", "--json", *address)
    assert json.loads(found.out)["value"] == {"a": 2}
