"""Rollback conditions of a shift (`--guard`): a shift is rolled back when the candidate breaks one. Pure.

A condition is evaluated over the last minute, but not over the time before the current share. Shares and quantiles of
few reads mean nothing, so errors and p99 do not count below `FEWEST_READS`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from suiro.errors import UsageError
from suiro.numerals import number
from suiro.streams.durations import milliseconds
from suiro.views.state import ALL, RollbackConditions

FEWEST_READS = 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    """Measurements of the candidate in the last minute of its share. None: not known (yet). `difference`: the share of
    rows that differ."""

    reads: int = 0
    errors: int = 0
    p99_ms: float | None = None
    difference: float | None = None
    lag_ms: int | None = 0


def broken(guards: RollbackConditions, sample: Sample, *, version: int) -> str | None:
    """Returns why the candidate's callers must move back, None if all conditions hold."""
    if sample.reads >= FEWEST_READS:
        share = sample.errors / sample.reads
        if guards.errors is not None and share > guards.errors:
            return (
                f"{sample.errors} of {sample.reads} reads from version {version} failed, {share:.2%}; "
                f"the guard allows {guards.errors:.2%}"
            )
        if guards.p99_ms is not None and sample.p99_ms is not None and sample.p99_ms > guards.p99_ms:
            return (
                f"p99 of {sample.reads} reads from version {version} is {sample.p99_ms:.1f} ms; "
                f"the guard allows {guards.p99_ms:g} ms"
            )
    if guards.lag_ms is not None and (sample.lag_ms is None or sample.lag_ms > guards.lag_ms):
        behind = "an unknown time" if sample.lag_ms is None else f"{sample.lag_ms / 1000:.1f} s"
        return f"version {version} lags by {behind}; the guard allows {guards.lag_ms / 1000:g} s"
    if guards.difference is not None and sample.difference is not None and sample.difference > guards.difference:
        return (
            f"{sample.difference:.2%} of the rows of version {version} differ; the guard allows {guards.difference:.2%}"
        )
    return None


def guards_of(texts: Iterable[str]) -> RollbackConditions:
    """Parses `errors=0.01`, `p99=50ms`, `difference=0.2` (or 20%), `lag=10s`. Raises `UsageError`."""
    found: dict[str, float | int] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        name = name.strip()
        if not equals or name not in ("errors", "p99", "difference", "lag"):
            raise UsageError(f"guard {text!r}: expected errors=0.01, p99=50ms, difference=0.2 or lag=10s")
        if name in ("errors", "difference"):
            found[name] = _share(text, value)
        elif name == "p99":
            found["p99_ms"] = milliseconds(value, what=f"guard {text!r}")
        else:
            found["lag_ms"] = milliseconds(value, what=f"guard {text!r}")
    return RollbackConditions(**found)  # type: ignore[arg-type]


def _share(text: str, value: str) -> float:
    try:
        share = number(value.rstrip().removesuffix("%")) / (100 if value.rstrip().endswith("%") else 1)
    except ValueError:
        share = -1.0
    if not 0 <= share <= 1:
        raise UsageError(f"guard {text!r}: expected a share from 0 to 1, such as 0.01, or 1%")
    return share


def steps_of(text: str) -> tuple[int, ...]:
    """Parses percents, `1,10,50,100`, to basis points. Raises `UsageError`."""
    try:
        steps = tuple(round(number(part.strip().removesuffix("%")) * 100) for part in text.split(","))
    except (ValueError, OverflowError):  # 1e308 is a number, and a hundred times as much is none
        steps = (0,)
    if any(not 0 < step <= ALL for step in steps):
        raise UsageError(f"steps {text!r}: expected percents such as 1,10,50,100")
    return steps
