"""Finds the newest kept cuts of two stores that reflect the same input records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING, Any

from suiro.errors import SuiroError, TransientError, UsageError
from suiro.views.cuts import Cut

if TYPE_CHECKING:
    from suiro.views.store.tables import TableStore

NAMED = 5  # partitions, in a message

_Inputs = tuple[frozenset[Any], frozenset[Any]]


class Meeting:
    """Of two stores that go on. A look reads what came since the last one, not all: a day has 100,000 cuts."""

    def __init__(self, old: TableStore, new: TableStore) -> None:
        self._stores = old, new
        self._topics: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self._by_inputs: tuple[dict[_Inputs, Cut], dict[_Inputs, Cut]] = ({}, {})
        self._newest = [-1, -1]
        self._found: tuple[Cut, Cut] | None = None

    def look(self) -> tuple[Cut, Cut] | None:
        """The newest cuts that meet (`Cut.meets`), None where none do. A store may have forgotten one of them by
        now; whoever reads as of them holds both stores (`TableStore.held`), and looks then."""
        tips = [store.cut for store in self._stores]
        if None in tips:
            return None
        topics = shared_topics(*tips)  # type: ignore[arg-type]
        if topics != self._topics:
            self._topics = topics
            self._forget()
        fresh = [
            list(takewhile(lambda cut, seen=seen: cut.number > seen, store.newest_cuts()))  # type: ignore[misc]
            for store, seen in zip(self._stores, self._newest, strict=True)
        ]
        for side, cuts in enumerate(fresh):
            for cut in reversed(cuts):
                self._by_inputs[side][_inputs(cut, topics)] = cut
            if cuts:
                self._newest[side] = cuts[0].number
        ours, theirs = self._by_inputs
        for cut in fresh[0]:
            self._note(cut, theirs.get(_inputs(cut, topics)))
        for other in fresh[1]:
            self._note(ours.get(_inputs(other, topics)), other)
        return self._found

    def _note(self, cut: Cut | None, other: Cut | None) -> None:
        if cut is None or other is None or not cut.meets(other):
            return
        if self._found is None or (cut.number, other.number) > (self._found[0].number, self._found[1].number):
            self._found = cut, other


def common_cut(old: TableStore, new: TableStore) -> tuple[Cut, Cut] | None:
    """The newest kept cuts of the two that reflect the same input records (`Cut.meets`); None where there are none."""
    return Meeting(old, new).look()


def shared_topics(one: Cut, other: Cut) -> frozenset[str]:
    return frozenset({topic for topic, _ in one.inputs} & {topic for topic, _ in other.inputs})


def no_common_cut(old: TableStore, new: TableStore) -> SuiroError:
    """The error for it: what the one lacks that the other has, by partition and offset, and what to do. A `UsageError`
    where waiting would not help."""
    why, may_come = _why_apart(old, new)
    spec = old.spec
    message = (
        f"versions {spec.version} and {new.spec.version} of view {spec.view} have no state at the same offsets that "
        f"both still keep: {why}"
    )
    if not may_come:
        return UsageError(message)
    return TransientError(
        f"{message}. Does the pipeline of the one that lags run (suiro view status {spec.view})? Then wait for it; "
        'or keep more history (@view(..., history="1 day"))'
    )


def _why_apart(old: TableStore, new: TableStore) -> tuple[str, bool]:
    cuts = old.cut, new.cut
    for store, cut in zip((old, new), cuts, strict=True):
        if cut is None:
            return f"version {store.spec.version} has no rows yet", True
    one, other = cuts
    assert one is not None
    assert other is not None
    topics = shared_topics(one, other)
    if not topics:
        return (
            f"version {old.spec.version} reads {_topics(one)}, version {new.spec.version} reads {_topics(other)}: no "
            "topic in common, so no offsets can ever be equal",
            False,
        )
    said = [
        *_lacks(old.spec.version, one, new.spec.version, other, topics),
        *_lacks(new.spec.version, other, old.spec.version, one, topics),
    ]
    for store, cut in zip((old, new), cuts, strict=True):
        assert cut is not None
        if cut.behind:
            waiting = _listed(f"{topic}-{partition}" for topic, partition in sorted(cut.behind))
            said.append(f"version {store.spec.version} has read records that wait for those of {waiting}")
    return "; ".join(said) or "the newest ones have only just met", True


def _lacks(number: int, cut: Cut, there: int, other: Cut, topics: frozenset[str]) -> list[str]:
    missing = [
        f"{topic}-{partition} from offset {cut.inputs.get((topic, partition), 0)} to {end}"
        for (topic, partition), end in sorted(other.inputs.items())
        if topic in topics and cut.inputs.get((topic, partition), 0) < end
    ]
    return [f"version {number} lacks what version {there} has of {_listed(missing)}"] if missing else []


def _listed(parts: Iterable[str]) -> str:
    found = list(parts)
    rest = len(found) - NAMED
    return ", ".join(found[:NAMED]) + (f" and {rest} more partitions" if rest > 0 else "")


def _topics(cut: Cut) -> str:
    return _listed(sorted({topic for topic, _ in cut.inputs})) or "nothing"


def _inputs(cut: Cut, topics: frozenset[str]) -> _Inputs:
    offsets = frozenset(
        (place, offset) for place, offset in cut.inputs.items() if place[0] in topics and offset
    )
    return offsets, cut.behind
