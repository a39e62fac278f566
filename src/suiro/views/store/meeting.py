"""Finds the newest kept cuts of two stores that reflect the same input records."""

from __future__ import annotations

from collections.abc import Iterable
from hashlib import blake2b
from typing import TYPE_CHECKING

from suiro.errors import SuiroError, TransientError, UsageError
from suiro.views.cuts import Cut

if TYPE_CHECKING:
    from suiro.views.store.tables import Store

NAMED = 5  # partitions, in a message


class Meeting:
    """Finds the common cuts of two stores that are still written. Each look reads only the cuts that are new since the
    last one: a day has 100,000. So of each cut, only its number and a digest of its inputs are kept."""

    def __init__(self, old: Store, new: Store) -> None:
        self._stores = old, new
        self._topics: frozenset[str] = frozenset()
        self._forget()

    def _forget(self) -> None:
        self._by_inputs: tuple[dict[bytes, int], dict[bytes, int]] = ({}, {})
        self._newest = [-1, -1]
        self._found: tuple[int, int] | None = None

    def look(self) -> tuple[int, int] | None:
        """Returns the numbers of the newest cuts that meet (`Cut.meets`), None if no cuts do. A store may forget one of
        them at any time. To read as of them, hold both stores first (`Store.held`)."""
        old, new = (store.cut for store in self._stores)
        if old is None or new is None:
            return None
        topics = old.topics & new.topics
        if topics != self._topics:
            self._topics = topics
            self._forget()
        if not topics:
            return None
        fresh = self._note(0) | self._note(1)
        ours, theirs = self._by_inputs
        pairs = [(ours[inputs], theirs[inputs]) for inputs in fresh if inputs in ours and inputs in theirs]
        self._found = max(pairs if self._found is None else [*pairs, self._found], default=None)
        return self._found

    def _note(self, side: int) -> set[bytes]:
        """Returns the digests of the new cuts of one store."""
        fresh: set[bytes] = set()
        numbers, seen = self._by_inputs[side], self._newest[side]
        for cut in self._stores[side].newest_cuts():
            if cut.number <= seen:
                break
            self._newest[side] = max(cut.number, self._newest[side])
            if cut.is_settled:
                inputs = blake2b(repr(sorted(cut.offsets_of(self._topics))).encode(), digest_size=16).digest()
                numbers[inputs] = max(cut.number, numbers.get(inputs, -1))
                fresh.add(inputs)
        return fresh


def common_cut(old: Store, new: Store) -> tuple[Cut, Cut] | None:
    """Returns the newest kept cuts of the two stores that reflect the same input records (`Cut.meets`), or None. Both
    stores are held."""
    found = Meeting(old, new).look()
    return None if found is None else (old.cut_at(number=found[0]), new.cut_at(number=found[1]))


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
