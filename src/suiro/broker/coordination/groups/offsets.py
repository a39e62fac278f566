"""Committed offsets, and those that a transaction has yet to decide.

Offsets of a transaction are written at once, as transactional batches, and kept aside until the marker of their
producer. Removal takes offsets from both places, so that a marker never brings back the offset of a topic or group that
was deleted meanwhile.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Set
from dataclasses import dataclass
from itertools import chain

from suiro.broker.coordination.groups.records import OffsetValue
from suiro.foundation.types import TopicPartition


@dataclass(frozen=True, slots=True, kw_only=True)
class CommittedOffset:
    """A committed offset, and where in the log it was committed (which of two is the later one)."""

    value: OffsetValue
    log_offset: int


class OffsetStore:
    """State without I/O: the coordinator writes first, then changes this."""

    def __init__(self) -> None:
        self._committed: dict[str, dict[TopicPartition, CommittedOffset]] = {}
        # (partition of __consumer_offsets, producer id) -> what its open transaction would commit
        self._undecided: dict[tuple[int, int], dict[tuple[str, TopicPartition], CommittedOffset]] = {}
        # Group -> partition -> number of transactions: a look-up of one group does not go over all of them.
        self._undecided_of: dict[str, Counter[TopicPartition]] = {}

    def __iter__(self) -> Iterator[tuple[str, Mapping[TopicPartition, CommittedOffset]]]:
        return iter(self._committed.items())

    def committed(self, group_id: str) -> Mapping[TopicPartition, CommittedOffset]:
        return self._committed.get(group_id, {})

    def undecided(self, group_id: str) -> Set[TopicPartition]:
        """The partitions with an offset of this group in an open transaction (KIP-447: require_stable)."""
        return self._undecided_of.get(group_id, Counter()).keys()

    def places(self, *, of_topic: str | None = None) -> dict[str, set[TopicPartition]]:
        """Group -> where it has an offset, decided or not."""
        found: dict[str, set[TopicPartition]] = {}
        committed = ((group_id, place) for group_id, offsets in self._committed.items() for place in offsets)
        undecided = ((group_id, place) for group_id, held in self._undecided_of.items() for place in held)
        for group_id, place in chain(committed, undecided):
            if of_topic in (None, place[0]):
                found.setdefault(group_id, set()).add(place)
        return found

    def put(self, group_id: str, place: TopicPartition, entry: CommittedOffset) -> None:
        self._committed.setdefault(group_id, {})[place] = entry

    def hold(
        self,
        group_id: str,
        place: TopicPartition,
        entry: CommittedOffset,
        *,
        index: int,
        producer_id: int,
    ) -> None:
        """Until the marker of this producer is in the given partition of `__consumer_offsets`."""
        held = self._undecided.setdefault((index, producer_id), {})
        if (group_id, place) not in held:
            self._undecided_of.setdefault(group_id, Counter())[place] += 1
        held[group_id, place] = entry

    def remove(self, group_id: str, places: Iterable[TopicPartition]) -> None:
        offsets = self._committed.get(group_id, {})
        for place in tuple(places):
            offsets.pop(place, None)
            if place in self.undecided(group_id):
                for held in self._undecided.values():
                    if held.pop((group_id, place), None) is not None:
                        self._decided(group_id, place)
        if not offsets:
            self._committed.pop(group_id, None)

    def complete_transaction(self, index: int, producer_id: int, *, commit: bool) -> None:
        held = self._undecided.pop((index, producer_id), {})
        for group_id, place in held:
            self._decided(group_id, place)
        if not commit:
            return
        for (group_id, place), entry in held.items():
            present = self.committed(group_id).get(place)
            if present is None or present.log_offset < entry.log_offset:
                self.put(group_id, place, entry)

    def _decided(self, group_id: str, place: TopicPartition) -> None:
        counts = self._undecided_of[group_id]
        counts[place] -= 1
        if not counts[place]:
            del counts[place]
        if not counts:
            del self._undecided_of[group_id]
