"""Records as a file: JSON lines, or CSV."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from suiro.console.formats import Decoded, Filter, record_fields
from suiro.console.records import LogRecord
from suiro.console.text import iso_time
from suiro.console.web.record_json import RecordView

Found = tuple[LogRecord, Decoded, Decoded]
"""A record, its key and its value, as the user may see them."""


class JsonLines:
    """`head` begins the file, `lines` are those of some records. `left_out` ends a file that lacks records of which the
    filter could not tell whether they belong to it."""

    media_type = "application/x-ndjson"
    head = b""

    def lines(self, found: Iterable[Found], view: RecordView) -> bytes:
        lines = []
        for record, key, value in found:
            fields = record_fields(record, key, value, headers=view.headers(record), exact=_raw)
            lines.append(msgspec.json.encode(fields) + b"\n")
        return b"".join(lines)

    def left_out(self, wanted: Filter) -> bytes:
        return msgspec.json.encode(wanted.left_out) + b"\n"


class Csv:
    media_type = "text/csv; charset=utf-8"
    head = b"partition,offset,time,key,value,headers\r\n"

    def lines(self, found: Iterable[Found], view: RecordView) -> bytes:
        rows = []
        for record, key, value in found:
            headers = "; ".join(
                f"{name}={(data or b'').decode(errors='backslashreplace')}" for name, data in view.headers(record)
            )
            texts = map(_no_formula, (key.text, value.text, headers))
            rows.append((record.partition, record.offset, iso_time(record.timestamp), *texts))
        return _csv(rows)

    def left_out(self, wanted: Filter) -> bytes:
        return _csv([(f"# {wanted.said()}",)])


FILE_FORMATS: dict[str, JsonLines | Csv] = {"jsonl": JsonLines(), "csv": Csv()}


def _raw(text: str) -> msgspec.Raw:
    return msgspec.Raw(text.encode())


def _csv(rows: Sequence[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    csv.writer(text).writerows(rows)
    return text.getvalue().encode()


def _no_formula(text: str) -> str:
    """Prevents spreadsheets from running the text as a formula, by an apostrophe."""
    return f"'{text}" if text[:1] in ("=", "+", "-", "@", "\t", "\r") and not _is_number(text) else text


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
