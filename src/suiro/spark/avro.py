"""`from_avro` and `to_avro`: columns of a DataFrame in Confluent's wire format, schemas in a registry.

    flights.select(suiro.spark.from_avro("value", registry=url, subject="flights-value").alias("flight"))

Each record is read by the schema whose id it names and resolved into one: the schema given, else the subject's latest
when the query is made. So the column's type stands, however many schemas the topic has. Arrow all the way: workers
hand whole columns to the decoder, which is that of `serdes.avro`.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Literal

import pyarrow as pa  # Spark looks the hints of functions up here

from suiro.errors import ConfigError, UsageError
from suiro.registry import (
    MOCK_SCHEME,
    CodecSettings,
    NotOneColumn,
    Schema,
    Undecodable,
    codec_of,
    registry_client,
)

if TYPE_CHECKING:
    from pyspark.sql import Column
    from pyspark.sql.types import DataType


def from_avro(
    column: Column | str,
    *,
    registry: str,
    subject: str | None = None,
    schema: Schema | str | Mapping[str, Any] | None = None,
    mode: Literal["FAILFAST", "PERMISSIVE"] = "FAILFAST",
) -> Column:
    """Decodes a binary column. Give `subject`, whose latest schema is used, or `schema`.

    `mode` is as for Spark's own function: data that cannot be read fails the query, or becomes null.
    """
    from pyspark.sql.pandas.types import from_arrow_type, to_arrow_type

    if mode not in ("FAILFAST", "PERMISSIVE"):
        raise ConfigError(f"mode={mode!r} is neither FAILFAST nor PERMISSIVE")
    if (schema is None) == (subject is None):
        raise ConfigError("from_avro takes a subject or a schema: one of them, for the column's type")
    wanted = _client(registry).latest(subject).schema if subject is not None else _schema(schema)
    settings = CodecSettings(registry=_address(registry), schema=wanted)
    codec: Any = codec_of("AVRO", settings)
    # Types that Spark has not (a time of day, on some versions) are said now and not by a worker.
    kind = from_arrow_type(codec.column_type(), prefer_timestamp_ntz=True)
    arrow_kind = to_arrow_type(kind, timezone="UTC")
    permissive = mode == "PERMISSIVE"

    def read(data: pa.Array) -> pa.Array:
        return _read(settings, data, arrow_kind, permissive)

    return _applied(read, kind, column)


def to_avro(
    column: Column | str,
    *,
    registry: str,
    subject: str,
    schema: Schema | str | Mapping[str, Any] | None = None,
    auto_register: bool = True,
) -> Column:
    """Encodes values with `schema`, which is registered in the subject now, or else with the subject's latest schema.

    Without `auto_register`, the subject must have the schema.
    """
    settings = CodecSettings(
        registry=_address(registry),
        schema=None if schema is None else _schema(schema),
        subject=subject,
        auto_register=auto_register,
    )

    if settings.schema is not None and auto_register:
        _client(registry).register(subject, settings.schema)  # a refusal is heard here, not from a worker

    def write(values: pa.Array) -> pa.Array:
        return _write(settings, values)

    return _applied(write, "binary", column)


def _applied(function: Callable[[pa.Array], pa.Array], kind: DataType | str, column: Column | str) -> Column:
    from pyspark.sql.pandas.functions import arrow_udf

    udf: Any = arrow_udf  # its stubs know no types but simple ones
    found: Column = udf(function, kind)(column)
    return found


def _read(settings: CodecSettings, data: pa.Array, kind: pa.DataType, permissive: bool) -> pa.Array:
    codec: Any = codec_of("AVRO", settings)

    def part(rows: pa.Array) -> list[pa.Array]:
        try:
            return [codec.decode_column(rows, frames=True).cast(kind)]
        except (Undecodable, NotOneColumn):
            if not permissive:
                raise
            if len(rows) == 1:
                return [pa.nulls(1, kind)]
            half = len(rows) // 2
            return part(rows.slice(0, half)) + part(rows.slice(half))

    return pa.concat_arrays(part(data)) if len(data) else pa.nulls(0, kind)


def _write(settings: CodecSettings, values: pa.Array) -> pa.Array:
    codec: Any = codec_of("AVRO", settings)
    return pa.array(codec.encode_block("", values.to_pylist(maps_as_pydicts="strict")), pa.binary())


def _address(registry: str) -> str:
    if registry.startswith(MOCK_SCHEME):
        raise ConfigError(f"{registry} is in one process's memory, and Spark's workers are others")
    return registry


def _client(registry: str) -> Any:
    return registry_client(_address(registry))


def _schema(given: Schema | str | Mapping[str, Any] | None) -> Schema:
    found = given
    if not isinstance(found, Schema):
        found = Schema(found if isinstance(found, str) else json.dumps(found))
    if found.type != "AVRO":
        raise UsageError(f"from_avro and to_avro take an Avro schema, not {found.type}")
    return found
