"""Records as lines of JSON: what `suiro topic records --json` could not decode is not written as something else."""

from __future__ import annotations

import json
from collections.abc import Callable

import msgspec
import pytest

from suiro.cli.topic_records import _from_json, of_values, print_record
from suiro.console.formats import decoder, encoder
from suiro.console.records import LogRecord

Printed = Callable[[LogRecord, str], str]
TEXT = of_values("string", encoder("string"))


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
        _from_json(line, 1, TEXT, TEXT, None)
    assert stopped.value.code == 2
    assert f"line 1: its {what} could not be decoded" in capsys.readouterr().err


def test_what_is_printed_in_hex_on_purpose_is_written(printed: Printed) -> None:
    line = printed(record(b"\xff", b"\xff\xfe"), "hex")
    write = of_values("hex", encoder("hex"))
    made = _from_json(line, 1, write, write, None)
    assert (made.key, made.value) == (b"\xff", b"\xff\xfe")


def test_headers_are_written_as_they_were(printed: Printed) -> None:
    headers = (("text", "caf\u00e9".encode()), ("bytes", b"\x00\xff"), ("like", b"\\xff"), ("none", None))
    made = _from_json(
        printed(msgspec.structs.replace(record(b"k", b"v"), headers=headers), "string"),
        1,
        TEXT,
        TEXT,
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
        ('{"value": "\udcff"}', "surrogates not allowed"),  # of a standard input that is not UTF-8
        ('{"headers": [["a", {"hex": "zz"}]]}', "non-hexadecimal number"),
    ],
)
def test_what_no_record_can_have_is_a_wrong_line(line: str, said: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        _from_json(line, 7, TEXT, TEXT, None)
    assert stopped.value.code == 2
    told = capsys.readouterr().err
    assert told.startswith("suiro: line 7 is not a record in JSON: ")
    assert said in told


def test_a_null_of_json_does_not_become_a_tombstone(printed: Printed, capsys: pytest.CaptureFixture[str]) -> None:
    write = of_values("json", encoder("json"))
    with pytest.raises(SystemExit):
        _from_json(printed(record(b'"1"', b"null"), "json"), 1, write, write, None)
    assert "line 1: its value could not be decoded" in capsys.readouterr().err
    tombstone = msgspec.structs.replace(record(b'"1"', b""), value=None)
    assert _from_json(printed(tombstone, "json"), 1, write, write, None).value is None


@pytest.mark.parametrize(
    "value",
    [
        b"0.12345678901234567890123",
        b"90071992547409930001",
        b"1e400",
        b"-0",
        b"1.10",
        b'{"price":1.10,"deep":[{"big":1e-400}]}',
        b'{"a":1,"a":2}',
        b"NaN",
    ],
)
def test_a_number_keeps_all_digits(value: bytes, printed: Printed) -> None:
    """They were those of a double; 1e400 became Infinity, which is no JSON."""
    write = of_values("json", encoder("json"))
    line = printed(record(value, value), "json")
    assert f'"value": {value.decode()},' in line
    made = _from_json(line, 1, write, write, None)
    assert (made.key, made.value) == (value, value)


def test_json_is_on_one_line_of_ascii(printed: Printed) -> None:
    value = '{\n\t"name":\r\n"caf\u00e9 \U0001f600 \x7f\u2028"}'
    line = printed(record(b"1", value.encode()), "json")
    assert line.isascii()
    assert line[:-1].isprintable()
    assert json.loads(line)["value"] == json.loads(value)


def test_a_file_that_lacks_records_is_not_copied_as_if_it_had_all(capsys: pytest.CaptureFixture[str]) -> None:
    """The console ends such a file with a line that says so."""
    with pytest.raises(SystemExit) as stopped:
        _from_json('{"unclear": 3, "first_unclear": "t-0 offset 7: why"}', 9, TEXT, TEXT, None)
    assert stopped.value.code == 2
    assert "line 9 is not a record" in capsys.readouterr().err
