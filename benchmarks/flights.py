"""The demo's pipeline alone, from filled topics: plain Python functions beside the same in Java on Kafka Streams.

    python benchmarks/flights.py [--rounds 3] [--flights 336776] [--only suiro|kafka-streams] [--broker kafka|node]

The topology is `src/suiro/demo/pipeline.py` as it stands: Avro in, two branches, four joins with global tables, JSON
out, an aggregate of each carrier, one of each carrier's hours. Kafka Streams (`kafka_streams/FlightsPeer.java`) reads
and writes the same bytes: Avro in Confluent's wire format from the same registry, JSON by Jackson; exactly once v2, 2
threads, a heap of 1 GB. Both work on the same broker and topics of 4 partitions, one after the other in each round.

The year's flights are written to the input `--times` times, each copy a year later, so that a run lasts long enough.
Each output is counted, and the last figures of each carrier are compared with those of the data.
"""

from __future__ import annotations

import argparse
import io
import json
import sys
import tempfile
import time
import uuid
from collections import defaultdict
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from pathlib import Path
from statistics import median
from typing import Any

import application
import fastavro
import load
import numpy as np
import pyarrow as pa
from application import Failed, Measured
from peers import Unavailable, kafka_streams, kafka_streams_command
from table import Row, show

from suiro.client import Client, NewTopic
from suiro.demo.expected import Expected, expected
from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    ALERTS,
    DELAYS,
    ENRICHED,
    PARTITIONS,
    PLANES,
    RAW,
    REJECTED,
    VALIDATED,
    WEATHER,
)
from suiro.demo.pipeline import FLIGHT, FLIGHT_KEY, figures
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.protocol.columnar import decode, encode, partitions_of
from suiro.registry import RegistryClient, RegistryProcess, Schema

SIDES = ("suiro", "kafka-streams")
TARGET = 0.7
THREADS = 2
HEAP = "1g"
OUTPUTS = (VALIDATED, REJECTED, ENRICHED, DELAYS, ALERTS)
KEPT = {"retention.ms": "-1"}  # the data is of 2013
BATCH_BYTES = 128 * 1024
CHUNK = 50_000
READ_BYTES = 32 * 1024 * 1024
YEAR = timedelta(days=365)


class Flights:
    """The filled topics, and what every side must make of them."""

    def __init__(self, client: Client, bootstrap: str, registry: str, *, flights: int, times: int) -> None:
        self.client, self.bootstrap, self.registry = client, bootstrap, registry
        self._expected = expected(limit=flights)
        self._times = times
        self._schemas = RegistryClient(registry)
        self.records = len(self._expected.flights) * times
        client.create_topics(
            [NewTopic(topic, PARTITIONS, configs=KEPT) for topic in (RAW, AIRLINES, AIRPORTS, PLANES, WEATHER)]
        )
        self._fill()

    def run(self, side: str, timeout_s: float) -> Measured:
        made = f"{side}-flights-{uuid.uuid4().hex[:8]}"
        with tempfile.TemporaryDirectory(prefix="suiro-bench-state-") as state:

            def command(ready: str) -> list[str]:
                arguments = [self.bootstrap, made, self.registry, ready]
                if side == "suiro":
                    return [sys.executable, str(Path(__file__).parent / "flights_app.py"), *arguments]
                return kafka_streams_command(
                    kafka_streams(), [*arguments, state, str(THREADS)], heap=HEAP, peer="FlightsPeer"
                )

            return application.run(
                command, application=made, client=self.client,
                inputs=[(RAW, partition) for partition in range(PARTITIONS)], outputs=OUTPUTS,
                partitions=PARTITIONS, configs=KEPT, check=self._check, timeout_s=timeout_s,
            )  # fmt: skip

    # Filling

    def _fill(self) -> None:
        wanted = self._expected
        for topic, rows in (
            (AIRLINES, [{"carrier": carrier, "name": name} for carrier, name in wanted.airlines.items()]),
            (AIRPORTS, list(wanted.airports.values())),
            (PLANES, list(wanted.planes.values())),
        ):
            key, value = _schemas_of(topic, rows)
            self._write(
                topic,
                ((0, {key["fields"][0]["name"]: next(iter(row.values()))}, row) for row in rows),
                key,
                value,
            )
        weather = [(0, json.dumps(list(station)).replace(", ", ",").encode(), json.dumps(row).encode())
                   for station, row in wanted.weather.items()]  # fmt: skip
        self.client.produce_many(_batches(WEATHER, weather))
        for subject, schema in (("key", FLIGHT_KEY), ("value", FLIGHT)):
            for topic in (VALIDATED, REJECTED):
                self._schemas.register(f"{topic}-{subject}", Schema(json.dumps(schema)))
        for number in range(self._times):
            self._write(RAW, self._flights(number), FLIGHT_KEY, FLIGHT)

    def _flights(self, number: int) -> Iterator[tuple[int, dict[str, Any], dict[str, Any]]]:
        hours: dict[str, datetime] = {}
        for row in self._expected.flights.values():
            text = row["time_hour"]
            hour = hours.get(text)
            if hour is None:
                hour = hours[text] = datetime.fromisoformat(text) + number * YEAR
            flight = row | {"time_hour": hour}
            key = {field["name"]: flight[field["name"]] for field in FLIGHT_KEY["fields"]}
            yield int(hour.timestamp() * 1000) + row["minute"] * 60_000, key, flight

    def _write(
        self, topic: str, rows: Iterable[tuple[int, dict[str, Any], dict[str, Any]]], key: Any, value: Any
    ) -> None:
        write_key, write_value = (
            _writer(schema, self._schemas.register(f"{topic}-{part}", Schema(json.dumps(schema))))
            for part, schema in (("key", key), ("value", value))
        )
        records: list[tuple[int, bytes, bytes]] = []
        for timestamp, one, row in rows:
            records.append((timestamp, write_key(one), write_value(row)))
            if len(records) == CHUNK:
                self.client.produce_many(_batches(topic, records))
                records = []
        self.client.produce_many(_batches(topic, records))

    # Checking

    def _check(self) -> None:
        wanted, times = self._expected, self._times
        counts = dict.fromkeys(OUTPUTS, 0)
        last: dict[bytes, bytes] = {}
        for topic in OUTPUTS:
            for partition in range(PARTITIONS):
                for batch in self._read(topic, partition):
                    counts[topic] += batch.num_rows
                    if topic == DELAYS:
                        last.update(zip(batch["key"].to_pylist(), batch["value"].to_pylist(), strict=True))
        for topic, count in (
            (VALIDATED, wanted.totals.validated * times),
            (ENRICHED, wanted.totals.validated * times),
            (REJECTED, len(wanted.rejected) * times),
        ):
            if counts[topic] != count:
                raise Failed(f"{topic}: {counts[topic]:,} records, and {count:,} were expected")
        got = {key.decode(): json.loads(value) for key, value in last.items()}
        if got != _figures(wanted, times):
            raise Failed(f"{DELAYS}: the figures of the carriers are {got}, not {_figures(wanted, times)}")

    def _read(self, topic: str, partition: int) -> Iterator[pa.RecordBatch]:
        place = (topic, partition)
        end = self.client.list_offsets({place: -1}, read_committed=True)[place].offset
        offset = 0
        while offset < end:
            fetched = self.client.fetch({place: offset}, partition_max_bytes=READ_BYTES)[place]
            if fetched.data:
                decoded = decode(fetched.data, start_offset=offset, end_offset=end, aborted=fetched.aborted)
                offset = decoded.next_offset
                yield decoded.batch


def _figures(wanted: Expected, times: int) -> dict[str, Any]:
    return {
        carrier: figures(
            carrier,
            *(
                total * times
                for total in (
                    one.flights,
                    one.cancelled,
                    one.dep_total,
                    one.dep_count,
                    one.arr_total,
                    one.arr_count,
                )
            ),
        )
        for carrier, one in wanted.carriers.items()
    }


def _schemas_of(topic: str, rows: list[dict[str, Any]]) -> tuple[Any, Any]:
    """As capture makes them of a table whose first column is its key."""
    kinds = {int: "int", float: "double", str: "string"}
    fields = []
    for name in rows[0]:
        found = {type(row[name]) for row in rows} - {type(None)}
        kind = "double" if found == {int, float} else kinds[found.pop()] if found else "string"
        fields.append({"name": name, "type": ["null", kind], "default": None})
    first = {"name": fields[0]["name"], "type": "string"}
    key = {"type": "record", "name": "Key", "namespace": topic, "fields": [first]}
    return key, {"type": "record", "name": "Value", "namespace": topic, "fields": fields}


def _writer(schema: Any, schema_id: int) -> Any:
    parsed = fastavro.parse_schema(schema)
    head = b"\0" + schema_id.to_bytes(4, "big")

    def write(row: dict[str, Any]) -> bytes:
        out = io.BytesIO()
        out.write(head)
        fastavro.schemaless_writer(out, parsed, row)
        return out.getvalue()

    return write


def _batches(topic: str, rows: list[tuple[int, bytes, bytes]]) -> Iterator[tuple[str, int, bytes]]:
    keys = pa.array([row[1] for row in rows], pa.binary())
    batches = encode(
        keys=keys, values=pa.array([row[2] for row in rows], pa.binary()),
        timestamps=np.array([row[0] for row in rows], dtype=np.int64),
        partitions=partitions_of(keys, PARTITIONS), num_partitions=PARTITIONS, max_batch_bytes=BATCH_BYTES,
    )  # fmt: skip
    batches.sort(key=lambda batch: batch.max_timestamp)
    for batch in batches:
        yield topic, batch.partition, batch.data


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--flights", type=int, default=336_776)
    parser.add_argument("--times", type=int, default=1, help="copies of them, each a year later")
    parser.add_argument("--only", choices=SIDES, help="one side alone; no ratio then")
    parser.add_argument("--broker", choices=("kafka", "node"), default="kafka", help="what both work on")
    parser.add_argument("--timeout", type=float, default=900, help="seconds that one run may take")
    arguments = parser.parse_args()
    measured: dict[str, list[Measured]] = defaultdict(list)
    failures = []
    with tempfile.TemporaryDirectory(prefix="suiro-bench-log-") as directory:
        data = Path(directory) / "log"
        broker: KafkaProcess | NodeProcess = (
            KafkaProcess.start(data) if arguments.broker == "kafka" else NodeProcess.start(data=data)
        )
        try:
            with (
                RegistryProcess.start(broker.bootstrap_servers) as registry,
                Client(broker.bootstrap_servers) as client,
            ):
                began = time.monotonic()
                filled = Flights(
                    client, broker.bootstrap_servers, registry.url,
                    flights=arguments.flights, times=arguments.times,
                )  # fmt: skip
                print(f"filled {filled.records:,} flights in {time.monotonic() - began:.0f} s", file=sys.stderr)
                for _ in range(arguments.rounds):
                    for side in (arguments.only,) if arguments.only else SIDES:
                        try:
                            one = filled.run(side, arguments.timeout)
                        except (Failed, Unavailable) as error:
                            print(error, file=sys.stderr)
                            failures.append(side)
                            continue
                        measured[side].append(one)
                        print(
                            f"{side}: {filled.records / one.seconds:,.0f} flights/s, {one.seconds:.1f} s "
                            f"({one.seconds_with_start:.1f} with start), CPU {one.cpu_s / filled.records * 1e6:.0f} us "
                            f"a flight, {one.pss_mib:,.0f} MiB PSS, {one.memory_mib:,.0f} peaks",
                            file=sys.stderr,
                        )
        finally:
            broker.stop()
    ours, theirs = measured["suiro"], measured["kafka-streams"]
    if ours and theirs:
        records = filled.records

        def row(work: str, unit: str, figure: Any, target: float | None = None, less: bool = True) -> Row:
            return Row(
                work=work, unit=unit, peer="Kafka Streams 4.3.1, exactly once v2", target=target,
                ours=tuple(figure(one) for one in ours), theirs=tuple(figure(one) for one in theirs),
                less_is_better=less,
            )  # fmt: skip

        show(
            f"the demo's pipeline on {arguments.broker}, {arguments.rounds} rounds, {records:,} flights",
            [
                row("flights", "flights/s", lambda one: records / one.seconds, TARGET, less=False),
                row("with start", "flights/s", lambda one: records / one.seconds_with_start, less=False),
                row("CPU", "us/flight", lambda one: one.cpu_s / records * 1e6),
                row("memory, PSS", "MiB", lambda one: one.pss_mib),
            ],
        )
    elif ours or theirs:
        rates = [filled.records / one.seconds for one in ours or theirs]
        print(f"{'suiro' if ours else 'kafka-streams'}: {median(rates):,.0f} flights/s")
    return 1 if failures else 0


if __name__ == "__main__":
    sys.exit(load.run(main))
