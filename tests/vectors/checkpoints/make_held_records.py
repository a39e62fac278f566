"""Makes `held-records-pickled.json`: what Spark keeps of tasks (directory and segments) in which records wait for
another lane, as the release wrote it that kept a pickled tuple a record. The commit is 95d28f2:

    git archive 95d28f2 src tests | tar x -C /tmp/before
    cd /tmp/before && PYTHONPATH=src:. python .../make_held_records.py .../held-records-pickled.json

`test_held_records` goes on from there with the code as it is.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from suiro.streams import StreamsBuilder, left, right, serdes
from suiro.streams.topology.topology import Topology

TYPES = {"key": serdes.string, "value": serdes.long}


def later(record: Any, partition_time: int) -> int:
    return max(partition_time, 0) + 10


def merged() -> Topology:
    """Waiting records of topics; their time is an extractor's, which is asked once a record."""
    builder = StreamsBuilder()
    stream = builder.stream("stream", timestamp=later, **TYPES)
    stream.merge(builder.stream("table", **TYPES)).group_by_key().count().to_stream().to("out")
    return builder.build()


def carried() -> Topology:
    """Waiting records that came over a repartition."""
    builder = StreamsBuilder()
    keyed = builder.stream("stream", **TYPES).select_key(lambda key, value: value, key=serdes.long)
    keyed.group_by_key().reduce(left() + right()).to_stream().to("out")
    return builder.build()


def joined() -> Topology:
    """Waiting records of a task that works on columns."""
    builder = StreamsBuilder()
    stream, table = builder.stream("stream", **TYPES), builder.table("table", **TYPES)
    stream.join(table, left() + right()).to("out")
    return builder.build()


TOPOLOGIES = {"merged": merged, "carried": carried, "joined": joined}
BEFORE: dict[tuple[str, int], Any] = {
    ("stream", 0): ([("a", 1, 5), ("b", 2, 7), ("a", None, 8), ("b", 2, 9)], False),
    ("stream", 1): ([("c", 2, 6), ("d", 1, 8)], True),
    ("table", 0): ([("a", 3, 1), ("b", 5, 6)], True),
    ("table", 1): ([], True),
}
AFTER: dict[tuple[str, int], Any] = {
    ("stream", 0): ([("b", 1, 10)], False),
    ("stream", 1): ([("c", 3, 7), ("c", 2, 12)], False),
    ("table", 0): ([("a", 4, 8)], False),
    ("table", 1): ([("c", 7, 6), ("d", 1, 8)], False),
}


def of(batch: dict[tuple[str, int], Any], topology: Topology) -> Any:
    return {place: rows for place, rows in batch.items() if place[0] in topology.source_topics}


def main(path: Path) -> None:
    from tests.unit.streams.spark.test_column_bucket import Engine  # as it was then

    found: dict[str, Any] = {}
    for name, build in TOPOLOGIES.items():
        topology = build()
        engine = Engine(topology, name)
        engine.only_rules(name == "carried")  # columns let no carried record wait
        engine.batch(of(BEFORE, topology), 100)
        found[name] = {
            "offset": engine.offset,
            "tasks": [
                {
                    "sub": number,
                    "partition": partition,
                    "directory": handle.directory.hex(),
                    "segments": {str(place): data.hex() for place, data in sorted(handle.segments.items())},
                }
                for (number, partition), handle in sorted(engine.handles.items())
                if handle.directory is not None
            ],
        }
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
