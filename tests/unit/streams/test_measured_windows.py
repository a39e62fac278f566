"""Random records give, record by record, what Kafka Streams gave for them; see `tests/vectors/windows/measured.txt`."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from suiro.streams.topology.nodes import (
    SessionAggregate,
    SlidingAggregate,
    Suppress,
    TableSource,
    TimeWindowAggregate,
)
from suiro.streams.windows import EmitStrategy, SessionWindows, SlidingWindows, TimeWindows
from tests.support.stream_operators import AGGREGATE, Operators, store

MEASURED = Path(__file__).parents[2] / "vectors" / "windows" / "measured.txt"
LINES = [line for line in MEASURED.read_text().splitlines() if not line.startswith("#")]


def lines(limits: bool) -> list[Any]:
    numbered = enumerate(line for line in LINES if line.startswith("limit") is limits)
    return [pytest.param(line, id=f"{line.split(';')[0]} #{number}") for number, line in numbered]


def operators_of(name: str, size: int, advance: int, grace: int, emission: str) -> Operators:
    windows: Any
    operator: Any
    settings: dict[str, Any] = {
        "aggregation": AGGREGATE,
        "store": "store",
        "emit": EmitStrategy.ON_WINDOW_CLOSE if emission == "F" else EmitStrategy.ON_WINDOW_UPDATE,
    }
    match name:
        case "time":
            windows = TimeWindows.of_size(size, advance=advance, grace=grace)
            operator = TimeWindowAggregate(windows=windows, **settings)
        case "sliding":
            windows = SlidingWindows.of_difference(size, grace=grace)
            operator = SlidingAggregate(windows=windows, **settings)
        case "session":
            windows = SessionWindows.of_gap(size, grace=grace)
            operator = SessionAggregate(windows=windows, merger=lambda key, left, right: f"{left}|{right}", **settings)
    kind = "session" if name == "session" else "window"
    spec = store(kind, retention_ms=windows.retention_ms, window_size_ms=size)
    if emission != "S":
        return Operators([operator], [spec])
    suppress = Suppress(store="buffer", closing_delay_ms=windows.closing_delay_ms, inclusive_end=name != "time")
    return Operators([operator, suppress], [spec, store("buffer", "buffer")])


@pytest.mark.parametrize("reloads", [False, True], ids=["one task", "reloaded"])
@pytest.mark.parametrize("line", lines(limits=False))
def test_windows(line: str, reloads: bool) -> None:
    operator, events, dropped, results = line.split(";")
    name, size, advance, grace, emission = operator.split()
    run = operators_of(name, int(size), int(advance), int(grace), emission)
    for number, (event, wanted) in enumerate(zip(events.split(), results.split("/"), strict=True)):
        key, timestamp = event.split("@")
        came = run.send(key, int(timestamp), str(number))
        assert [_text(row) for row in came] == [row for row in wanted.strip().split(",") if row], event
        if reloads:
            run.reload()
    assert run.dropped_total == int(dropped)


@pytest.mark.parametrize("line", lines(limits=True))
def test_suppress_by_limits(line: str) -> None:
    operator, events, _, results = line.split(";")
    _, limit, most = operator.split()
    run = Operators(
        [
            TableSource(store="rows"),
            Suppress(store="buffer", time_limit_ms=int(limit), max_records=int(most)),
        ],
        [store("key-value", "rows"), store("buffer", "buffer")],
    )
    for number, (event, wanted) in enumerate(zip(events.split(), results.split("/"), strict=True)):
        key, timestamp = event.split("@")
        came = run.send(key, int(timestamp), None if number % 4 == 3 else str(number))
        assert [_text(row) for row in came] == [row for row in wanted.strip().split(",") if row], event


def test_every_kind_was_measured() -> None:
    kinds = {(line.split()[0], line.split(";")[0].split()[-1]) for line in LINES if line[0] != "l"}
    assert kinds == {(n, e) for n in ("time", "sliding", "session") for e in "UF"} | {("time", "S")}


def _text(row: tuple[Any, ...]) -> str:
    return " ".join("null" if part is None else str(part) for part in row)
