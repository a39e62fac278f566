"""Explains why a row differs between two versions of a view: its input records, and where the versions diverge.

Both rows are made again from the log, up to one cut, by the interpreter (`replay`). Every record that a row is made of
is named by topic, partition and offset. The explanation is then verified: these records alone must make the same rows.
The effects of the records on the row, in order, show the first record at which the versions diverge, and similar
records (`kinds`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Literal

from suiro.lineage import InputRecord, Log, Place, source_of
from suiro.streams.serdes.block_forms import decode_rows
from suiro.streams.topology.nodes import Source
from suiro.views.analysis.compare.values import ABSENT, Columns, Comparator, columns_of, is_number, plain
from suiro.views.analysis.explain.kinds import Group, RowEffect, sort_records, traits_of
from suiro.views.analysis.explain.path import Path, Stop, parted, paths_of, shown
from suiro.views.analysis.explain.replay import Key, Replay, RowKey, Side, Traced, replay, reproduces
from suiro.views.analysis.explain.result import Decided, Explanation, Kind, Turn

EXAMPLES = 3
KINDS = 6
TRAITS_LOOK_AT = 100_000
PATH_RECORDS_MAX = 2_000
COLUMNS_SHOWN = 6


def explain(keys: Sequence[Key], old: Side, new: Side, log: Log, comparator: Comparator) -> list[Explanation]:
    """Explains several keys in one pass over the log. `log` ends at the cut that both versions' rows reflect. Versions
    that live have the same key columns (`lifecycle.check_deploy`), and the caller has checked the keys."""
    wanted = list(dict.fromkeys(map(RowKey, keys)))
    if not wanted:
        return []
    records: dict[Place, InputRecord] = {}
    runs = tuple(_made_again(side, wanted, log, records) for side in (old, new))
    return [_Case(key, runs, records, log, comparator).explained() for key in wanted]


def _made_again(side: Side, keys: Sequence[Key], log: Log, records: dict[Place, InputRecord]) -> Replay:
    """Replays without the records of other keys. If the rows are not those of the store then, replays all records."""
    found = replay(side, keys, log, records)
    if found.is_filtered:
        checked = [key for key in keys if key in side.rows]
        agrees = all(columns_of(_row_text(side, found.traced[key])) == columns_of(side.rows[key]) for key in checked)
        if not agrees or (found.sees_time and len(checked) < len(keys)):
            found = replay(side, keys, log, records, filtered=False)
    return found


def _row_text(side: Side, traced: Traced) -> str | None:
    if traced.row is None or traced.key_bytes is None:
        return None
    return side.codec.decode([traced.key_bytes], [traced.row])[1][0]


class _Case:
    """The explanation of one key."""

    def __init__(
        self,
        key: Key,
        runs: tuple[Replay, ...],
        records: Mapping[Place, InputRecord],
        log: Log,
        comparator: Comparator,
    ) -> None:
        self._key = key
        self._runs = runs
        self._old, self._new = runs
        self._records = records
        self._log = log
        self._comparator = comparator
        self._orders_agree = _reads(self._old.side) == _reads(self._new.side)

    def explained(self) -> Explanation:
        old, new = self._old.traced[self._key], self._new.traced[self._key]
        rows = [_row_text(run.side, run.traced[self._key]) for run in self._runs]
        before, after = columns_of(rows[0]), columns_of(rows[1])
        differences = tuple(self._comparator.differences(before, after))
        named, is_proven = self._named()
        rows_after: tuple[dict[Place, Columns], dict[Place, Columns]] = ({}, {})
        row_effects = (
            self._row_effects(self._old, set(named), rows_after[0]),
            self._row_effects(self._new, set(named), rows_after[1]),
        )
        groups, alike, read = sort_records(named, *row_effects)
        first = self._parting(named, rows_after) if differences else None
        numbers = {place: number for number, place in enumerate(named, 1)}
        chosen = list(dict.fromkeys(p for group in groups[:KINDS] for p in group.places[:EXAMPLES]))
        if first is not None and first not in chosen:
            chosen.append(first)
        paths = [self._paths(run, chosen, named) for run in self._runs]
        decided = {place: self._decided(place, numbers[place], row_effects, paths) for place in chosen}
        return Explanation(
            key=self._key,
            key_names=self._old.side.codec.key,
            old_version=self._old.side.version,
            new_version=self._new.side.version,
            inputs=dict(self._log.ends),
            old_row=None if rows[0] is None else before,
            new_row=None if rows[1] is None else after,
            differences=differences,
            named=tuple(named),
            old_records=len(old.sources() & set(named)),
            new_records=len(new.sources() & set(named)),
            alike=len(alike),
            read=len(read),
            parting=None if first is None else decided[first],
            kind_of_parting=next((n for n, group in enumerate(groups[:KINDS]) if first in group.places), None),
            kinds=tuple(self._kind(group, groups, alike, decided) for group in groups[:KINDS]),
            kinds_left_out=sum(len(group.places) for group in groups[KINDS:]),
            is_proven=is_proven,
            matches_store=self._matches_store(rows),
            records_read=max(self._old.read, self._new.read),
        )

    def _named(self) -> tuple[list[Place], bool]:
        """Returns the first of the candidates that makes both rows, and whether there is one; else the last."""
        for places in self._candidates():
            found = self._in_order(place for place in places if place in self._records)
            if all(self._is_enough(run, found) for run in self._runs):
                return found, True
        return found, False

    def _candidates(self) -> Iterator[set[Place]]:
        """Yields sets of records, the smallest first."""
        old, new = self._old.traced[self._key], self._new.traced[self._key]
        if all(len(traced.steps) > 1 for traced in (old, new)):
            last = {traced.steps[-1].place for traced in (old, new)}
            yield {place for place in last if place is not None}
        yield old.sources() | new.sources()
        waited = old.sources(with_triggers=True) | new.sources(with_triggers=True)
        for run in self._runs:
            waited |= {run.after[place] for place in waited if place in run.after}
        yield waited
        yield set(self._records)

    def _is_enough(self, run: Replay, places: list[Place]) -> bool:
        traced = run.traced[self._key]
        if run.is_pure and traced.kept <= set(places):
            return True  # the run had nothing else for this key
        theirs = [self._records[place] for place in self._of_side(run, places)]  # in the version's own order
        return reproduces(run.side, self._key, traced.row, theirs)

    def _of_side(self, run: Replay, places: Iterable[Place]) -> list[Place]:
        """Returns the records that the version reads, in its own order."""
        topics = set(run.side.topology.source_topics)
        found = [place for place in places if place[0] in topics]
        return sorted(found, key=lambda place: self._order_of(run, place))

    def _order_of(self, run: Replay, place: Place) -> tuple[int, int, Place]:
        other = self._new if run is self._old else self._old
        number = run.order.get(place)
        if number is None and self._orders_agree:
            number = other.order.get(place)
        if number is not None:
            return 0, number, place
        return 1, self._records[place].timestamp, place

    def _in_order(self, places: Iterable[Place]) -> list[Place]:
        found = list(places)
        if self._orders_agree:
            return sorted(found, key=lambda place: self._order_of(self._old, place))
        return self._interleaved(self._of_side(self._old, found), self._of_side(self._new, found))

    def _interleaved(self, old: Sequence[Place], new: Sequence[Place]) -> list[Place]:
        """Merges two orders that may have only some records in common. Keeps each order as far as the other allows."""
        shared = set(old) & set(new)
        found: dict[Place, None] = {}
        i = j = 0
        while i < len(old) and j < len(new):
            left, right = old[i], new[j]
            if right in found:
                j += 1
            elif left in found:
                i += 1
            elif left in shared and right not in shared:
                found[right] = None
            elif left not in shared and right not in shared:
                found[min(left, right, key=lambda place: (self._records[place].timestamp, place))] = None
            else:
                found[left] = None
        return list(found | dict.fromkeys(old[i:]) | dict.fromkeys(new[j:]))

    def _row_effects(self, run: Replay, named: set[Place], rows_after: dict[Place, Columns]) -> dict[Place, RowEffect]:
        """Returns the effect of each record on the row and the aggregate behind it. Puts the row after it, without the
        aggregate, into `rows_after`."""
        traced, side = run.traced[self._key], run.side
        if traced.key_bytes is None:
            return {}
        steps = [step for step in traced.steps if step.place is not None and step.place in named]
        _, texts = side.codec.decode([traced.key_bytes] * len(steps), [step.row for step in steps])
        states = _States(side)
        found: dict[Place, RowEffect] = {}
        before: Columns = {}
        for step, text in zip(steps, texts, strict=True):
            assert step.place is not None
            after = columns_of(text)
            found[step.place] = RowEffect.of(
                states.columns(step.state, 1, before), states.columns(step.state, 2, after)
            )
            rows_after[step.place] = before = after
        return found

    def _parting(
        self, named: Sequence[Place], rows_after: tuple[Mapping[Place, Columns], Mapping[Place, Columns]]
    ) -> Place | None:
        """Returns the first record after which the rows differ."""
        rows: list[Columns] = [{}, {}]
        for place in named:
            acted = False
            for index, side in enumerate(rows_after):
                if place in side:
                    acted, rows[index] = True, side[place]
            if acted and self._comparator.differences(rows[0], rows[1]):
                return place
        return None

    def _paths(self, run: Replay, chosen: Sequence[Place], named: Sequence[Place]) -> dict[Place, Path]:
        topics = set(run.side.topology.source_topics)
        places = [place for place in chosen if place[0] in topics]
        wanted = set(places) | {run.after[place] for place in places if place in run.after}
        if len(named) <= PATH_RECORDS_MAX:
            wanted |= set(named)
        else:
            own = {place[0] for place in places}
            wanted |= set([place for place in named if place[0] not in own][:PATH_RECORDS_MAX])
        return paths_of(run.side, places, [self._records[place] for place in self._of_side(run, wanted)])

    def _decided(
        self,
        place: Place,
        number: int,
        row_effects: tuple[Mapping[Place, RowEffect], Mapping[Place, RowEffect]],
        paths: Sequence[Mapping[Place, Path]],
    ) -> Decided:
        record = self._records[place]
        old_path, new_path = (side.get(place, Path()) for side in paths)
        old_at, new_at = parted(old_path, new_path)
        return Decided(
            place=place,
            timestamp=record.timestamp,
            key=shown(self._decoded(record, "key", record.key)),
            value=shown(self._value(place)),
            number=number,
            old=_turn(row_effects[0].get(place), old_at, old_path),
            new=_turn(row_effects[1].get(place), new_at, new_path),
        )

    def _kind(
        self, group: Group, groups: Sequence[Group], alike: Sequence[Place], decided: Mapping[Place, Decided]
    ) -> Kind:
        inside = set(group.places)
        others = [
            place
            for place in (*alike, *(p for other in groups for p in other.places))
            if place[0] == group.topic and place not in inside
        ]
        traits = traits_of(
            self._values(group.topic, group.places[:TRAITS_LOOK_AT]),
            self._values(group.topic, others[:TRAITS_LOOK_AT]),
        )
        return Kind(
            topic=group.topic,
            records=len(group.places),
            old=group.old,
            new=group.new,
            traits=traits,
            others=len(others),
            examples=tuple(decided[place] for place in group.places[:EXAMPLES]),
        )

    def _values(self, topic: str, places: Sequence[Place]) -> list[Any]:
        """Returns the values of records of one topic."""
        node = source_of(self._old.side.topology, topic) or source_of(self._new.side.topology, topic)
        if node is None or not isinstance(node.operator, Source):
            return [self._value(place) for place in places]
        values, failed = decode_rows(node.operator.value, [self._records[place].value for place in places], topic)
        for row in failed:
            values[row] = self._value(places[row])
        return values

    def _value(self, place: Place) -> Any:
        record = self._records[place]
        return self._decoded(record, "value", record.value)

    def _decoded(self, record: InputRecord, part: str, data: bytes | None) -> Any:
        if data is None:
            return None
        for run in self._runs:
            node = source_of(run.side.topology, record.topic)
            if node is not None and isinstance(node.operator, Source):
                try:
                    return getattr(node.operator, part).deserialize(record.topic, data)
                except Exception:  # noqa: BLE001 - what the version could not read either, or was told to skip
                    continue
        return data.decode("utf-8", "backslashreplace")

    def _matches_store(self, rows: Sequence[str | None]) -> bool | None:
        asked = [
            columns_of(text) == columns_of(run.side.rows[self._key])
            for run, text in zip(self._runs, rows, strict=True)
            if self._key in run.side.rows
        ]
        return all(asked) if asked else None


class _States:
    """The aggregates behind a row, as additional columns."""

    def __init__(self, side: Side) -> None:
        self._specs: dict[str, Any] = {spec.name: spec for spec in side.topology.stores}
        self._last: tuple[str, bytes, Any] = ("", b"", None)
        """The last value read. The aggregate after a record is the one before the next."""

    def columns(
        self, state: tuple[str, bytes | None, bytes | None] | None, index: Literal[1, 2], row: Columns
    ) -> Columns:
        """Returns the columns of the aggregate and the row. If both have a name, the row's value counts."""
        if state is None:
            return row
        data, spec = state[index], self._specs.get(state[0])
        if data is None or spec is None:
            return row
        if spec.kind in ("key-value", "window"):
            data = data[8:]  # behind the row's timestamp
        store, last, value = self._last
        if store != spec.name or last != data:
            value = spec.value.deserialize(f"{spec.name}-changelog", data)
            self._last = spec.name, data, value
        if isinstance(value, dict):
            return {**{str(name): each for name, each in value.items()}, **row}
        if isinstance(value, list | tuple):
            return {**{f"aggregate[{number}]": each for number, each in enumerate(value[:50])}, **row}
        return row if row.keys() == {"value"} else {"aggregate": value, **row}


def _reads(side: Side) -> tuple[Any, ...]:
    """The topics and timestamps that the order of a version's input depends on."""
    sources = [node.operator for node in side.topology.nodes if isinstance(node.operator, Source)]
    return tuple(sorted((topic, repr(each.timestamp)) for each in sources for topic in each.topics))


def _turn(effect: RowEffect | None, at: Stop | None, path: Path) -> Turn:
    if effect is None or not effect.changes:
        return Turn(changed=False, columns={}, at=at, dropped=path.dropped)
    rest = [column for column in effect.after if column not in effect.changes and is_number(effect.after[column])]
    names = [*effect.changes, *rest][:COLUMNS_SHOWN]
    columns = {name: (plain(effect.before.get(name, ABSENT)), plain(effect.after.get(name, ABSENT))) for name in names}
    return Turn(changed=True, columns=columns, at=at, dropped=path.dropped)
