"""Avro: values are those of fastavro (dicts, `Decimal`, aware `datetime`, `UUID`, ...), or Arrow columns.

Data is read with the schema whose id is in front of it. If there is a reader's schema, values are resolved into it by
Avro's rules: fields are dropped, defaults filled in, numbers widened. Bytes after a value are an error.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Sequence
from functools import cached_property
from typing import TYPE_CHECKING, Any

import fastavro

from suiro.errors import ConfigError, RegistryError
from suiro.extras import is_installed
from suiro.registry.codecs.avro_limits import AvroLimits, what_is_wrong
from suiro.registry.codecs.avro_schemas import branch_chooser, for_reading, for_writing, own, with_infinity
from suiro.registry.codecs.wire import PREFIX, BySchema, CodecSettings, Undecodable, Unencodable, WireFormat
from suiro.registry.formats import Import
from suiro.registry.schemas import AVRO, Schema

if TYPE_CHECKING:
    import pyarrow as pa

    from suiro.registry.codecs.avro_columns import ColumnDecoder
    from suiro.registry.codecs.avro_rows import RowsDecoder, RowsEncoder

_COMPILED = ("numpy", "numba")
"""The modules that the loops over many values need. Without them, values are read and written one by one."""
_MARKS = ("__fastavro_parsed", "__named_schemas")


class AvroCodec:
    def __init__(self, settings: CodecSettings) -> None:
        self._wire = WireFormat(AVRO, settings)
        self._writers: dict[int, tuple[Any, Callable[[Any], Any] | None]] = {}
        self._row_writers: dict[int, RowsEncoder | None] = {}
        self._of_writer = BySchema(self._wire, lambda schema, imports: _OfWriter(self, _parsed(schema, imports)))

    def decode(self, data: bytes) -> Any:
        schema_id = self._wire.split(data)
        return self._of_writer(schema_id).read(data, PREFIX.size, schema_id)

    def decode_block(self, data: Sequence[bytes | None]) -> list[Any]:
        """None stays None. Raises the error of `decode` for one of the values that fail."""
        if not is_installed(*_COMPILED):
            return [None if item is None else self.decode(item) for item in data]
        items = [item for item in data if item is not None]
        heads = [item[: PREFIX.size] for item in items]
        decoders = {head: self._of_writer(self._wire.split(head)).rows for head in set(heads)}
        found: list[Any] = [None] * len(items)
        for head, decoder in decoders.items():
            places = [place for place, one in enumerate(heads) if one == head]
            chosen = items if len(decoders) == 1 else [items[place] for place in places]
            values = None if decoder is None else decoder(chosen)
            if values is None:
                values = [self.decode(item) for item in chosen]
            if len(decoders) == 1:
                found = values
                break
            for place, value in zip(places, values, strict=True):
                found[place] = value
        return _with_nulls(found, data)

    def encode(self, topic: str, value: Any) -> bytes:
        schema_id, schema = self._wire.to_write(topic, self._record_name())
        known = self._writers.get(schema_id)
        if known is None:
            made = for_writing(self._parse(schema))
            known = self._writers[schema_id] = made, branch_chooser(made)
        out = io.BytesIO()
        out.write(PREFIX.pack(0, schema_id))
        try:
            parsed, choose = known
            value = value if choose is None else choose(value)
            fastavro.schemaless_writer(out, parsed, value, strict_allow_default=True)
        except Exception as error:  # noqa: BLE001 - fastavro raises many kinds for values that do not fit
            raise Unencodable(f"it does not fit the schema (id {schema_id}): {type(error).__name__}: {error}") from None
        return out.getvalue()

    def check(self, topic: str | None) -> None:
        self._wire.check(topic, self._record_name())

    def encode_block(self, topic: str, values: Sequence[Any]) -> list[bytes | None]:
        """None stays None. Raises the error of `encode` for one of the values that fail."""
        if not is_installed(*_COMPILED):
            return [None if value is None else self.encode(topic, value) for value in values]
        from suiro.registry.codecs.avro_rows import ROWS_AT_ONCE

        items = [value for value in values if value is not None]
        found: list[bytes] = []
        for start in range(0, len(items), ROWS_AT_ONCE):
            part = items[start : start + ROWS_AT_ONCE]
            schema_id, schema = self._wire.to_write(topic, self._record_name())
            encoder = self._rows_encoder(schema_id, schema)
            made = None if encoder is None else encoder(part, schema_id)
            found += [self.encode(topic, value) for value in part] if made is None else made
        return _with_nulls(found, values)

    def _rows_encoder(self, schema_id: int, schema: Schema) -> RowsEncoder | None:
        from suiro.registry.codecs.avro_rows import rows_encoder

        if schema_id not in self._row_writers:
            self._row_writers[schema_id] = rows_encoder(self._parse(schema))
        return self._row_writers[schema_id]

    def decode_column(self, data: pa.Array, *, frames: bool = False) -> pa.Array:
        """Decodes a binary column, each row with its own writer's schema. Raises `Undecodable` with the row.

        Raises `NotOneColumn` if the values have no common Arrow type. `frames`: maps and UUIDs are columns too, as
        pairs and as text, unlike the values of `decode`.
        """
        from suiro.registry.codecs.avro_columns import decode_by_id

        return decode_by_id(data, lambda schema_id: self._of_writer(schema_id).columns(schema_id, frames))

    def column_type(self) -> pa.DataType:
        """The type of the columns of frames, by the reader's schema. Raises `NotOneColumn`."""
        from suiro.registry.codecs.avro_columns import arrow_type

        return arrow_type(self.reader_schema, frames=True)

    def writer_schema(self, schema_id: int) -> Any:
        """The schema parsed by fastavro, with references expanded. Raises `Undecodable`."""
        return self._of_writer(schema_id).schema

    @cached_property
    def reader_schema(self) -> Any:
        """The parsed schema; None: values stay as they were written."""
        given = self._wire.settings.schema
        return None if given is None else self._parse(given)

    def _record_name(self) -> str | None:
        given = self.reader_schema
        return given.get("name") if isinstance(given, dict) else None

    def _parse(self, schema: Schema) -> Any:
        return _parsed(schema, self._wire.imports(schema))


class _OfWriter:
    """How values of one writer's schema are read."""

    def __init__(self, codec: AvroCodec, schema: Any) -> None:
        self._codec = codec
        self.schema = schema
        self.limits = AvroLimits.of(schema)
        self._columns: dict[bool, ColumnDecoder] = {}

    def read(self, data: bytes, start: int, schema_id: int) -> Any:
        """Reads one value with fastavro. Raises `Undecodable`."""
        stream = io.BytesIO(data)
        stream.seek(start)
        try:
            if self.limits is not None:
                self.limits.check(data, start)
            writer, reader, shared = self.for_fastavro
            value = fastavro.schemaless_reader(stream, writer, reader)
        except RegistryError:
            raise
        except Exception as error:  # noqa: BLE001 - fastavro raises whatever the bytes run into
            raise Undecodable(f"not of schema {schema_id}: {what_is_wrong(error)}") from None
        left = len(data) - stream.tell()
        if left:
            raise Undecodable(f"not of schema {schema_id}: {left} bytes are left over behind the value")
        return own(value, shared) if isinstance(value, list | dict) else value

    @cached_property
    def for_fastavro(self) -> tuple[Any, Any, frozenset[int]]:
        """The writer's schema, that into which fastavro resolves a value, and the defaults that the value may share."""
        reader = self._codec.reader_schema
        if reader is not None and reader != self.schema:
            return for_reading(self.schema, reader)
        return with_infinity(self.schema), None, frozenset()

    @cached_property
    def rows(self) -> RowsDecoder | None:
        from suiro.registry.codecs.avro_rows import rows_decoder

        return rows_decoder(self.schema, self._codec.reader_schema)

    def columns(self, schema_id: int, frames: bool) -> ColumnDecoder:
        from suiro.registry.codecs.avro_columns import ColumnDecoder

        if frames not in self._columns:
            reader = self._codec.reader_schema
            self._columns[frames] = ColumnDecoder(
                self.schema, reader, schema_id, lambda data: self.read(data, 0, schema_id), frames=frames
            )
        return self._columns[frames]


def _parsed(schema: Schema, imports: Sequence[Import]) -> Any:
    named: dict[str, Any] = {}
    try:
        for one in imports:
            fastavro.parse_schema(_loaded(one.text), named)
        return _with_references(fastavro.parse_schema(_loaded(schema.text), named), named)
    except _NO_SCHEMA as error:
        raise ConfigError(f"not a valid Avro schema: {type(error).__name__}: {error}") from None


def _with_nulls(found: list[Any], given: Sequence[Any]) -> list[Any]:
    """Returns the results for what was given, null for null."""
    if len(found) == len(given):
        return found
    rest = iter(found)
    return [None if one is None else next(rest) for one in given]


def _with_references(schema: Any, named: dict[str, Any]) -> Any:
    """Returns a parsed schema with the types that its references brought. fastavro gives them to records only."""
    if isinstance(schema, list):
        if any(isinstance(one, list) for one in schema):
            raise ValueError("a union holds a union")
        return [_with_references(one, named) for one in schema]
    found = named.get(schema, schema) if isinstance(schema, str) else schema
    marks = {"__fastavro_parsed": True, "__named_schemas": named}
    return found | marks if isinstance(found, dict) else found


# fastavro meets the last ones in what it does not check, such as an array without items. Other registries accept that.
_NO_SCHEMA = (
    fastavro.schema.SchemaParseException,
    fastavro.schema.UnknownType,
    ValueError,
    ArithmeticError,
    AttributeError,
    KeyError,
    TypeError,
)


def _loaded(text: str) -> Any:
    """Confluent's clients write a primitive type with quotes or without."""
    try:
        found = json.loads(text, object_hook=_unmarked)
    except ValueError:
        return text.strip()
    return "null" if found is None else found


def _unmarked(members: dict[str, Any]) -> dict[str, Any]:
    """Without the members by which fastavro knows what it has parsed, and would not check again."""
    return {name: value for name, value in members.items() if name not in _MARKS}
