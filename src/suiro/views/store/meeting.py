"""Finds the newest kept cuts of two stores that reflect the same input records."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import takewhile
from typing import TYPE_CHECKING

from suiro.errors import SuiroError, TransientError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.views.cuts import Cut

if TYPE_CHECKING:
    from suiro.views.store.tables import Store

NAMED = 5  # partitions, in a message

_Inputs = tuple[frozenset[tuple[TopicPartition, int]], frozenset[TopicPartition]]
"""A cut's offsets of the topics that both stores read, and the partitions that it is behind in."""


class Meeting:
    """Finds the common cuts of two stores that are still written. Each look reads only the cuts that are new since the
    last one: a day has 100,000."""

    def __init__(self, old: Store, new: Store) -> None:
        self._stores = old, new
        self._topics: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self._by_inputs: tuple[dict[_Inputs, Cut], dict[_Inputs, Cut]] = ({}, {})
        self._newest = [-1, -1]
        self._found: tuple[Cut, Cut] | None = None

    def look(self) -> tuple[Cut, Cut] | None:
        """Returns the newest cuts that meet (`Cut.meets`), None if no cuts do. A store may forget one of them at any
        time. To read as of them, hold both stores first (`Store.held`)."""
        old, new = (store.cut for store in self._stores)
        if old is None or new is None:
            return None
        topics = old.topics & new.topics

        def inputs(cut: Cut) -> _Inputs:
            return cut.offsets_of(topics), cut.behind

        if topics != self._topics:
            self._topics = topics
            self._forget()
        fresh = [
            list(takewhile(lambda cut, seen=seen: cut.number > seen, store.newest_cuts()))  # type: ignore[misc]
            for store, seen in zip(self._stores, self._newest, strict=True)
        ]
        for side, cuts in enumerate(fresh):
            for cut in reversed(cuts):
                self._by_inputs[side][inputs(cut)] = cut
            if cuts:
                self._newest[side] = cuts[0].number
        ours, theirs = self._by_inputs
        for cut in fresh[0]:
            self._note(cut, theirs.get(inputs(cut)))
        for other in fresh[1]:
            self._note(ours.get(inputs(other)), other)
        return self._found

    def _note(self, cut: Cut | None, other: Cut | None) -> None:
        if cut is None or other is None or not cut.meets(other):
            return
        if self._found is None or (cut.number, other.number) > (self._found[0].number, self._found[1].number):
            self._found = cut, other


def common_cut(old: Store, new: Store) -> tuple[Cut, Cut] | None:
    """Returns the newest kept cuts of the two stores that reflect the same input records (`Cut.meets`), or None."""
    return Meeting(old, new).look()


def no_common_cut(old: Store, new: Store) -> SuiroError:
    """Returns the error for two stores without a common cut. It names the partitions and offsets that one of them
    lacks, and what to do. It is a `UsageError` if waiting does not help."""
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


def _why_apart(old: Store, new: Store) -> tuple[str, bool]:
    one, other = old.cut, new.cut
    if one is None or other is None:
        store = old if one is None else new
        return f"version {store.spec.version} has no rows yet", True
    topics = one.topics & other.topics
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
    for store, cut in ((old, one), (new, other)):
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
    return _listed(sorted(cut.topics)) or "nothing"
