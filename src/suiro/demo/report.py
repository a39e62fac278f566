"""The result of the demo: counts, every difference, and one JSON object."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from suiro.demo.display import Display
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED, VIEW, WEATHER
from suiro.demo.system import System
from suiro.demo.view_check import ViewAccount

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


@dataclass(slots=True, kw_only=True)
class Outcome:
    """`counts` are those of `verify`. `hidden` are records of aborted transactions. `live` are flights inserted after
    the snapshot. `posts` are requests with alerts, including repeated ones."""

    counts: Mapping[str, int]
    differences: Sequence[str]
    account: ViewAccount
    per_second: float
    cpu_us: float
    loaded: int
    live: int
    posts: int
    hidden: int
    micro_batches: int
    driver_starts: int
    kills: Mapping[str, int]
    seconds: float = 0.0

    @property
    def passed(self) -> bool:
        return not self.differences


def report(show: Display, outcome: Outcome, *, directory: Path | None) -> None:
    """`directory` has all data and logs; None if it was removed."""
    show.show(_summary(outcome))
    for difference in outcome.differences:
        show.failed(difference)
    look = "suiro demo --keep       leaves everything running, for a look around"
    if directory is not None:
        look = f"everything is in {directory}: the log, Postgres, the state, and what each process said"
    show.show(WHERE_NEXT.format(look=look))
    account = outcome.account
    line = {
        "ok": outcome.passed,
        **outcome.counts,
        "inserted_live": outcome.live,
        "alert_posts": outcome.posts,
        "aborted_never_seen": outcome.hidden,
        "micro_batches": outcome.micro_batches,
        "driver_starts": outcome.driver_starts,
        **{f"{name}_kills": count for name, count in outcome.kills.items()},
        "view_kills": account.kills,
        "rows_equal": account.comparisons[-1].equal,
        "rows_differing": account.comparisons[-1].differing,
        "differences_explained": account.explained,
        "differences_to_explain": account.to_explain,
        "rebuilt_records": account.rebuilt,
        "rebuild_seconds": round(account.rebuilt_s, 1),
        "rollback_ms": round(account.rollback_ms),
        "reads": account.answers["reads"],
        "read_errors": account.answers["errors"],
        "read_p99_ms": account.answers["p99_ms"],
        "differences": len(outcome.differences),
        "flights_per_second": round(outcome.per_second),
        "cpu_us_per_flight": round(outcome.cpu_us),
        "seconds": round(outcome.seconds, 1),
    }
    print(json.dumps(line), flush=True)


def _summary(outcome: Outcome) -> Panel:
    counts, account = outcome.counts, outcome.account
    reads = account.answers
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for count, what in (
        (outcome.loaded, f"flights in Postgres, {outcome.live:,} of them inserted while the pipeline ran"),
        (counts["raw"], f"captured, in {RAW}"),
        (counts["weather"], f"hours of weather out of files, in {WEATHER}"),
        (counts["validated"], f"in {VALIDATED}"),
        (counts["rejected"], f"in {REJECTED}, with the reason and where they came from"),
        (counts["enriched"], f"in {ENRICHED}"),
        (counts["carriers"], f"carriers in {DELAYS}, in {counts['carrier_updates']:,} updates"),
        (counts["alerts"], f"in {ALERTS}: hours in which a carrier was late"),
        (counts["alerts_delivered"], f"delivered by webhook, in {outcome.posts:,} requests"),
        (outcome.hidden, "records of aborted transactions in the log, never seen by a reader"),
        (
            round(outcome.per_second),
            f"flights a second through the pipeline, with its kills, at {outcome.cpu_us:,.0f} µs of processor time",
        ),
        (
            account.rebuilt,
            f"flights read again for v2 of {VIEW}, in {account.rebuilt_s:.1f} s, while v1 answered",
        ),
        (
            reads["reads"],
            f"reads of {VIEW}, half of them within {reads['p50_ms']} ms, p99 {reads['p99_ms']} ms",
        ),
        (reads["errors"], "of these reads failed"),
        (round(account.rollback_ms), "ms for the rollback"),
        (account.explained, f"differences of the view explained, of {account.to_explain}"),
        (
            sum(outcome.kills.values()) + account.kills,
            "processes killed with kill -9, in the middle of something",
        ),
        (counts["lost"], "records lost"),
        (counts["duplicates"], "records duplicated"),
        (len(outcome.differences), "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{count:,}", what)
    title = "exactly once" if outcome.passed else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if outcome.passed else "bold red", expand=False)


def look_around(system: System) -> str:
    """Returns the addresses of all parts, and commands to try."""
    file = system.directory / "app" / f"{VIEW}.py"
    return LOOK_AROUND.format(system=system, url=system.views_url, view=VIEW, file=file)
