"""The result of the demo: counts, every difference, and one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from suiro.demo.display import Display
from suiro.demo.flow import Figures
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED, VIEW, WEATHER
from suiro.demo.system import System
from suiro.demo.verify import Verdict
from suiro.demo.view_check import ViewAccount

__all__ = ["Outcome", "look_around", "report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`hidden`: records of aborted transactions. `live`: flights inserted after the snapshot. `posts`: of alerts, with
    those that came again."""

    verdict: Verdict
    account: ViewAccount
    flow: Figures
    view_differences: tuple[str, ...]
    loaded: int
    live: int
    posts: int
    hidden: int
    micro_batches: int
    driver_starts: int
    kills: dict[str, int]
    seconds: float

    @property
    def passed(self) -> bool:
        return not self.differences

    @property
    def differences(self) -> tuple[str, ...]:
        return self.verdict.differences + self.view_differences


def report(show: Display, outcome: Outcome, *, directory: Path | None) -> None:
    """`directory`: where everything was kept, unless it is gone."""
    account = outcome.account
    show.show(_summary(outcome))
    for difference in outcome.differences:
        show.failed(difference)
    show.show(_where_next(directory))
    last = account.comparisons[-1]
    line = {
        "ok": outcome.passed,
        **asdict(outcome.verdict.counts),
        "inserted_live": outcome.live,
        "alert_posts": outcome.posts,
        "aborted_never_seen": outcome.hidden,
        "micro_batches": outcome.micro_batches,
        "driver_starts": outcome.driver_starts,
        **{f"{name}_kills": count for name, count in outcome.kills.items()},
        "view_kills": account.kills,
        "rows_equal": last.equal,
        "rows_differing": last.differing,
        "differences_explained": account.explained,
        "differences_to_explain": account.to_explain,
        "rebuilt_records": account.rebuilt,
        "rebuild_seconds": round(account.rebuilt_s, 1),
        "rollback_ms": round(account.rollback_ms),
        "reads": account.answers["reads"],
        "read_errors": account.answers["errors"],
        "read_p99_ms": account.answers["p99_ms"],
        "differences": len(outcome.differences),
        "flights_per_second": round(outcome.flow.per_second),
        "cpu_us_per_flight": round(outcome.flow.cpu_us),
        "seconds": round(outcome.seconds, 1),
    }
    print(json.dumps(line), flush=True)


def _summary(outcome: Outcome) -> Panel:
    counts, account = outcome.verdict.counts, outcome.account
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right", style="bold")
    table.add_column()
    for count, what in (
        (outcome.loaded, f"flights in Postgres, {outcome.live:,} of them inserted while the pipeline ran"),
        (counts.raw, f"captured, in {RAW}"),
        (counts.weather, f"hours of weather out of files, in {WEATHER}"),
        (counts.validated, f"in {VALIDATED}"),
        (counts.rejected, f"in {REJECTED}, with the reason and where they came from"),
        (counts.enriched, f"in {ENRICHED}"),
        (counts.carriers, f"carriers in {DELAYS}, in {counts.carrier_updates:,} updates"),
        (counts.alerts, f"in {ALERTS}: hours in which a carrier was late"),
        (counts.alerts_delivered, f"delivered by webhook, in {outcome.posts:,} requests"),
        (outcome.hidden, "records of aborted transactions in the log, never seen by a reader"),
        (
            round(outcome.flow.per_second),
            f"flights a second through the pipeline, its kills included, at {outcome.flow.cpu_us:,.0f} µs of processor "
            "time each",
        ),
        (
            account.rebuilt,
            f"flights read again for v2 of {VIEW}, in {account.rebuilt_s:.1f} s, while v1 answered",
        ),
        (
            account.answers["reads"],
            f"reads of {VIEW}, half of them within {account.answers['p50_ms']} ms, p99 {account.answers['p99_ms']} ms",
        ),
        (account.answers["errors"], "of these reads failed"),
        (round(account.rollback_ms), "ms for the rollback"),
        (account.explained, f"differences of the view explained, of {account.to_explain}"),
        (
            sum(outcome.kills.values()) + account.kills,
            "processes killed with kill -9, in the middle of something",
        ),
        (counts.lost, "records lost"),
        (counts.duplicates, "records duplicated"),
        (len(outcome.differences), "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{count:,}", what)
    title = "exactly once" if outcome.passed else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if outcome.passed else "bold red", expand=False)


def look_around(system: System) -> str:
    """Where everything is, and what to try."""
    url = system.views_url
    return "\n".join(
        (
            "Have a look around",
            f"  the console   {system.console_url} in your browser: all of the below",
            f"  the log       {system.bootstrap_servers} (any Kafka client; kcat -b {system.bootstrap_servers} -L)",
            f"  the registry  {system.registry_url}/subjects",
            f"  Postgres      psql '{system.dsn}'",
            f"  the view      {url}/views/{VIEW}/rows",
            f"  its changes   curl -N {url}/views/{VIEW}/changes",
            f"  its history   suiro view history {VIEW} --url {url}",
            f"  its code      {system.directory / 'app' / VIEW}.py; change it, then",
            f"                suiro view deploy {system.directory / 'app' / VIEW}.py:{VIEW} --url {url}",
            f"                suiro view compare {VIEW} --url {url}",
        )
    )


def _where_next(directory: Path | None) -> str:
    if directory is None:
        look = "suiro demo --keep       leaves everything running, for a look around"
    else:
        look = f"everything is in {directory}: the log, Postgres, the state, and what each process said"
    return "\n".join(
        (
            "Where to look next",
            "  suiro node              a log for any Kafka client, on 127.0.0.1:9092",
            f"  {look}",
            "  suiro demo --kafka      the same with a real Apache Kafka in the node's place",
            "  src/suiro/demo/pipeline.py, carrier_delays.py   the pipeline, and the view",
            "  docs/guides/views.md    your own views",
            "  docs/guides/capture.md, docs/guides/connect.md   your own database, files and webhooks",
            "  docs/explain/exactly-once.md   why nothing was lost or doubled",
        )
    )
