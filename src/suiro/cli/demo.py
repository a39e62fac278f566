"""`suiro demo`: the demo on real data."""

from __future__ import annotations

import sys
from pathlib import Path

from suiro.cli.command_groups import Group, option
from suiro.cli.everyday import usage
from suiro.errors import SuiroError

demo = Group("demo")


@demo.itself
def demo_(
    data: Path | None = option(
        None, "Keep everything in this new directory. Default: a temporary one, removed after success.", path="folder"
    ),
    plain: bool = option(False, "Print plain lines, as without a terminal."),
    kafka: bool = option(False, "Start a real Apache Kafka instead of the node (needs Maven and Java 17 or later)."),
    bootstrap: str | None = option(
        None,
        "Use this running cluster instead of the node. The demo does not kill it.",
        "HOST:PORT",
        name="--bootstrap-servers",
        also=("--bootstrap-server", "--bootstrap"),
    ),
    flights: int | None = option(
        None, "Use only the first N flights of the year. Default: all 336,776.", "N", min=1000
    ),
    keep: bool = option(False, "Leave everything running at the end, so that you can look around."),
) -> None:
    """Run the demo: a year of flights, from Postgres to a view with a bug, which is fixed while clients read it.

    The exit status is 0 only if every check passes. The last line on stdout is one JSON object with the counts.
    """
    if kafka and bootstrap is not None:
        usage("give --kafka, which starts a cluster, or --bootstrap-servers, which uses yours, not both")
    try:
        from suiro.demo import DemoOptions, run

        options = DemoOptions(data=data, plain=plain, kafka=kafka, bootstrap=bootstrap, flights=flights, keep=keep)
        code = run(options)
    except KeyboardInterrupt:
        print("suiro demo: stopped", file=sys.stderr)
        code = 130
    except SuiroError as error:
        print(f"suiro demo: {error}", file=sys.stderr)
        code = 1
    sys.exit(code)
