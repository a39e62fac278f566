"""Rows of a benchmark as people read them: ours, the peer's, the ratio, the target."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median

from rich.console import Console
from rich.table import Table


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    work: str
    unit: str
    peer: str
    ours: tuple[float, ...]
    theirs: tuple[float, ...]
    target: float | None = None
    less_is_better: bool = False

    @property
    def ratio(self) -> float:
        return median(self.ours) / median(self.theirs)

    @property
    def met(self) -> str:
        if self.target is None:
            return ""
        reached = self.ratio <= self.target if self.less_is_better else self.ratio >= self.target
        return "yes" if reached else "no"


def figure(value: float) -> str:
    return f"{value:,.0f}" if value >= 100 else f"{value:.3g}"


def show(title: str, rows: list[Row]) -> None:
    table = Table(title=title)
    for column in ("work", "unit", "suiro", "peer", "peer's name", "ratio", "target", "met"):
        table.add_column(column, justify="left" if column in ("work", "unit", "peer's name") else "right")
    for row in rows:
        sign = "<=" if row.less_is_better else ">="
        table.add_row(
            row.work, row.unit, figure(median(row.ours)), figure(median(row.theirs)), row.peer,
            f"{row.ratio:.2f}", "" if row.target is None else f"{sign} {row.target}", row.met,
        )  # fmt: skip
    Console(width=130).print(table)
