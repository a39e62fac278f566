"""Avro to columns: `serdes.avro`'s kernels beside pyruhvro and fastavro, records a second, on one core.

    python benchmarks/avro_decoding.py [--records 200000] [--rounds 5]

A flight of six fields (three texts, one of them an enum, what may be null, a double, a timestamp), in Confluent's wire
format, as the binary column that a topic gives. pyruhvro takes a list of Python bytes without the format's five bytes
in front: making that list is timed with it, and without. fastavro reads row by row. The best round counts, in CPU time;
the first, which compiles or loads, does not.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import time
from collections.abc import Callable
from typing import Any

import fastavro
import load
import pyarrow as pa

from suiro.registry import Schema, registry_client
from suiro.streams import serdes

REGISTRY = "mock://benchmark"
SCHEMA: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "tail", "type": ["null", "string"], "default": None},
        {"name": "status", "type": {"type": "enum", "name": "Status", "symbols": ["UP", "DOWN"]}},
        {"name": "delay", "type": ["null", "int"], "default": None},
        {"name": "distance", "type": "double"},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}


def flights(count: int, schema_id: int) -> pa.Array:
    parsed = fastavro.parse_schema(SCHEMA, {})
    made = []
    for n in range(count):
        out = io.BytesIO()
        out.write(b"\0" + schema_id.to_bytes(4))
        flight = {
            "carrier": f"C{n % 16}",
            "tail": None if n % 9 == 0 else f"N{n % 4000}",
            "status": "UP" if n % 2 else "DOWN",
            "delay": None if n % 7 == 0 else n % 300 - 20,
            "distance": n * 1.5,
            "at": 1_700_000_000_000 + n,
        }
        fastavro.schemaless_writer(out, parsed, flight)
        made.append(out.getvalue())
    return pa.array(made, pa.binary())


def best(work: Callable[[], Any], rounds: int) -> float:
    work()
    times = []
    for _ in range(rounds):
        begun = time.process_time()
        work()
        times.append(time.process_time() - begun)
    return min(times)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--records", type=int, default=200_000)
    parser.add_argument("--rounds", type=int, default=5)
    chosen = parser.parse_args()
    schema_id = registry_client(REGISTRY).register("flights-value", Schema(json.dumps(SCHEMA)))
    column = flights(chosen.records, schema_id)
    serde = serdes.avro.with_(registry=REGISTRY)

    def report(name: str, seconds: float, count: int) -> None:
        print(f"{name:<44}{count / seconds / 1e6:>8.2f} M records/s")

    report("serdes.avro, a column", best(lambda: serde.decode_column(column), chosen.rounds), chosen.records)
    try:
        import pyruhvro
    except ImportError:
        print("pyruhvro is not installed: pip install pyruhvro")
    else:
        plain = [one[5:] for one in column.to_pylist()]
        schema = json.dumps(SCHEMA)
        report(
            "pyruhvro, its list given",
            best(lambda: pyruhvro.deserialize_array(plain, schema), chosen.rounds),
            chosen.records,
        )

        def with_list() -> Any:
            return pyruhvro.deserialize_array([one[5:] for one in column.to_pylist()], schema)

        report("pyruhvro, the list made of the column", best(with_list, chosen.rounds), chosen.records)
    few = column.slice(0, max(1, chosen.records // 10)).to_pylist()
    parsed = fastavro.parse_schema(SCHEMA, {})

    def rows() -> Any:
        return pa.array([fastavro.schemaless_reader(io.BytesIO(one[5:]), parsed, None) for one in few])

    report("fastavro, rows and a column of them", best(rows, chosen.rounds), len(few))
    report("serdes.avro, row by row", best(lambda: [serde.deserialize("t", one) for one in few], 2), len(few))


if __name__ == "__main__":
    sys.exit(load.run(main))
