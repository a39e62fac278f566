"""What a soak came to: its report, its entry in the file of all soaks, and the page's section made from that file."""

from __future__ import annotations

import fcntl
import json
import statistics
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

DOCS = Path(__file__).parents[2] / "docs" / "explain"
FILE, PAGE = "exactly-once-soak.json", "exactly-once-runs.md"
BEGIN, END = "<!-- The soak, from exactly-once-soak.json: make soak MINUTES=n -->", "<!-- End of the soak -->"


@dataclass(kw_only=True)
class Report:
    broker: str
    seed: int
    minutes: float
    records_in: int
    records_out: int
    """In all outputs."""
    micro_batches: int
    aborted: int
    """Transactions."""
    faults: Mapping[str, int]
    restarts: int
    """Of driver processes."""
    ends: Mapping[str, int]
    """How drivers and queries failed by themselves, by kind."""
    offsets_checked: int
    longest_stall_s: float
    recovery_s: Sequence[float]
    """From the end of a fault until every output has more: median and longest."""
    memory: Mapping[str, Sequence[float]] = field(default_factory=dict)
    """Of the longest-lived process of each kind: MB and open files when warm and last, minutes between, most MB."""
    trouble: str = ""

    def markdown(self) -> str:
        lines = [
            f"# Soak on {self.broker}, seed {self.seed}",
            "",
            f"**{'FAILED' if self.trouble else 'no anomaly'}** after {self.minutes:.1f} minutes.",
            *(["", "```", self.trouble, "```"] if self.trouble else []),
            "",
            *_table(("", ""), [(name, shown) for name, shown in _facts([asdict(self)])]),
            "",
            *_table(("what was done", "times"), sorted(self.faults.items())),
            "",
            *_table(("how a driver or query failed by itself", "times"), sorted(self.ends.items())),
            "",
            *_memory_table(self.memory),
        ]
        return "\n".join(lines) + "\n"


def median_and_longest(seconds: Sequence[float]) -> list[float]:
    return [round(statistics.median(seconds), 1), round(max(seconds), 1)] if seconds else []


def record(report: Report, docs: Path) -> None:
    """Adds it to the file and makes the page's section anew."""
    with (Path(tempfile.gettempdir()) / f"{FILE}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        path = docs / FILE
        runs = json.loads(path.read_text()) if path.exists() else []
        runs.append(asdict(report))
        path.write_text("[\n" + ",\n".join(json.dumps(run, sort_keys=True) for run in runs) + "\n]\n")
        page = docs / PAGE
        page.write_text(with_section(page.read_text(), runs))


def with_section(text: str, runs: Sequence[Mapping[str, Any]]) -> str:
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{section(runs)}\n{END}{after}"


def section(runs: Sequence[Mapping[str, Any]]) -> str:
    by_broker: dict[str, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_broker.setdefault(run["broker"], []).append(run)
    brokers = list(by_broker)
    facts = {broker: dict(_facts(found)) for broker, found in by_broker.items()}
    names = list(dict.fromkeys(name for found in facts.values() for name in found))
    faults = {broker: _sum(found, "faults") for broker, found in by_broker.items()}
    kinds = sorted({kind for found in faults.values() for kind in found})
    longest = max(runs, key=lambda run: run["minutes"])
    lines = [
        *_table(("", *brokers), [(name, *(facts[broker].get(name, "-") for broker in brokers)) for name in names]),
        "",
        *_table(
            ("what was done", *brokers),
            [(kind, *(faults[broker][kind] for broker in brokers)) for kind in kinds],
        ),
        "",
        f"Memory of the processes that lived for longest in the longest run ({longest['minutes']:.0f} minutes):",
        "",
        *_memory_table(longest["memory"]),
    ]
    return "\n".join(lines) + "\n"


def _facts(runs: Sequence[Mapping[str, Any]]) -> list[tuple[str, str]]:
    ends = _sum(runs, "ends")
    longest = max((run["recovery_s"] for run in runs if run["recovery_s"]), key=lambda one: one[1], default=None)
    return [
        ("runs", f"{len(runs)}"),
        ("minutes", f"{sum(run['minutes'] for run in runs):,.0f}"),
        ("runs with an anomaly", f"{sum(bool(run['trouble']) for run in runs)}"),
        ("records written to the source", f"{sum(run['records_in'] for run in runs):,}"),
        ("records in the outputs", f"{sum(run['records_out'] for run in runs):,}"),
        ("micro-batches committed", f"{sum(run['micro_batches'] for run in runs):,}"),
        ("transactions aborted", f"{sum(run['aborted'] for run in runs):,}"),
        ("comparisons of committed offsets with data", f"{sum(run['offsets_checked'] for run in runs):,}"),
        ("faults", f"{_sum(runs, 'faults').total():,}"),
        ("driver processes started again", f"{sum(run['restarts'] for run in runs):,}"),
        ("queries started again in their process", f"{ends['restarted']:,}"),
        (
            "drivers that stopped because of another one",
            f"{ends['fenced'] + ends['superseded'] + ends['stopped']:,}",
        ),
        ("from the end of a fault to new output, longest", f"{longest[1]:.0f} s" if longest else "-"),
        ("without new output, longest", f"{max(run['longest_stall_s'] for run in runs):.0f} s"),
    ]


def _sum(runs: Sequence[Mapping[str, Any]], name: str) -> Counter[str]:
    found: Counter[str] = Counter()
    for run in runs:
        found.update(run[name])
    return found


def _memory_table(memory: Mapping[str, Sequence[float]]) -> list[str]:
    rows = [
        (
            who,
            f"{minutes:.0f}",
            f"{first:.0f}",
            f"{last:.0f}",
            f"{most:.0f}",
            f"{files:.0f}",
            f"{files_last:.0f}",
        )
        for who, (first, last, files, files_last, minutes, most) in memory.items()
    ]
    return _table(("process", "minutes", "MB, warm", "MB, last", "MB, most", "open files, warm", "last"), rows)


def _table(head: Sequence[str], rows: Sequence[Sequence[object]]) -> list[str]:
    return [
        f"| {' | '.join(head)} |",
        f"|{'---|' * len(head)}",
        *(f"| {' | '.join(str(cell) for cell in row)} |" for row in rows),
    ]
