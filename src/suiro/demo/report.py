"""The result of the demo: counts, every difference, and one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.panel import Panel
from rich.table import Table

from suiro.demo.display import Display
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED, VIEW, WEATHER
from suiro.demo.system import System

WHERE_NEXT = """\
Where to look next
  suiro node              a log for any Kafka client, on 127.0.0.1:9092
  {look}
  suiro demo --kafka      the same with a real Apache Kafka in the node's place
  src/suiro/demo/pipeline.py, carrier_delays.py   the pipeline, and the view
  docs/guides/views.md    your own views
  docs/guides/capture.md, docs/guides/connect.md   your own database, files and webhooks
  docs/explain/exactly-once.md   why nothing was lost or doubled"""

LOOK_AROUND = """\
Have a look around
  the console   {system.console_url} in your browser: all of the below
  the log       {system.bootstrap_servers} (any Kafka client; kcat -b {system.bootstrap_servers} -L)
  the registry  {system.registry_url}/subjects
  Postgres      psql '{system.dsn}'
  the view      {url}/views/{view}/rows
  its changes   curl -N {url}/views/{view}/changes
  its history   suiro view history {view} --url {url}
  its code      {file}; change it, then
                suiro view deploy {file}:{view} --url {url}
                suiro view compare {view} --url {url}"""


def report(show: Display, result: Mapping[str, Any], differences: Sequence[str], *, directory: Path | None) -> None:
    """`result`: the JSON object. `directory` has all data and logs; None if it was removed."""
    show.show(_summary(result))
    for difference in differences:
        show.failed(difference)
    look = "suiro demo --keep       leaves everything running, for a look around"
    if directory is not None:
        look = f"everything is in {directory}: the log, Postgres, the state, and what each process said"
    show.show(WHERE_NEXT.format(look=look))
    print(json.dumps(result), flush=True)


def _summary(result: Mapping[str, Any]) -> Panel:
    of = dict(result)
    of["kills"] = sum(count for name, count in of.items() if name.endswith("_kills"))
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for name, what in (
        ("flights", f"flights in Postgres, {of['inserted_live']:,} of them inserted while the pipeline ran"),
        ("raw", f"captured, in {RAW}"),
        ("weather", f"hours of weather out of files, in {WEATHER}"),
        ("validated", f"in {VALIDATED}"),
        ("rejected", f"in {REJECTED}, with the reason and where they came from"),
        ("enriched", f"in {ENRICHED}"),
        ("carriers", f"carriers in {DELAYS}, in {of['carrier_updates']:,} updates"),
        ("alerts", f"in {ALERTS}: hours in which a carrier was late"),
        ("alerts_delivered", f"delivered by webhook, in {of['alert_posts']:,} requests"),
        ("aborted_never_seen", "records of aborted transactions in the log, never seen by a reader"),
        (
            "flights_per_second",
            "flights a second through the pipeline, with its kills, at "
            f"{of['cpu_us_per_flight']:,} µs of processor time",
        ),
        ("rebuilt_records", f"flights read again for v2 of {VIEW}, in {of['rebuild_seconds']} s, while v1 answered"),
        ("reads", f"reads of {VIEW}, half of them within {of['read_p50_ms']} ms, p99 {of['read_p99_ms']} ms"),
        ("read_errors", "of these reads failed"),
        ("rollback_ms", "ms for the rollback"),
        ("differences_explained", f"differences of the view explained, of {of['differences_to_explain']}"),
        ("kills", "processes killed with kill -9, in the middle of something"),
        ("lost", "records lost"),
        ("duplicates", "records duplicated"),
        ("differences", "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{of[name]:,}", what)
    title = "exactly once" if result["ok"] else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if result["ok"] else "bold red", expand=False)


def look_around(system: System) -> str:
    """Returns the addresses of all parts, and commands to try."""
    file = system.directory / "app" / f"{VIEW}.py"
    return LOOK_AROUND.format(system=system, url=system.views_url, view=VIEW, file=file)
