"""Comparing two versions of a view, and explaining a row: how long it takes, and in how much memory.

    python benchmarks/views_compare.py [--rows 10000000] [--records 336776] [--largest 58665]

Compare: two SQLite stores of `--rows` rows each, built first (not timed), once with one row in a thousand differing,
once with every row differing. Each comparison runs in a process of its own, whose peak memory (maximum resident set)
is told; the target for 10,000,000 rows is less than 1 GB.

Explain: a topic of `--records` flights in JSON on a node of suiro, of which `--largest` are of one carrier; version 1
counts a cancelled flight as zero delay, version 2 leaves it out. The carrier's row is explained: both versions from
offset 0, and what is named tried again.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import random
import resource
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import load
import pyarrow as pa
from rich.console import Console
from rich.table import Table

from suiro.client import Client, NewTopic
from suiro.lineage import Inputs
from suiro.node import NodeProcess
from suiro.protocol.columnar import encode
from suiro.streams import StreamsBuilder, serdes
from suiro.views.analysis.compare.comparison import compare
from suiro.views.analysis.compare.values import Comparator
from suiro.views.analysis.explain.replay import Side
from suiro.views.analysis.explain.result import text_of
from suiro.views.analysis.explain.rows import explain
from suiro.views.cuts import Cut
from suiro.views.definition import RowCodec, topology_of, view
from suiro.views.store import open_store

TARGET_BYTES = 1_000_000_000
CHUNK = 50_000
RARELY = 1_000
CUT = Cut(number=0, inputs={("flights", 0): 1}, outputs={}, time_ms=0)


@dataclass(frozen=True, slots=True, kw_only=True)
class Spec:
    version: int
    view: str = "rows"
    key: tuple[str, ...] = ("id",)
    serve: str = "sqlite"
    search: tuple[str, ...] = ()
    history_ms: int = 60_000
    journal_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    what: str
    seconds: float
    cpu_seconds: float
    """Its own: where a machine does other things too, the other figure says less."""
    peak_bytes: int
    found: str


# -- compare -------------------------------------------------------------------------------------------------------


def fill(folder: Path, version: int, rows: int, differs: Callable[[int], bool]) -> None:
    folder.mkdir(parents=True)

    def batches() -> Iterator[tuple[list[tuple[Any, ...]], list[str | None]]]:
        for first in range(0, rows, CHUNK):
            numbers = range(first, min(first + CHUNK, rows))
            yield (
                [(number,) for number in numbers],
                [
                    json.dumps(
                        {
                            "flights": number % 977 + differs(number),
                            "delay": number % 89 / 7,
                            "of": f"C{number}",
                        }
                    )
                    for number in numbers
                ],
            )

    with open_store(Spec(version=version), folder) as store:
        store.apply_batches(CUT, batches())


def compared(folder: Path, new_version: int) -> tuple[float, float, int, str]:
    begun, spent = time.monotonic(), time.process_time()
    with (
        open_store(Spec(version=1), folder / "v1") as old,
        open_store(Spec(version=new_version), folder / f"v{new_version}") as new,
    ):
        found = compare(old, new, old_cut=CUT, new_cut=CUT)
    return (
        time.monotonic() - begun,
        time.process_time() - spent,
        peak(),
        f"{found.equal:,} equal, {found.differing:,} differing",
    )


# -- explain -------------------------------------------------------------------------------------------------------


def add(key: str, flight: dict[str, Any], row: dict[str, int]) -> dict[str, int]:
    return {"flights": row["flights"] + 1, "sum": row["sum"] + (flight["dep_delay"] or 0)}


def mean(row: dict[str, int]) -> dict[str, Any]:
    return {"flights": row["flights"], "mean_delay": row["sum"] / row["flights"]}


def version(number: int, *, leaves_out: bool) -> Side:
    @view("carrier_delays", key="carrier")
    def carrier_delays(builder: StreamsBuilder) -> Any:
        flights = builder.stream("flights", key=serdes.string, value=serdes.json)
        if leaves_out:
            flights = flights.filter(lambda key, flight: flight["dep_delay"] is not None)
        grouped = flights.group_by(lambda key, flight: flight["carrier"])
        return grouped.aggregate(lambda: {"flights": 0, "sum": 0}, add).map_values(mean)

    topology = topology_of(carrier_delays.definition, f"carrier_delays.v{number}")  # type: ignore[attr-defined]
    return Side(version=number, topology=topology, codec=RowCodec(topology, ("carrier",)))


def produce(client: Client, records: int, largest: int) -> None:
    draw = random.Random(7)
    carriers = ["UA"] * largest + [f"C{draw.randrange(15)}" for _ in range(records - largest)]
    draw.shuffle(carriers)
    for first in range(0, records, CHUNK):
        part = range(first, min(first + CHUNK, records))
        values = [
            json.dumps(
                {
                    "carrier": carriers[number],
                    "flight": draw.randrange(9000),
                    "origin": draw.choice(["EWR", "JFK", "LGA"]),
                    "dest": "LAX",
                    "dep_delay": None if draw.random() < 0.0245 else draw.randrange(-20, 200),
                    "arr_delay": draw.randrange(-40, 200),
                    "distance": draw.randrange(80, 5000),
                    "tailnum": f"N{draw.randrange(99999)}",
                }
            ).encode()
            for number in part
        ]
        batches = encode(
            keys=pa.array([str(number).encode() for number in part], pa.binary()),
            values=pa.array(values, pa.binary()),
            timestamps=pa.array([1_357_000_000_000 + number * 90_000 for number in part], pa.int64()),
            partitions=[0] * len(part),
            num_partitions=1,
        )
        client.produce_many([("flights", 0, batch.data) for batch in batches])


def explained(bootstrap_servers: str, records: int) -> tuple[float, float, int, str]:
    begun, spent = time.monotonic(), time.process_time()
    with Client(bootstrap_servers) as client:
        sides = version(1, leaves_out=False), version(2, leaves_out=True)
        (found,) = explain([("UA",)], *sides, Inputs(client, {("flights", 0): records}), Comparator())
    assert found.is_explained, text_of(found)
    return (
        time.monotonic() - begun,
        time.process_time() - spent,
        peak(),
        f"{len(found.named):,} records named, {found.kinds[0].records:,} decide",
    )


# -- run -----------------------------------------------------------------------------------------------------------


def peak() -> int:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def measured(what: str, work: Callable[..., tuple[float, float, int, str]], *given: Any) -> Measured:
    """In a process of its own, so that the peak is its own."""
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        seconds, cpu_seconds, peak_bytes, found = pool.apply(work, given)
    return Measured(what=what, seconds=seconds, cpu_seconds=cpu_seconds, peak_bytes=peak_bytes, found=found)


def run(rows: int, records: int, largest: int, console: Console) -> list[Measured]:
    results = []
    with tempfile.TemporaryDirectory(prefix="suiro-compare-") as name:
        folder = Path(name)
        if rows:
            console.print(f"filling three stores of {rows:,} rows")
            fill(folder / "v1", 1, rows, lambda number: False)
            fill(folder / "v2", 2, rows, lambda number: number % RARELY == 0)
            fill(folder / "v3", 3, rows, lambda number: True)
            results += [
                measured("compare, 1 row in 1,000 differs", compared, folder, 2),
                measured("compare, every row differs", compared, folder, 3),
            ]
        if records:
            with (
                NodeProcess.start(data=folder / "node", listen="127.0.0.1:0") as node,
                Client(node.bootstrap_servers) as client,
            ):
                client.create_topics([NewTopic("flights", 1)])
                console.print(f"producing {records:,} flights")
                produce(client, records, largest)
                results.append(measured("explain one row", explained, node.bootstrap_servers, records))
    return results


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=10_000_000, help="of each store; 0: compare nothing")
    parser.add_argument("--records", type=int, default=336_776, help="flights in the topic; 0: explain nothing")
    parser.add_argument("--largest", type=int, default=58_665, help="of these, of the carrier that is explained")
    asked = parser.parse_args()
    console = Console()
    results = run(asked.rows, asked.records, min(asked.largest, asked.records), console)
    table = Table(title=f"{asked.rows:,} rows, {asked.records:,} records")
    for name in ("what", "seconds", "CPU seconds", "peak memory", "found"):
        table.add_column(name, justify="left" if name in ("what", "found") else "right")
    for one in results:
        table.add_row(
            one.what,
            f"{one.seconds:.1f}",
            f"{one.cpu_seconds:.1f}",
            f"{one.peak_bytes / 1e6:,.0f} MB",
            one.found,
        )
    console.print(table)
    too_much = [one.what for one in results if one.what.startswith("compare") and one.peak_bytes >= TARGET_BYTES]
    for what in too_much:
        console.print(f"{what}: more than {TARGET_BYTES / 1e9:g} GB")
    return 1 if too_much else 0


if __name__ == "__main__":
    sys.exit(load.run(main))
