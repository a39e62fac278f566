"""Records as lines of JSON: what `suiro topic records --json` could not decode is not written as something else."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from suiro.cli.topic_records import _from_json, print_record
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


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ('{"value": "v", "headers": {"id": "7"}}', "headers"),
        ('{"value": "v", "headers": "id"}', "headers"),
        ('{"value": "v", "headers": ["id"]}', "headers"),
        ('{"value": "v", "partition": "3"}', "partition"),
    ],
)
def test_a_line_of_another_shape_is_refused(line: str, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Of an object of headers, a name of two letters was written as a name and its value."""
    with pytest.raises(SystemExit) as stopped:
        _from_json(line, 1, encoder("string"), encoder("string"), None)
    assert stopped.value.code == 2
    assert f"line 1 is no record in JSON: its {what}" in capsys.readouterr().err
