"""The runs of the matrix, counted in a file, and the table of `docs/explain/exactly-once-runs.md` made from it."""

from __future__ import annotations

import fcntl
import json
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from threading import Lock
from typing import Any

from tests.matrix import barrier_cells, cells, spark_cells
from tests.matrix.brokers import TITLES
from tests.matrix.campaign import Result
from tests.matrix.cells import Cell

DOCS = Path(__file__).parents[2] / "docs" / "explain"
FILE, PAGE = DOCS / "exactly-once-matrix.json", DOCS / "exactly-once-runs.md"
BEGIN, END = "<!-- The matrix, from exactly-once-matrix.json: make matrix -->", "<!-- End of the matrix -->"

_LOCK = Lock()
Counts = dict[str, dict[str, dict[str, int]]]
"""Cell -> broker -> how often it was run, failed, or had no such request."""


def load() -> Counts:
    found: Counts = json.loads(FILE.read_text()) if FILE.exists() else {}
    return found


def has(broker: str, cell: Cell) -> bool:
    return bool(load().get(cell.name, {}).get(broker))


def record(broker: str, result: Result) -> None:
    """At once: a round that is broken off has run what it has run."""
    kind = "not sent" if not result.was_sent else "failed" if result.failure else "good"
    with _LOCK, (Path(tempfile.gettempdir()) / f"{FILE.name}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)  # several brokers may be at work
        counts = load()
        found = counts.setdefault(result.cell.name, {}).setdefault(broker, {})
        found[kind] = found.get(kind, 0) + 1
        FILE.write_text(json.dumps(dict(sorted(counts.items())), indent=1, sort_keys=True) + "\n")


def write_page() -> None:
    PAGE.write_text(page(PAGE.read_text(), load()))


def page(text: str, counts: Counts) -> str:
    """The page with the table anew."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n\n{table(counts)}\n{END}{after}"


def table(counts: Counts) -> str:
    known = {cell.name: cell for cell in _known()}
    total = {broker: _sum(counts, known, broker, lambda cell: True) for broker in TITLES}
    runs = sum(good + failed for good, failed in total.values())
    lines = [
        f"{runs:,} runs of {len(known)} cells; failed: {sum(failed for _, failed in total.values())}.",
        "",
        f"| | {' | '.join(TITLES.values())} |",
        f"|---|{'---|' * len(TITLES)}",
        f"| cells run | {' | '.join(_coverage(counts, known, broker) for broker in TITLES)} |",
        f"| runs | {' | '.join(f'{sum(total[broker]):,}' for broker in TITLES)} |",
        f"| failed | {' | '.join(str(total[broker][1]) for broker in TITLES)} |",
        "",
        "Runs by failure. A row counts the runs of all of its cells:",
        "",
        f"| # | what happens | {' | '.join(TITLES.values())} |",
        f"|---|---|{'---|' * len(TITLES)}",
    ]
    for number, words, belongs in DESIGN:
        shown = [_shown(_sum(counts, known, broker, belongs)) for broker in TITLES]
        if not any(map(belongs, known.values())):
            shown = ["no cell"] * len(TITLES)
        lines.append(f"| {number} | {words} | {' | '.join(shown)} |")
    lines += ["", "Every cell:", "", f"| who | when | {' | '.join(TITLES.values())} |"]
    lines.append(f"|---|---|{'---|' * len(TITLES)}")
    for cell in sorted(known.values(), key=_order):
        shown = [_cell_shown(counts.get(cell.name, {}).get(broker, {})) for broker in TITLES]
        lines.append(f"| {cell.who} | {cell.when} | {' | '.join(shown)} |")
    return "\n".join(lines) + "\n"


def _coverage(counts: Counts, known: dict[str, Cell], broker: str) -> str:
    """Of the cells whose request the broker's protocol has."""
    found = [counts.get(name, {}).get(broker, {}) for name in known]
    not_sent = sum(_is_not_sent(one) for one in found)
    run = sum("good" in one or "failed" in one for one in found)
    return f"{run} of {len(known) - not_sent}"


def _is_not_sent(found: dict[str, int]) -> bool:
    return "not sent" in found and not found.keys() & {"good", "failed"}


def _known() -> list[Cell]:
    return [*cells.all_cells(), *(one.cell for one in spark_cells.schedule())]


def _order(cell: Cell) -> tuple[int, int]:
    who = list(dict.fromkeys(one.who for one in _known()))
    return (cell.row or 0, who.index(cell.who))


def _sum(counts: Counts, known: dict[str, Cell], broker: str, belongs: Callable[[Cell], bool]) -> tuple[int, int]:
    found: Sequence[dict[str, Any]] = [
        counts.get(name, {}).get(broker, {}) for name, cell in known.items() if belongs(cell)
    ]
    return sum(one.get("good", 0) for one in found), sum(one.get("failed", 0) for one in found)


def _shown(runs: tuple[int, int]) -> str:
    good, failed = runs
    return f"{good + failed} ({failed} failed)" if failed else str(good) if good else "-"


def _cell_shown(found: dict[str, int]) -> str:
    if _is_not_sent(found):
        return "not sent"
    return _shown((found.get("good", 0), found.get("failed", 0)))


def _row(number: int) -> Callable[[Cell], bool]:
    return lambda cell: cell.row == number


def _pair(who: str, *words: str) -> Callable[[Cell], bool]:
    """Cells of `who` whose step begins with one of the words."""
    return lambda cell: cell.who == who and cell.when.startswith(words)


def _any(*all_of: Callable[[Cell], bool]) -> Callable[[Cell], bool]:
    return lambda cell: any(one(cell) for one in all_of)


_OPEN = ("after_add_partitions", "after_first_produce", "after_produce", "after_trailing_record")
DESIGN: list[tuple[int, str, Callable[[Cell], bool]]] = [
    (1, "planned, nothing begun: the driver dies", _pair(cells.DRIVER, "planned")),
    (
        2,
        "workers, executors die in tasks; retries, speculation",
        _any(
            _row(2),
            _pair(cells.WORKER, "task_"),
            _pair(cells.SPARK_WORKER, "task_"),
            lambda cell: cell.who.endswith("the executors' JVMs die"),
        ),
    ),
    (3, "encoded, not fenced: the driver dies", _pair(cells.DRIVER, "task_staged", "before_fence")),
    (4, "some records are in an open transaction: the driver dies", _pair(cells.DRIVER, *_OPEN)),
    (5, "as 4, and it stays down", _row(5)),
    (6, "all but EndTxn is sent: the driver dies", _pair(cells.DRIVER, "after_commit_offsets")),
    (7, "EndTxn or its answer is lost, the driver lives", _pair(cells.NETWORK, "EndTxn")),
    (8, "EndTxn is sent, the driver dies", _pair(cells.DRIVER, "EndTxn", "after_end")),
    (9, "the coordinator dies as it has decided", _pair(cells.BROKER, "EndTxn", "after_end")),
    (10, "committed, Spark has not noted it", _pair(cells.DRIVER, *cells.DECIDED)),
    (11, "noted: the driver dies", _pair(cells.DRIVER, *cells.NOTED)),
    (12, "a driver wakes after its successor has fenced", lambda cell: cell.who == cells.ZOMBIE),
    (
        13,
        "a driver wakes inside of its successor's transaction",
        lambda cell: cell.who == cells.RIVAL,
    ),
    (14, "two drivers with one application.id", _row(14)),
    (
        15,
        "a leader goes away during Produce",
        _any(_pair(cells.BROKER, "Produce", "after_first_produce"), _pair(cells.NETWORK, "Produce")),
    ),
    (
        16,
        "the broker refuses; the transaction is timed out",
        _any(_row(16), lambda cell: cell.who == cells.TIMEOUT),
    ),
    (17, "the checkpoint is deleted", _row(17)),
    (18, "the checkpoint is an older copy", _row(18)),
    (19, "the marker is deleted", _row(19)),
    (20, "Kafka itself loses data: out of scope", lambda cell: False),
    (21, "`commit()` fails after the decision, Spark calls `abort()`", _row(21)),
    (22, "an output topic is deleted inside of a transaction", _row(22)),
    (23, "tasks send: one of them dies, and the stage runs again", _pair(barrier_cells.TASK, "")),
    (
        24,
        "tasks send: one sleeps, and wakes beside the stage's next attempt",
        _pair(barrier_cells.SLEEPER, ""),
    ),
    (
        25,
        "tasks send: the driver dies, all is sent and nothing decided",
        _pair(barrier_cells.PREFIX + cells.DRIVER, *barrier_cells.OPEN),
    ),
    (
        26,
        "tasks send: a driver with its tasks wakes beside its successor",
        _any(
            _pair(barrier_cells.PREFIX + cells.ZOMBIE, ""),
            _pair(barrier_cells.PREFIX + cells.RIVAL, ""),
        ),
    ),
]
