"""Records as lines of JSON: what `suiro topic records --json` could not decode is not written as something else."""

from __future__ import annotations

from collections.abc import Callable

import msgspec
import pytest

from suiro.cli.topic_records import _from_json, of_values, print_record
from suiro.console.formats import decoder, encoder
from suiro.console.records import LogRecord

Printed = Callable[[LogRecord, str], str]


def record(key: bytes, value: bytes) -> LogRecord:
    return LogRecord(topic="t", partition=0, offset=3, timestamp=5, key=key, value=value, headers=())


@pytest.fixture
def printed(capsys: pytest.CaptureFixture[str]) -> Printed:
    def line(one: LogRecord, name: str) -> str:
        print_record(one, decoder(name), decoder(name), as_json=True)
        return capsys.readouterr().out

    return line


@pytest.mark.parametrize(("key", "value", "what"), [(b"k", b"\xff\xfe", "value"), (b"\xff\xfe", b"v", "key")])
def test_what_was_printed_in_hex_for_want_of_better_is_refused(
    key: bytes, value: bytes, what: str, printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    line = printed(record(key, value), "string")
    with pytest.raises(SystemExit) as stopped:
        _from_json(line, 1, encoder("string"), encoder("string"), None)
    assert stopped.value.code == 2
    assert f"line 1: its {what} could not be decoded" in capsys.readouterr().err


def test_what_is_printed_in_hex_on_purpose_is_written(printed: Printed) -> None:
    line = printed(record(b"\xff", b"\xff\xfe"), "hex")
    made = _from_json(line, 1, encoder("hex"), encoder("hex"), None)
    assert (made.key, made.value) == (b"\xff", b"\xff\xfe")


def test_headers_are_written_as_they_were(printed: Printed) -> None:
    headers = (("text", "caf\u00e9".encode()), ("bytes", b"\x00\xff"), ("like", b"\\xff"), ("none", None))
    made = _from_json(
        printed(msgspec.structs.replace(record(b"k", b"v"), headers=headers), "string"),
        1,
        encoder("string"),
        encoder("string"),
        None,
    )
    assert made.headers == headers


@pytest.mark.parametrize("value", [b'"5"', b'"true"', b'"null"', b'"a text"', b"5", b'{"a": "5"}', b"[1.5]"])
def test_a_text_in_json_stays_a_text(value: bytes, printed: Printed) -> None:
    write = of_values("json", encoder("json"))
    made = _from_json(printed(record(b'"1"', value), "json"), 1, write, write, None)
    assert (made.key, made.value) == (b'"1"', value)


@pytest.mark.parametrize(
    ("line", "said"),
    [
        ('{"timestamp": 99999999999999999999}', "timestamp is 99999999999999999999"),
        ('{"timestamp": 1e300}', "timestamp is 1e+300"),
        ('{"partition": "0"}', "partition is '0'"),
        ('{"partition": 1.5}', "partition is 1.5"),
        ('{"partition": true}', "partition is True"),
        ('{"headers": {"ab": 1}}', "headers are a list of pairs"),
        ('{"headers": "id"}', "headers are a list of pairs"),
        ('{"headers": ["id"]}', "headers are a list of pairs"),
        ('{"headers": [["a", {"b": 1}]]}', "a header has the value {'b': 1}"),
        ('{"headers": [[1, "x"]]}', "a header has the name 1"),
        ('{"headers": [["\\ud800", "x"]]}', "surrogates not allowed"),
        ('{"headers": [["a", {"hex": "f"}]]}', "non-hexadecimal number"),
    ],
)
def test_what_no_record_can_have_is_a_wrong_line(
    line: str, said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as stopped:
        _from_json(line, 7, encoder("string"), encoder("string"), None)
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("suiro: line 7 is not a record in JSON: ")
    assert said in told


def test_a_null_of_json_does_not_become_a_tombstone(
    printed: Printed, capsys: pytest.CaptureFixture[str]
) -> None:
    write = of_values("json", encoder("json"))
    with pytest.raises(SystemExit):
        _from_json(printed(record(b'"1"', b"null"), "json"), 1, write, write, None)
    assert "line 1: its value could not be decoded" in capsys.readouterr().err
    tombstone = msgspec.structs.replace(record(b'"1"', b""), value=None)
    assert _from_json(printed(tombstone, "json"), 1, write, write, None).value is None
