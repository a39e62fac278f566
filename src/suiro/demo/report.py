"""What the demo says at its end: the counts on screen, every difference, and one JSON object."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from pathlib import Path

from rich.panel import Panel
from rich.table import Table

from suiro.demo.display import Display
from suiro.demo.names import ALERTS, DELAYS, ENRICHED, RAW, REJECTED, VALIDATED, WEATHER
from suiro.demo.verify import Verdict

__all__ = ["Outcome", "report"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """`hidden`: records of aborted transactions. `live`: flights inserted after the snapshot. `posts`: of alerts, with
    those that came again."""

    verdict: Verdict
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
        return not self.verdict.differences


def report(show: Display, outcome: Outcome, *, directory: Path | None) -> int:
    """The exit code. `directory`: where everything was kept, unless it is gone."""
    verdict = outcome.verdict
    show.show(_summary(outcome))
    for difference in verdict.differences:
        show.failed(difference)
    show.show(_where_next(directory))
    line = {
        "ok": outcome.passed,
        **asdict(verdict.counts),
        "inserted_live": outcome.live,
        "alert_posts": outcome.posts,
        "aborted_never_seen": outcome.hidden,
        "micro_batches": outcome.micro_batches,
        "driver_starts": outcome.driver_starts,
        **{f"{name}_kills": count for name, count in outcome.kills.items()},
        "differences": len(verdict.differences),
        "seconds": round(outcome.seconds, 1),
    }
    print(json.dumps(line), flush=True)
    return 0 if outcome.passed else 1


def _summary(outcome: Outcome) -> Panel:
    counts = outcome.verdict.counts
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
        (counts.duplicates, "records that came twice"),
        (outcome.hidden, "records of aborted transactions in the log, never seen by a reader"),
        (len(outcome.verdict.differences), "differences from the wheel's CSV files"),
    ):
        table.add_row(f"{count:,}", what)
    title = "exactly once" if outcome.passed else "NOT exactly once"
    return Panel(table, title=title, border_style="green" if outcome.passed else "bold red", expand=False)


def _where_next(directory: Path | None) -> str:
    if directory is None:
        look = "suiro demo --data DIR   keeps the node's folder: open it with suiro node --data DIR/node"
    else:
        look = f"everything is in {directory}: the log, Postgres, the state, and what each process said"
    return "\n".join(
        (
            "Where to look next",
            "  suiro node              a log for any Kafka client, on 127.0.0.1:9092",
            f"  {look}",
            "  suiro demo --kafka      the same with a real Apache Kafka in the node's place",
            "  src/suiro/demo/pipeline.py   the pipeline: one topology, on one page",
            "  docs/guides/capture.md, docs/guides/connect.md   your own database, files and webhooks",
            "  docs/explain/exactly-once.md   why nothing was lost or doubled",
        )
    )
