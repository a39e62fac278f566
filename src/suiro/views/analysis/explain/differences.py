"""Explains a whole comparison: explains a few rows of each pattern, and derives the causes of all differences.

Rows of one pattern differ in the same columns and in the same way. If every example of a pattern is explained, all
rows of the pattern count as explained. If a pattern has no more rows than examples, this is exact. Examples whose
versions diverge at the same kind of record have the same cause.
"""

from __future__ import annotations

from dataclasses import dataclass

from suiro.lineage import Log
from suiro.views.analysis.compare.comparison import PATTERNS_EXPLAINED, Comparison
from suiro.views.analysis.compare.text import key_text, rows_text, share_text
from suiro.views.analysis.compare.values import Comparator
from suiro.views.analysis.explain.replay import Key, Side
from suiro.views.analysis.explain.result import Explanation, place_text
from suiro.views.analysis.explain.rows import explain


@dataclass(frozen=True, slots=True, kw_only=True)
class Cause:
    """`text`: the records at which the versions diverge, and what each version does with them. `rows`: the rows of the
    patterns whose examples have this cause. If the examples of a pattern have several causes, each cause gets its share
    of the rows."""

    text: str
    rows: int
    examples: tuple[tuple[Key, str], ...]
    """The key of a row, and the record at which it diverges."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """`seen`: the rows that were explained. `explained`: the rows of their patterns."""

    key_names: tuple[str, ...]
    differing: int
    explained: int
    seen: int
    causes: tuple[Cause, ...]
    unexplained: tuple[tuple[Key, str], ...]
    """The examples without an explanation, and the reasons."""

    def text(self) -> str:
        if not self.differing:
            return "no row differs, so there is nothing to explain"
        lines = [
            f"differences explained: {self.explained:,} of {self.differing:,} rows, "
            f"by {self.seen:,} {'example' if self.seen == 1 else 'examples'}"
        ]
        for cause in self.causes:
            lines.append(f"  {rows_text(cause.rows)} ({share_text(cause.rows, self.differing)}): {cause.text}")
            lines += [f"    {key_text(self.key_names, key)}: from {where} on" for key, where in cause.examples]
        lines += [f"  not explained: {key_text(self.key_names, key)}: {why}" for key, why in self.unexplained]
        return "\n".join(lines)


def explain_differences(comparison: Comparison, old: Side, new: Side, log: Log) -> Explained:
    """`log` ends at the comparison's cut. The sides should have the rows of `comparison.example_keys()`."""
    comparator = Comparator.of(comparison.tolerances, comparison.ignored)
    explanations = explain(comparison.example_keys(), old, new, log, comparator)
    found = {_name(each.key): each for each in explanations}
    groups = [
        (pattern.rows, [example.key for example in pattern.examples])
        for pattern in comparison.patterns[:PATTERNS_EXPLAINED]
    ]
    groups += [
        (side.rows, [key for key, _ in side.examples])
        for side in (comparison.only_old, comparison.only_new)
        if side.rows
    ]
    rows: dict[str, int] = {}
    examples: dict[str, list[tuple[Key, str]]] = {}
    unexplained: list[tuple[Key, str]] = []
    explained = 0
    for count, keys in groups:
        parts = [(key, found[_name(key)]) for key in keys]
        bad = [(key, _why_not(each)) for key, each in parts if not each.is_explained or each.is_equal]
        unexplained += bad
        if bad:
            continue
        explained += count
        for number, (key, each) in enumerate(parts):
            cause = _cause(each)
            # Whole rows, of which the sum is that of the pattern.
            part = count * (number + 1) // len(parts) - count * number // len(parts)
            rows[cause] = rows.get(cause, 0) + part
            examples.setdefault(cause, []).append((key, _where(each)))
    causes = [
        Cause(text=text, rows=part, examples=tuple(examples[text]))
        for text, part in sorted(rows.items(), key=lambda item: (-item[1], item[0]))
    ]
    return Explained(
        key_names=comparison.key,
        differing=comparison.unequal,
        explained=explained,
        seen=len(found) - len(unexplained),
        causes=tuple(causes),
        unexplained=tuple(unexplained),
    )


def _cause(found: Explanation) -> str:
    """Returns the cause without figures, so that rows that differ for the same reason have the same text."""
    old, new = f"v{found.old_version}", f"v{found.new_version}"
    kind = found.parting_kind
    parting = found.parting
    assert parting is not None
    if kind is None:
        return f"records of {parting.place[0]}: {old} and {new} make different rows of them"
    who = f"records of {kind.topic}"
    if kind.traits:
        who += f" with {' and '.join(trait.text for trait in kind.traits)}"
    old_does, new_does = (
        ", ".join(f"{each.column} {each.what}" for each in effects) or "leaves the row as it is"
        for effects in (kind.old, kind.new)
    )
    return f"{who}: {old} {old_does}; {new} {new_does}"


def _where(found: Explanation) -> str:
    parting = found.parting
    assert parting is not None
    kind = found.parting_kind
    more = "" if kind is None or kind.records == 1 else f" ({kind.records:,} such records)"
    return f"{place_text(parting.place)}{more}"


def _why_not(found: Explanation) -> str:
    if found.matches_store is False:
        return "made again from the log, the row is another one than the one served"
    if found.is_equal:
        return "made again from the log, both versions have the same row"
    if not found.is_proven:
        return "the records that were found do not make the rows again"
    return "no record parts the versions"


def _name(key: Key) -> str:
    return repr(tuple(key))
