"""Columns of Avro in data frames: what cannot be read is an error, or null."""

from __future__ import annotations

import io
import json
from datetime import UTC, datetime

import fastavro
import pyarrow as pa
import pytest

from suiro.registry import CodecSettings, NotOneColumn, Schema, registry_client
from suiro.spark import avro

AFTER_THE_YEAR_9999 = 253_402_300_800_000


def test_a_time_that_no_calendar_has_is_null_where_that_is_asked_for() -> None:
    registry = "mock://times-of-from-avro"
    at = {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}}
    schema = Schema(json.dumps({"type": "record", "name": "R", "fields": [at]}))
    prefix = b"\0" + registry_client(registry).register("t-value", schema).to_bytes(4)

    def written(millis: int) -> bytes:
        out = io.BytesIO()
        fastavro.schemaless_writer(out, "long", millis)
        return prefix + out.getvalue()

    data = pa.array([written(millis) for millis in (0, AFTER_THE_YEAR_9999, 1_000)], pa.binary())
    settings = CodecSettings(registry=registry, schema=schema)
    kind = pa.struct([pa.field("at", pa.timestamp("us", "UTC"))])
    found = avro._read(settings, data, kind, permissive=True)
    times = [datetime.fromtimestamp(second, UTC) for second in (0, 1)]
    assert found.to_pylist() == [{"at": times[0]}, None, {"at": times[1]}]
    with pytest.raises(NotOneColumn, match="beyond what Python's calendar has"):
        avro._read(settings, data, kind, permissive=False)
