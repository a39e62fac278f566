"""The topologies of `benchmarks/streams.py` on suiro.streams: the same as in `kafka_streams/KafkaStreamsPeer.java`.

    python benchmarks/streams_app.py WORKLOAD BOOTSTRAP APPLICATION_ID INPUT TABLE OUTPUT READY_FILE

Once it runs, the time (ms since the epoch) is written to READY_FILE; it runs until SIGTERM.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Any

from suiro.streams import KafkaStreams, StreamsBuilder, TimeWindows, left, record_value, right, serdes

WINDOW = "1 minute"


def topology(workload: str, source: str, table: str, output: str) -> Any:
    builder = StreamsBuilder()
    stream = builder.stream(source, key=serdes.string, value=serdes.string)
    if workload == "map":
        stream.map_values(record_value().upper()).to(output)
    elif workload == "count":
        stream.group_by_key().count().to_stream().to(output)
    elif workload == "windowed":
        stream.group_by_key().windowed_by(TimeWindows.of_size(WINDOW)).count().to_stream().to(output)
    elif workload == "join":
        records = builder.table(table, key=serdes.string, value=serdes.string)
        stream.join(records, left().concat(right())).to(output)
    else:
        raise ValueError(f"no workload is called {workload}")
    return builder.build()


def main() -> int:
    if len(sys.argv) != 8:
        print(__doc__, file=sys.stderr)
        return 2
    workload, bootstrap, application, source, table, output, ready = sys.argv[1:]
    built = topology(workload, source, table, output)
    streams = KafkaStreams(built, application_id=application, bootstrap_servers=bootstrap)
    streams.start()
    Path(ready).write_text(str(int(time.time() * 1000)))
    streams.await_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
