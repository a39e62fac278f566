"""The Spark driver of the demo: `python -m suiro.demo.driver`.

Spark starts at once. The pipeline starts with the first line on standard input, which has its settings as JSON, and
runs until standard input closes, so it never outlives the demo. Until that line the driver stands by for another one.
"""

from __future__ import annotations

import json
import sys
import threading
from contextlib import suppress
from pathlib import Path

from suiro.demo.names import APPLICATION
from suiro.demo.pipeline import build
from suiro.foundation.process import lines_of_stdin
from suiro.foundation.settings import parse_address
from suiro.foundation.stopping import Stopping
from suiro.spark import java_started_early, spark_session
from suiro.streams import KafkaStreams, StreamsBuilder
from suiro.streams_spark import ApplicationServer


def main() -> int:
    """Returns 0 after standard input has closed, or 1 if the pipeline failed, with its error on standard error."""
    lines = lines_of_stdin()
    with java_started_early(topologies_only=True):
        builder = StreamsBuilder()
        build(builder)
        spark = spark_session("suiro demo", topologies_only=True)
    failure = None
    if (line := next(lines, None)) is not None:
        failure = _run(builder, json.loads(line))
    spark.stop()
    return 0 if failure is None else 1


def _run(builder: StreamsBuilder, settings: dict[str, str]) -> BaseException | None:
    streams = KafkaStreams(
        builder.build(),
        application_id=APPLICATION,
        bootstrap_servers=settings["bootstrap_servers"],
        schema_registry_url=settings["registry"],
        state_dir=Path(settings["state_dir"]),
        max_offsets_per_trigger=int(settings["max_offsets_per_trigger"]),
    )
    stopping = Stopping(while_stdin_is_open=True)

    def wait_for_end() -> None:
        with suppress(Exception):  # `streams.exception` has it
            streams.await_termination()
        stopping.set()

    streams.start()
    page = ApplicationServer(streams, *parse_address(settings["console"], option="console"))
    threading.Thread(target=wait_for_end, daemon=True).start()
    stopping.wait()
    failure = streams.exception
    if failure is not None:
        print(f"application {APPLICATION} ended: {failure}", file=sys.stderr, flush=True)
    page.stop()
    streams.close()
    return failure


if __name__ == "__main__":
    sys.exit(main())
