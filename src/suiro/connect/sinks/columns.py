"""Records as Arrow columns, for sinks that write tables: by the columns of the settings, or as they are.

| type | takes |
|---|---|
| `string`, `long`, `int`, `double`, `boolean`, `binary` | values of that kind; no text is read as a number |
| `timestamp` (UTC, microseconds) | ISO 8601 (without a zone: UTC), milliseconds since the epoch, a datetime |
| `date` | ISO 8601, a date |
| `decimal(p,s)` | a number, its text, a Decimal |
| `json` | anything, as its JSON text |

Beside them stand, unless `metadata = false`, `_topic`, `_partition`, `_offset`, `_timestamp`, `_key`. Without columns
in the settings there is one more, `value`: the text (of bytes, with escapes where it is no UTF-8). A null value is a
row whose columns are all null; `_key` tells of what.
"""

from __future__ import annotations

import datetime
import decimal
import json
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, TypeVar

import pyarrow as pa

from suiro.connect.connectors import SinkBatch, SinkRecord
from suiro.connect.values import plain_json
from suiro.foundation.settings import SettingError, read_settings

__all__ = ["FEW_LARGE_FILES", "Columns", "ColumnsSettings", "settings_and_columns"]

FEW_LARGE_FILES: Mapping[str, Any] = MappingProxyType({"linger_ms": 5_000, "max_records": 100_000})
"""Defaults of a sink whose batch is a file."""

_UTC = datetime.UTC
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_METADATA = [
    pa.field("_topic", pa.string()),
    pa.field("_partition", pa.int32()),
    pa.field("_offset", pa.int64()),
    pa.field("_timestamp", _TIMESTAMP),
    pa.field("_key", pa.string()),
]

Convert = Callable[[Any], Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnsSettings:
    columns: dict[str, str] = field(default_factory=dict)
    unknown_fields: str = "fail"  # or "ignore"
    metadata: bool = True

    def check(self) -> None:
        """What a kind of sink asks of its own settings; raises `SettingError`."""


S = TypeVar("S", bound=ColumnsSettings)


def settings_and_columns(kind: type[S], given: Mapping[str, Any]) -> tuple[S, Columns]:
    """How a sink that writes tables begins."""
    settings = read_settings(kind, given)
    settings.check()
    return settings, Columns(settings)


class Columns:
    """`schema`, and the table of a batch."""

    def __init__(self, settings: ColumnsSettings) -> None:
        if settings.unknown_fields not in ("fail", "ignore"):
            raise SettingError(
                "unknown_fields", f'expected "fail" or "ignore", got {settings.unknown_fields!r}'
            )
        self._settings = settings
        self._converters: dict[str, Convert] = {}
        fields: list[pa.Field] = []
        for name, kind in settings.columns.items():
            kind_of, convert = _type(f"columns.{name}", kind)
            fields.append(pa.field(name, kind_of))
            self._converters[name] = convert
        if not fields:
            fields.append(pa.field("value", pa.string()))
        metadata = _METADATA if settings.metadata else []
        self.schema = pa.schema([*fields, *metadata])

    def table(self, batch: SinkBatch) -> pa.Table:
        """Rejects the records that do not fit."""
        rows: list[dict[str, Any]] = []
        kept: list[SinkRecord] = []
        for record in batch.records:
            try:
                rows.append(self._row(record.value))
                kept.append(record)
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                batch.reject(record, str(error))
        columns: dict[str, list[Any]] = {
            name: [row.get(name) for row in rows] for name in (self._converters or ("value",))
        }
        if self._settings.metadata:
            columns |= _metadata(kept)
        return pa.table(
            {item.name: pa.array(columns[item.name], item.type) for item in self.schema}, self.schema
        )

    def _row(self, value: Any) -> dict[str, Any]:
        if value is None:
            return {}
        if not self._converters:
            return {"value": _text(value)}
        if not isinstance(value, dict):
            raise ValueError(f"the value is {type(value).__name__}, not an object")
        if self._settings.unknown_fields == "fail" and (unknown := value.keys() - self._converters.keys()):
            raise ValueError(f"columns has no {', '.join(sorted(unknown))}")
        row = {}
        for name, convert in self._converters.items():
            item = value.get(name)
            if item is not None:
                try:
                    row[name] = convert(item)
                except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                    said = self._settings.columns[name]
                    raise ValueError(f"field {name!r} is {item!r}, not of type {said} ({error})") from None
        return row


def _metadata(records: Iterable[SinkRecord]) -> dict[str, list[Any]]:
    found = list(records)
    return {
        "_topic": [record.topic for record in found],
        "_partition": [record.partition for record in found],
        "_offset": [record.offset for record in found],
        "_timestamp": [record.timestamp_ms * 1_000 for record in found],
        "_key": [None if record.key is None else _text(record.key) for record in found],
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, default=plain_json)


def _type(key: str, kind: str) -> tuple[pa.DataType, Convert]:
    found = _TYPES.get(kind)
    if found is not None:
        return found
    digits = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    if digits is None:
        raise SettingError(key, f"expected one of {', '.join(_TYPES)} or decimal(p,s), got {kind!r}")
    precision, scale = map(int, digits.groups())
    if not 1 <= precision <= 38 or scale > precision:
        raise SettingError(
            key, f"decimal has 1 to 38 digits, no more behind the point than in all; got {kind!r}"
        )
    unit = decimal.Decimal(1).scaleb(-scale)
    limit = decimal.Decimal(10) ** (precision - scale)

    def convert(value: Any) -> decimal.Decimal:
        exact = decimal.Context(prec=80, traps=[decimal.InvalidOperation])
        number = exact.create_decimal(str(value))
        if not number.is_finite() or abs(number) >= limit or exact.quantize(number, unit) != number:
            raise ValueError("too many digits")
        return exact.quantize(number, unit)

    return pa.decimal128(precision, scale), convert


def _of(*kinds: type) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) not in kinds:
            raise TypeError(f"it is {type(value).__name__}")
        return value

    return convert


def _whole(bits: int) -> Convert:
    limit = 1 << (bits - 1)

    def convert(value: Any) -> int:
        if type(value) is not int or not -limit <= value < limit:
            raise TypeError(f"it is no whole number of {bits} bits")
        return value

    return convert


def _double(value: Any) -> float:
    if type(value) not in (int, float, decimal.Decimal):
        raise TypeError(f"it is {type(value).__name__}")
    return float(value)


def _timestamp(value: Any) -> datetime.datetime:
    if isinstance(value, str):
        value = datetime.datetime.fromisoformat(value)
    elif type(value) is int:
        value = datetime.datetime.fromtimestamp(0, _UTC) + datetime.timedelta(milliseconds=value)
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"it is {type(value).__name__}")
    return value if value.tzinfo is not None else value.replace(tzinfo=_UTC)


def _date(value: Any) -> datetime.date:
    if isinstance(value, str):
        return datetime.date.fromisoformat(value)
    if type(value) is not datetime.date:
        raise TypeError(f"it is {type(value).__name__}")
    return value


def _binary(value: Any) -> bytes:
    if isinstance(value, str):
        return value.encode()
    if not isinstance(value, bytes):
        raise TypeError(f"it is {type(value).__name__}")
    return value


_TYPES: Mapping[str, tuple[pa.DataType, Convert]] = {
    "string": (pa.string(), _of(str)),
    "long": (pa.int64(), _whole(64)),
    "int": (pa.int32(), _whole(32)),
    "double": (pa.float64(), _double),
    "boolean": (pa.bool_(), _of(bool)),
    "binary": (pa.binary(), _binary),
    "timestamp": (_TIMESTAMP, _timestamp),
    "date": (pa.date32(), _date),
    "json": (pa.string(), _text),
}
