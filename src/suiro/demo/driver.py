"""The driver process of the demo: `python -m suiro.demo.driver`.

Spark starts at once. The pipeline starts when a line arrives on standard input, and runs until standard input closes,
so that it never outlives the demo.
"""

from __future__ import annotations

import argparse
import sys
import threading
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

from suiro.demo.names import APPLICATION
from suiro.demo.pipeline import build
from suiro.errors import ConfigError
from suiro.foundation.settings import parse_address
from suiro.spark import java_started_early, spark_session
from suiro.streams import KafkaStreams, StreamsBuilder
from suiro.streams_spark import ApplicationServer

__all__ = ["main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Returns 0 once standard input has closed, or 1 if the pipeline failed, with its error on standard error."""
    parser = argparse.ArgumentParser(prog="python -m suiro.demo.driver", description=__doc__)
    parser.add_argument("--bootstrap-servers", required=True)
    parser.add_argument("--registry", required=True)
    parser.add_argument("--state-dir", type=Path, required=True)
    parser.add_argument("--max-offsets-per-trigger", type=int, required=True)
    parser.add_argument("--console", required=True)
    options = parser.parse_args(arguments)

    start_requested = threading.Event()
    stop_requested = threading.Event()

    def listen() -> None:
        if sys.stdin.readline():
            start_requested.set()
            sys.stdin.read()
        stop_requested.set()
        start_requested.set()

    threading.Thread(target=listen, daemon=True).start()
    with java_started_early():
        builder = StreamsBuilder()
        build(builder)
        spark = spark_session("suiro demo")
    start_requested.wait()
    streams = KafkaStreams(
        builder.build(),
        application_id=APPLICATION,
        bootstrap_servers=options.bootstrap_servers,
        schema_registry_url=options.registry,
        spark=spark,
        state_dir=options.state_dir,
        max_offsets_per_trigger=options.max_offsets_per_trigger,
    )
    failure = None
    if not stop_requested.is_set():
        streams.start()
        page = _page(streams, options.console)
        threading.Thread(target=_await_end, args=(streams, stop_requested), daemon=True).start()
        stop_requested.wait()
        failure = streams.exception
        if failure is not None:
            print(f"application {APPLICATION} ended: {failure}", file=sys.stderr, flush=True)
        for reason, count in streams.dropped_records.items():
            print(f"{count:,} records were left out: {reason}", file=sys.stderr, flush=True)
        if page is not None:
            page.stop()
    streams.close()
    spark.stop()
    return 0 if failure is None else 1


def _page(streams: KafkaStreams, address: str) -> ApplicationServer | None:
    """For the console; the demo goes on without it."""
    try:
        return ApplicationServer(streams, *parse_address(address, option="--console"))
    except ConfigError as error:
        print(f"the console has no page of this application: {error}", file=sys.stderr, flush=True)
        return None


def _await_end(streams: KafkaStreams, told: threading.Event) -> None:
    """Beside what listens: nobody asks Java how the query is while it runs."""
    with suppress(Exception):  # what ended it is asked for afterwards
        streams.await_termination()
    told.set()


if __name__ == "__main__":
    sys.exit(main())
