"""The result of an explanation, as values for JSON and as text for a terminal. `rows` creates it."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from typing import Any

from suiro.foundation.types import TopicPartition
from suiro.lineage import Place
from suiro.views.analysis.compare.text import figure, inputs_text, key_text
from suiro.views.analysis.compare.values import ABSENT, Difference, is_number, plain
from suiro.views.analysis.explain.kinds import Effect, Trait
from suiro.views.analysis.explain.path import Stop
from suiro.views.analysis.explain.replay import Key

VALUE_CHARS = 100
ROW_COLUMNS_SHOWN = 12


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """The effect of a record in one version. `columns`: (before, after), the changed ones first; empty if the row did
    not change. `at`: where in the topology the versions diverge. `dropped`: the counted reasons for dropping it."""

    changed: bool
    columns: Mapping[str, tuple[Any, Any]]
    at: Stop | None = None
    dropped: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Decided:
    """A record that the versions treat differently."""

    place: Place
    timestamp: int
    key: Any
    value: Any
    number: int
    """Its position among the records of the row, from 1 on."""
    old: Turn
    new: Turn


@dataclass(frozen=True, slots=True, kw_only=True)
class Kind:
    """Records with the same effects: how many, the effects in each version, common traits, and a few of them."""

    topic: str
    records: int
    old: tuple[Effect, ...]
    new: tuple[Effect, ...]
    traits: tuple[Trait, ...]
    others: int
    """The other records of the row in this topic. `Trait.others` is a part of them."""
    examples: tuple[Decided, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """`named`: the records that both rows come from, in order. `is_proven`: these records alone make both rows.
    `matches_store`: whether the replayed rows equal those of the versions' stores; None without rows from a store."""

    key: Key
    key_names: tuple[str, ...]
    old_version: int
    new_version: int
    inputs: Mapping[TopicPartition, int]
    old_row: Mapping[str, Any] | None
    new_row: Mapping[str, Any] | None
    differences: tuple[Difference, ...]
    named: tuple[Place, ...]
    old_records: int
    new_records: int
    alike: int
    read: int
    parting: Decided | None
    kind_of_parting: int | None
    kinds: tuple[Kind, ...]
    kinds_left_out: int
    """The records of kinds beyond those that are kept."""
    is_proven: bool
    matches_store: bool | None
    records_read: int

    @property
    def is_equal(self) -> bool:
        return not self.differences

    @property
    def parting_kind(self) -> Kind | None:
        """The kind of the record at which the rows diverge."""
        return None if self.kind_of_parting is None else self.kinds[self.kind_of_parting]

    @property
    def is_explained(self) -> bool:
        """The record at which the rows diverge is known, and the named records make both rows."""
        return self.is_proven and self.matches_store is not False and (self.is_equal or self.parting is not None)

    def to_json(self) -> dict[str, Any]:
        found = asdict(self)
        found["inputs"] = [[topic, partition, end] for (topic, partition), end in sorted(self.inputs.items())]
        found["differences"] = [
            [each.column, each.kind, plain(each.old), plain(each.new), each.size] for each in self.differences
        ]
        found["records"] = len(self.named)
        return found


def text_of(found: Explanation, *, full: bool = False) -> str:
    """`full`: also list all records."""
    old, new = f"v{found.old_version}", f"v{found.new_version}"
    lines = [f"{key_text(found.key_names, found.key)}, from {inputs_text(found.inputs)}", ""]
    lines += _rows(found, old, new)
    lines += ["", _sources(found, old, new)]
    if found.parting is not None:
        kind = found.parting_kind
        like = "" if kind is None or kind.records == 1 else f"; {_records(kind.records)} are like it"
        lines += [
            "",
            f"they part at record {found.parting.number:,} of {len(found.named):,}{like}",
            *_decided(found.parting, found, old, new),
        ]
    if found.kinds:
        lines += ["", "what the records do to the row"]
        if found.alike:
            lines.append(f"  {_records(found.alike)}: the same in {old} and {new}")
        for kind in found.kinds:
            lines += _kind(kind, old, new)
        if found.kinds_left_out:
            lines.append(f"  {_records(found.kinds_left_out)} of further kinds")
        if found.read:
            lines.append(f"  {_records(found.read)}: read while others changed the row")
    lines += ["", *_proof(found, old, new)]
    if full:
        lines += ["", "all records", *(f"  {place_text(place)}" for place in found.named)]
    return "\n".join(lines)


def _rows(found: Explanation, old: str, new: str) -> list[str]:
    if found.old_row is None and found.new_row is None:
        return [f"  neither {old} nor {new} has this row"]
    lines = []
    for row, name, other in ((found.old_row, old, new), (found.new_row, new, old)):
        if row is None:
            lines.append(f"  only {other} has this row, {name} does not")
    if lines:
        row = found.old_row or found.new_row or {}
        width = max((len(name) for name in row), default=0)
        return lines + [f"  {name:<{width}}  {_value(each)}" for name, each in list(row.items())[:ROW_COLUMNS_SHOWN]]
    if found.is_equal:
        return [f"  {old} and {new} have the same row"]
    shown = found.differences[:ROW_COLUMNS_SHOWN]
    cells = [(each.column, _value(each.old), _value(each.new), _apart(each.old, each.new)) for each in shown]
    widths = [max(len(cell[index]) for cell in (*cells, ("", old, new))) for index in range(3)]
    lines = [f"  {'':<{widths[0]}}  {old:>{widths[1]}}  {new:>{widths[2]}}"]
    lines += [
        f"  {name:<{widths[0]}}  {left:>{widths[1]}}  {right:>{widths[2]}}  {apart}".rstrip()
        for name, left, right, apart in cells
    ]
    if len(found.differences) > len(shown):
        lines.append(f"  and {len(found.differences) - len(shown)} more columns")
    return lines


def _sources(found: Explanation, old: str, new: str) -> str:
    total = len(found.named)
    if found.old_records == found.new_records == total:
        return f"both rows come from the same {_records(total)}"
    return (
        f"{old}'s row comes from {_records(found.old_records)}, {new}'s from {found.new_records:,}; together {total:,}"
    )


def _decided(found: Decided, explanation: Explanation, old: str, new: str) -> list[str]:
    kind = explanation.parting_kind
    traits = f" ({' and '.join(trait.text for trait in kind.traits)})" if kind is not None and kind.traits else ""
    lines = [
        f"  {place_text(found.place)}{traits}  {_moment(found.timestamp)}  key {_short(found.key)}",
        f"    value {_short(found.value)}",
    ]
    width = max(len(old), len(new))
    for turn, other, name in ((found.old, found.new, old), (found.new, found.old, new)):
        lines.append(f"    {name:<{width}}  {_turn(turn)}")
        why = _why(turn, other)
        if why:
            lines.append(f"    {'':<{width}}  {why}")
    return lines


def _turn(turn: Turn) -> str:
    if not turn.changed:
        return "unchanged"
    return ", ".join(f"{name} {_value(before)} -> {_value(after)}" for name, (before, after) in turn.columns.items())


def _why(turn: Turn, other: Turn) -> str:
    parts = []
    if turn.dropped:
        parts.append(f"left out, for {' and '.join(turn.dropped)}")
    if turn.at is not None and not turn.at.goes_on:
        parts.append(f"goes no further than {_node(turn.at)}")
    elif turn.at is not None and (other.at is None or other.at.goes_on):
        parts.append(_made_of(turn.at))
    return "; ".join(parts)


def _made_of(stop: Stop) -> str:
    if stop.gives is None or "Aggregate" in stop.operator:
        return _node(stop)  # the change of the row shows the result of an aggregate
    key, value = stop.gives
    made = _short(value) if key == stop.key else f"key {_short(key)}, {_short(value)}"
    return f"{_node(stop)} makes {made}"


def _node(stop: Stop) -> str:
    return f"{stop.node} ({stop.function})" if stop.function else stop.node


def _kind(kind: Kind, old: str, new: str) -> list[str]:
    lines = [
        f"  {_records(kind.records)} of {kind.topic}: {old} {effects_text(kind.old)}; {new} {effects_text(kind.new)}"
    ]
    if kind.traits:
        lines.append(f"    {_traits(kind.traits, kind)}")
    names = ", ".join(place_text(each.place) for each in kind.examples)
    lines.append(f"    {'such as ' if kind.records > len(kind.examples) else ''}{names}")
    return lines


def effects_text(effects: Sequence[Effect]) -> str:
    if not effects:
        return "unchanged"
    return ", ".join(_effect(each) for each in effects)


def _effect(effect: Effect) -> str:
    if effect.what == "stays":
        return f"{effect.column} +0"
    if effect.least is None or effect.most is None:
        return f"{effect.column} {effect.what}"
    least, most = _signed(effect.least), _signed(effect.most)
    return f"{effect.column} {least}" if least == most else f"{effect.column} {least} to {most}"


def _traits(traits: Sequence[Trait], kind: Kind) -> str:
    said = " and ".join(trait.text for trait in traits)
    everyone = "all of them have" if kind.records > 1 else "it has"
    others = min(trait.others for trait in traits)
    if not kind.others:
        return f"{everyone} {said}"
    rest = f"the other {kind.others:,}"
    return f"{everyone} {said}, {'none' if not others else f'{others:,}'} of {rest} has"


def _proof(found: Explanation, old: str, new: str) -> list[str]:
    if found.is_proven:
        lines = [f"tried: these {_records(len(found.named))} alone make both rows again"]
    else:
        lines = [
            f"NOT proven: the {_records(len(found.named))} named do not make both rows again when they run alone; a "
            "function of the topology may depend on more than its records"
        ]
    if found.matches_store is False:
        lines.append(
            f"NOT the stored rows: made again from the log, the rows of {old} and {new} are others than those served. "
            "A function may depend on the order of partitions, on time or on chance"
        )
    return lines


def place_text(place: tuple[str, int, int]) -> str:
    topic, partition, offset = place
    return f"{topic}-{partition}@{offset}"


def _records(count: int) -> str:
    return f"{count:,} record" if count == 1 else f"{count:,} records"


def _moment(timestamp: int) -> str:
    try:
        return datetime.fromtimestamp(timestamp / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")[:-3].removesuffix(".000")
    except (ValueError, OverflowError, OSError):
        return f"{timestamp} ms"


def _apart(old: Any, new: Any) -> str:
    if is_number(old) and is_number(new):
        with suppress(OverflowError):  # beyond all floats
            return _signed(new - old)
    return ""


def _signed(number: float) -> str:
    return f"+{figure(number)}" if number > 0 else figure(number)


def _value(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.2f}" if abs(value) >= 1e5 else f"{value:.6g}"
    if isinstance(value, int) and not isinstance(value, bool):
        return f"{value:,}"
    return "-" if value is ABSENT else value if isinstance(value, str) else _short(value)


def _short(value: Any) -> str:
    """Shortens a value. If it is cut, lists null fields first."""
    if isinstance(value, Mapping):
        nulls = [name for name, each in value.items() if each is None]
        text = _text(value)
        if len(text) > VALUE_CHARS and nulls:
            return f"({', '.join(f'{name} null' for name in nulls[:4])}) {text[: VALUE_CHARS - 1]}…"
    text = value if isinstance(value, str) else _text(value)
    return text if len(text) <= VALUE_CHARS else f"{text[: VALUE_CHARS - 1]}…"


def _text(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, default=str)
