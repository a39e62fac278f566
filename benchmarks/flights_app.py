"""The demo's pipeline as an application of its own, for `benchmarks/flights.py`.

    python benchmarks/flights_app.py BOOTSTRAP APPLICATION_ID REGISTRY READY_FILE

Once it runs, the time (ms since the epoch) is written to READY_FILE; it runs until SIGTERM.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

from suiro.demo.pipeline import build
from suiro.streams import KafkaStreams, StreamsBuilder


def main() -> int:
    if len(sys.argv) != 5:
        print(__doc__, file=sys.stderr)
        return 2
    bootstrap, application, registry, ready = sys.argv[1:]
    builder = StreamsBuilder()
    build(builder)
    streams = KafkaStreams(
        builder.build(),
        application_id=application,
        bootstrap_servers=bootstrap,
        schema_registry_url=registry,
    )
    streams.start()
    Path(ready).write_text(str(int(time.time() * 1000)))
    streams.await_termination()
    return 0


if __name__ == "__main__":
    sys.exit(main())
