"""Records as Arrow columns, for sinks that write tables: by the columns of the settings, or as they are.

| type | takes |
|---|---|
| `string`, `long`, `int`, `double`, `boolean`, `binary` | values of that kind; no text is read as a number |
| `timestamp` (UTC, microseconds) | ISO 8601 (without a zone: UTC), ms since the epoch, a datetime, Protobuf's |
| `date` | ISO 8601, a date |
| `decimal(p,s)` | a number, its text, a Decimal |
| `json` | anything, as its JSON text |

A row also has `_topic`, `_partition`, `_offset`, `_timestamp` and `_key`, unless `metadata = false`. Without columns in
the settings there is one column `value`, the text of the value; bytes that are not UTF-8 are escaped. A null value is
a row whose columns are all null; `_key` identifies it.

With `unknown_fields = "add"`, a field without a column becomes one. Its type is that of the table's column of the same
name, else that of the schema which the record names, else that of its first value that is not null.
"""

from __future__ import annotations

import datetime
import decimal
import re
import uuid
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, ClassVar
from urllib.parse import urlsplit

import pyarrow as pa

from suiro.connect.connectors import SinkBatch, SinkRecord
from suiro.connect.values import json_text, plain_json
from suiro.errors import UsageError
from suiro.foundation.settings import SettingError, require_one_of

FEW_LARGE_FILES: Mapping[str, Any] = MappingProxyType({"linger_ms": 5_000, "max_records": 100_000})
"""Defaults of a sink whose batch is a file."""
MAX_COLUMNS = 1_000
"""The limit of columns, with added ones: a writer to the topic could add any number."""

MAX_FOLDER_BYTES = 255
"""The limit of a folder's name on a disk, NAME=VALUE, for the rows of one partition of a table."""
_BUCKETS = ("s3", "s3a", "gs", "gcs")
"""The schemes of stores without folders."""

_NO_FIELDS: Mapping[str, str] = MappingProxyType({})
_UTC = datetime.UTC
_TIMESTAMP = pa.timestamp("us", tz="UTC")
_EARLIEST_MS, _LATEST_MS = -62_135_596_800_000, 253_402_300_799_999
"""The range of the calendars of tables."""
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
    unknown_fields: str = "fail"  # or "ignore", or "add" where `MAY_ADD_FIELDS`
    metadata: bool = True

    MAY_ADD_FIELDS: ClassVar[bool] = False
    """Whether the kind of table can get new columns later."""


class Columns:
    """The columns of a table: their schema, and the conversion of records to rows."""

    def __init__(self, settings: ColumnsSettings) -> None:
        may_add = ("add",) if settings.MAY_ADD_FIELDS else ()
        require_one_of("unknown_fields", settings.unknown_fields, ("fail", "ignore", *may_add))
        self._settings = settings
        self.may_add = settings.unknown_fields == "add"
        self._folders: tuple[str, ...] = ()  # columns whose values name folders
        self._folder_of: Callable[[str, str], str] = "{}={}".format
        self._types = dict(settings.columns)
        self._of_table: dict[str, str] = {}
        self._last_fields = _NO_FIELDS
        self._converters: dict[str, Convert] = {}
        fields: list[pa.Field] = []
        for name, kind in settings.columns.items():
            kind_of, convert = _type(f"columns.{name}", kind)
            fields.append(pa.field(name, kind_of))
            self._converters[name] = convert
        if not fields and not self.may_add:
            fields.append(pa.field("value", pa.string()))
        if not fields and not settings.metadata:
            raise SettingError("columns", "give at least one, or leave metadata on: a table needs a column")
        metadata = _METADATA if settings.metadata else []
        for name in settings.columns.keys() & {item.name for item in metadata}:
            raise SettingError(f"columns.{name}", "is a column of the metadata; rename it, or set metadata = false")
        self.schema = pa.schema([*fields, *metadata])

    def adopt(self, schema: pa.Schema, table: str) -> None:
        """Takes the types of added columns from the table, which may have them from an earlier run. Raises `UsageError`
        if the table lacks a column that cannot be added; `table` names it there."""
        missing = [name for name in self.schema.names if name not in schema.names]
        if missing and not self.may_add:
            raise UsageError(
                f"{table} has no column {', '.join(missing)}; add it to the table, remove it from columns and "
                'metadata, or set unknown_fields = "add"'
            )
        self._of_table = {item.name: _NAMES[found] for item in schema if (found := _plain(item.type)) in _NAMES}

    def partitioned_by(self, names: Iterable[str], place: str, folder_of: Callable[[str, str], str]) -> None:
        """Sets the columns whose values name folders of the table at `place`. `folder_of`: returns the name of the
        folder for a column and its value."""
        self._folders = () if urlsplit(place).scheme in _BUCKETS else tuple(names)
        self._folder_of = folder_of

    def table(self, batch: SinkBatch) -> pa.Table:
        """Returns the batch as a table. Rejects records that do not fit. `schema` may get more columns."""
        rows: list[dict[str, Any]] = []
        kept: list[SinkRecord] = []
        for record in batch.records:
            try:
                if self._settings.metadata and not _EARLIEST_MS <= record.timestamp_ms <= _LATEST_MS:
                    raise ValueError(
                        f"its timestamp is {record.timestamp_ms}, which is no milliseconds since the epoch of the "
                        "years 1 to 9999"
                    )
                rows.append(self._row(record.value, record.fields or _NO_FIELDS))
                kept.append(record)
            except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                batch.reject(record, str(error))
        names = self._converters if self._converters or self.may_add else ("value",)
        columns: dict[str, list[Any]] = {name: [row.get(name) for row in rows] for name in names}
        if self._settings.metadata:
            columns |= _metadata(kept)
        return pa.table({item.name: pa.array(columns[item.name], item.type) for item in self.schema}, self.schema)

    def _row(self, value: Any, fields: Mapping[str, str]) -> dict[str, Any]:
        if value is None:
            return {}
        if not self._converters and not self.may_add:
            return {"value": _text(value)}
        if not isinstance(value, dict):
            raise ValueError(f"the value is {type(value).__name__}, not an object")
        if self._settings.unknown_fields == "fail" and (unknown := value.keys() - self._converters.keys()):
            raise ValueError(f"columns has no {', '.join(sorted(unknown))}")
        added = self._added(value, fields) if self.may_add else {}
        types = self._types | added if added else self._types
        row = {}
        for name, type_ in types.items():
            item = value.get(name)
            if item is not None:
                convert = self._converters.get(name) or _type(name, type_)[1]
                try:
                    row[name] = convert(item)
                except (ValueError, TypeError, ArithmeticError, RecursionError) as error:
                    raise ValueError(f"field {name!r} is {item!r}, not of type {type_} ({error})") from None
        for name in self._folders:
            text = row.get(name)
            if isinstance(text, str) and len(self._folder_of(name, text).encode()) > MAX_FOLDER_BYTES:
                raise ValueError(f"field {name!r} is too long for the name of a partition")
        for name, type_ in added.items():  # only now: a record that is rejected adds nothing
            kind, self._converters[name] = _type(name, type_)
            self._types[name] = type_
            self.schema = self.schema.append(pa.field(name, kind))
        self._last_fields = fields
        return row

    def _added(self, value: Mapping[str, Any], fields: Mapping[str, str]) -> dict[str, str]:
        """Returns the new columns of a record, with their types. A field of the schema becomes a column even if it is
        null. Raises `ValueError` for a field that cannot be a column."""
        added: dict[str, str] = {}
        items = value if fields is self._last_fields else {**dict.fromkeys(fields), **value}
        for name, item in items.items():
            if name in self._types or (item is None and name not in fields):
                continue
            if not _NAME.fullmatch(name):
                raise ValueError(
                    f"field {name[:100]!r} cannot be a column: expected a letter, then letters, digits and _"
                )
            same = next((other for other in (*self.schema.names, *added) if other.lower() == name.lower()), None)
            if same is not None:  # Spark and SQL do not distinguish them
                raise ValueError(f"field {name!r} cannot be a column next to {same!r}")
            if len(self.schema) + len(added) >= MAX_COLUMNS:
                raise ValueError(f"field {name!r} cannot be a column: the table has {MAX_COLUMNS}")
            added[name] = self._of_table.get(name) or fields.get(name) or _type_of(name, item)
        return added


def _metadata(records: list[SinkRecord]) -> dict[str, list[Any]]:
    return {
        "_topic": [record.topic for record in records],
        "_partition": [record.partition for record in records],
        "_offset": [record.offset for record in records],
        "_timestamp": [record.timestamp_ms * 1_000 for record in records],
        "_key": [None if record.key is None else _text(record.key) for record in records],
    }


def _text(value: Any) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bytes):
        return value.decode("utf-8", "backslashreplace")
    if isinstance(value, datetime.date | datetime.time | decimal.Decimal | uuid.UUID):
        return str(plain_json(value))
    return json_text(value)


def _type(key: str, kind: str) -> tuple[pa.DataType, Convert]:
    found = _TYPES.get(kind)
    if found is not None:
        return found
    digits = re.fullmatch(r"decimal\((\d+), ?(\d+)\)", kind)
    if digits is None:
        raise SettingError(key, f"expected one of {', '.join(_TYPES)} or decimal(p,s), got {kind!r}")
    precision, scale = map(int, digits.groups())
    if not 1 <= precision <= 38 or scale > precision:
        raise SettingError(key, f"decimal has 1 to 38 digits, no more behind the point than in all; got {kind!r}")
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
    elif isinstance(value, dict) and value.keys() == {"seconds", "nanos"}:  # google.protobuf.Timestamp
        since = datetime.timedelta(seconds=value["seconds"], microseconds=value["nanos"] // 1_000)
        value = datetime.datetime.fromtimestamp(0, _UTC) + since
    if not isinstance(value, datetime.datetime):
        raise TypeError(f"it is {type(value).__name__}")
    # Raises OverflowError beyond the years 1 to 9999 in UTC; for a whole column of them it would be too late.
    return value.astimezone(_UTC) if value.tzinfo is not None else value.replace(tzinfo=_UTC)


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

_NAME = re.compile(r"[^\W\d_]\w{0,127}")
_NAMES: Mapping[pa.DataType, str] = {kind: name for name, (kind, _) in _TYPES.items()}
"""A text column has the type `json`, which takes any value."""


def _plain(kind: pa.DataType) -> pa.DataType:
    """Returns the type of a column regardless of its layout."""
    if pa.types.is_large_string(kind):
        return pa.string()
    return pa.binary() if pa.types.is_large_binary(kind) else kind


_OF_VALUES: tuple[tuple[type | tuple[type, ...], str], ...] = (
    (bool, "boolean"),
    (int, "long"),
    (float, "double"),
    (bytes, "binary"),
    (datetime.datetime, "timestamp"),
    (datetime.date, "date"),
    (str, "string"),
    ((dict, list), "json"),
)
"""The types of columns for values. The first one that fits counts: a bool is an int, too."""


def _type_of(name: str, value: Any) -> str:
    for kinds, found in _OF_VALUES:
        if isinstance(value, kinds):
            return found
    raise ValueError(f"field {name!r} is {type(value).__name__}: give its type in columns")
