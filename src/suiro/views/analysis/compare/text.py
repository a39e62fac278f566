"""Formats a comparison for a terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from suiro.foundation.types import TopicPartition
from suiro.views.analysis.compare.comparison import ColumnDifferences, Comparison, Kind, OnlyThere, Pattern
from suiro.views.cuts import Cut

PATTERNS_SHOWN = 8
COLUMNS_SHOWN = 12


def text_of(found: Comparison) -> str:
    old, new = f"v{found.old_version}", f"v{found.new_version}"
    lines = [
        f"{old} and {new} at the same input: {inputs_text(found.new_cut)}",
        "",
        *_verdict(found, old, new),
    ]
    if found.columns:
        lines += ["", "by column"]
        width = max(len(each.column) for each in found.columns[:COLUMNS_SHOWN])
        for column in found.columns[:COLUMNS_SHOWN]:
            lines += _column(column, width, old, new)
        if len(found.columns) > COLUMNS_SHOWN:
            lines.append(f"  and {len(found.columns) - COLUMNS_SHOWN} more columns")
    if found.patterns:
        lines += ["", "by pattern"]
        for pattern in found.patterns[:PATTERNS_SHOWN]:
            lines += _pattern(pattern, found, old, new)
        rest = found.patterns[PATTERNS_SHOWN:]
        beyond = sum(each.rows for each in rest) + found.patterns_left_out
        if beyond:
            lines.append(f"  {rows_text(beyond)} in further patterns")
    lines += _alone(found.key, found.only_old, old, new) + _alone(found.key, found.only_new, new, old)
    return "\n".join(lines)


def _verdict(found: Comparison, old: str, new: str) -> list[str]:
    total = found.rows
    rows = [
        ("equal", found.equal),
        ("differing", found.differing),
        (f"only in {old}", found.only_old.rows),
        (f"only in {new}", found.only_new.rows),
    ]
    width = max(len(f"{count:,}") for _, count in rows)
    lines = [f"  {name:<12} {count:>{width},}  {share_text(count, total)}".rstrip() for name, count in rows]
    how = []
    if found.tolerances:
        how.append("tolerance " + ", ".join(f"{name} {each}" for name, each in found.tolerances.items()))
    if found.ignored:
        how.append("ignored " + ", ".join(found.ignored))
    if how:
        near = f"; {found.near:,} are equal only so" if found.near else ""
        lines.append(f"  ({'; '.join(how)}{near})")
    return lines


def _column(found: ColumnDifferences, width: int, old: str, new: str) -> list[str]:
    lines = []
    for index, kind in enumerate(found.kinds):
        name = found.column if index == 0 else ""
        lines.append(f"  {name:<{width}}  {_named(kind.kind, old, new)} in {rows_text(kind.rows)}{_sizes(kind)}")
    return lines


def _sizes(kind: Kind) -> str:
    if kind.smallest is None or kind.largest is None or kind.total is None:
        return ""
    if kind.smallest == kind.largest:
        return f", by {figure(kind.largest)}" + (" each" if kind.rows > 1 else "")
    text = f", by {figure(kind.smallest)} to {figure(kind.largest)}, {figure(kind.total / kind.rows)} on average"
    if len(kind.decades) > 2:
        text += " (" + ", ".join(f"{rows:,} from {figure(10.0**power)}" for power, rows in kind.decades) + ")"
    return text


def _pattern(pattern: Pattern, found: Comparison, old: str, new: str) -> list[str]:
    name = ", ".join(f"{column} {_named(kind, old, new)}" for column, kind in pattern.columns)
    lines = [f"  {rows_text(pattern.rows)}, {share_text(pattern.rows, found.unequal)} of what differs: {name}"]
    for example in pattern.examples:
        shown = ", ".join(
            f"{column} {_value(before)} -> {_value(after)}"
            for column, (before, after) in list(example.columns.items())[:4]
        )
        more = len(example.columns) - 4
        lines.append(f"    {key_text(found.key, example.key)}: {shown}" + (f" and {more} more" if more > 0 else ""))
    return lines


def _alone(key: Sequence[str], found: OnlyThere, there: str, other: str) -> list[str]:
    if not found.rows:
        return []
    lines = ["", f"only in {there}: {rows_text(found.rows)} that {other} does not have"]
    return lines + [f"    {key_text(key, each)}: {_value(value)}" for each, value in found.examples]


def _named(kind: str, old: str, new: str) -> str:
    """Replaces "old" and "new" by the versions' names."""
    for word, name in (("old", old), ("new", new)):
        kind = " ".join(name if part.strip(",") == word else part for part in kind.replace(",", " ,").split(" "))
    return kind.replace(" ,", ",")


def key_text(names: Sequence[str], key: Sequence[Any]) -> str:
    return ", ".join(f"{name}={_value(part)}" for name, part in zip(names, key, strict=True))


def rows_text(count: int) -> str:
    return f"{count:,} row" if count == 1 else f"{count:,} rows"


def share_text(part: int, whole: int) -> str:
    if not whole:
        return ""
    share = 100 * part / whole
    if part and share < 0.01:
        return "less than 0.01 %"
    return f"{share:.2f} %" if 0 < share < 1 or 99 < share < 100 else f"{share:.1f} %"


def inputs_text(cut: Cut | Mapping[TopicPartition, int]) -> str:
    """Lists the offsets by partition, or by topic if there are many."""
    inputs = cut.inputs if isinstance(cut, Cut) else cut
    if len(inputs) <= 4:
        return ", ".join(f"{topic}-{partition}@{offset:,}" for (topic, partition), offset in sorted(inputs.items()))
    topics: dict[str, list[int]] = {}
    for (topic, _), offset in sorted(inputs.items()):
        topics.setdefault(topic, []).append(offset)
    return ", ".join(
        f"{topic} ({len(offsets)} partitions, {sum(offsets):,} offsets)" for topic, offsets in topics.items()
    )


def figure(number: float) -> str:
    """Formats a number with a readable number of digits."""
    if abs(number) < 1e15 and number == int(number):
        return f"{int(number):,}"
    if abs(number) >= 1000:
        return f"{number:,.1f}"
    return f"{number:.4g}"


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:.6g}"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
