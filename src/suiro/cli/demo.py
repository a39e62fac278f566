"""`suiro demo`: the demo on real data."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import usage
from suiro.errors import SuiroError

demo = Group("demo", "")


@demo.itself
def demo_(
    data: Annotated[
        Path | None,
        Option(
            help="Keep everything in this new directory. Default: temporary, removed after success.",
            path="folder",
        ),
    ] = None,
    plain: Annotated[bool, Option("--plain", help="Plain lines, as without a terminal.")] = False,
    kafka: Annotated[
        bool, Option("--kafka", help="Start a real Apache Kafka in the node's place (Maven, Java 17+).")
    ] = False,
    bootstrap: Annotated[
        str | None,
        Option(metavar="HOST:PORT", help="Use this running cluster in the node's place; it is never killed."),
    ] = None,
    flights: Annotated[
        int | None,
        Option(min=1_000, metavar="N", help="The first N flights of the year only; default: all 336,776."),
    ] = None,
    keep: Annotated[
        bool, Option("--keep", help="Leave everything running at the end, for a look around.")
    ] = False,
) -> None:
    """Every flight out of New York in 2013, from Postgres to a view with a bug, which is fixed while it is read.

    Exit code 0 only if every count adds up. The last line on stdout is one JSON object with the counts.
    """
    if kafka and bootstrap is not None:
        usage("--kafka starts a cluster and --bootstrap uses yours: give one of them")
    try:
        from suiro.demo import DemoOptions, run

        options = DemoOptions(
            data=data, plain=plain, kafka=kafka, bootstrap=bootstrap, flights=flights, keep=keep
        )
        code = run(options)
    except KeyboardInterrupt:
        print("suiro demo: stopped", file=sys.stderr)
        code = 130
    except SuiroError as error:
        print(f"suiro demo: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
