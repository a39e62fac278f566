"""A filter that says nothing of a record costs nothing that grows with the records."""

from __future__ import annotations

import tracemalloc

import pytest

from suiro.cli.topic_records import _Shown
from suiro.console.records import LogRecord

RECORDS = 3_000
FILTER = f"delay > 3 and carrier == '{'x' * 9_000}'"  # an error's message repeats the expression
MOST_BYTES = 5_000_000  # a message for each record would be 27 MB


def test_only_the_first_record_without_an_answer_is_kept(capsys: pytest.CaptureFixture[str]) -> None:
    records = (
        LogRecord(
            topic="flights", partition=0, offset=offset, timestamp=0, key=None, value=b'{"delay": 4, "carrier": 1}',
            headers=(),
        )
        for offset in range(7, 7 + RECORDS)
    )  # fmt: skip
    tracemalloc.start()
    try:
        _Shown(value_format="json", filter_=FILTER, as_json=True).print(records, None, None)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak < MOST_BYTES
    output = capsys.readouterr()
    assert output.out == ""
    assert f"could not be applied to {RECORDS} records, the first is flights-0 offset 7: " in output.err
