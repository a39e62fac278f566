"""Positions of many partitions, as stored in the checkpoint of Spark. Pure.

The JSON is that of Spark's Kafka connector, `{"flights": {"0": 12, "1": 7}}`, and three members beside the topics,
whose names no topic can have:

- `@ids`: the id of each topic, so that a topic deleted and made again is not taken for the old one;
- `@initial`: true in the offset that a query begins at;
- `@start`: where it began, inside the end of its first micro-batch. Spark does not keep the initial offset of a
  Python source: after a crash in the first micro-batch "latest" would be another place, and records would be lost.

And four that only the streams model asks for, so that a micro-batch that runs again is told the same:

- `@behind`: the partitions that this micro-batch does not read to their end, because of a limit;
- `@clock`: the wall clock of the micro-batch, ms;
- `@muted`: true where the micro-batch only rebuilds state: its records were processed before;
- `@follows`: there where the micro-batch follows an application that still runs: the partitions that had more for it,
  and the times of what waited there.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

from suiro.errors import UsageError
from suiro.foundation.types import TopicPartition

_MEMBERS = frozenset(("@ids", "@initial", "@start", "@behind", "@clock", "@muted", "@follows"))


@dataclass(frozen=True, slots=True, kw_only=True)
class Positions:
    """`offsets`: the next record to read of each partition. `topic_ids`: hex, for brokers that have them."""

    offsets: Mapping[TopicPartition, int]
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    initial: bool = False
    started_at: Mapping[TopicPartition, int] | None = None
    behind: frozenset[TopicPartition] = frozenset()
    clock: int | None = None
    replayed: bool = False
    follows: Mapping[TopicPartition, int] | None = None

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = _nested(self.offsets)
        if self.topic_ids:
            value["@ids"] = dict(sorted(self.topic_ids.items()))
        if self.initial:
            value["@initial"] = True
        if self.started_at is not None:
            value["@start"] = _nested(self.started_at)
        if self.behind:
            value["@behind"] = [list(place) for place in sorted(self.behind)]
        if self.clock is not None:
            value["@clock"] = self.clock
        if self.replayed:
            value["@muted"] = True
        if self.follows is not None:
            value["@follows"] = [[*place, time] for place, time in sorted(self.follows.items())]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Positions:
        topics = {name: items for name, items in value.items() if not name.startswith("@")}
        if unknown := value.keys() - topics.keys() - _MEMBERS:
            raise UsageError(
                f"the source's offsets in the checkpoint have members that this release of suiro does not know "
                f"({', '.join(sorted(unknown))}): use the release that wrote them"
            )
        start, follows = value.get("@start"), value.get("@follows")
        times = {(topic, partition): time for topic, partition, time in follows or ()}
        return cls(
            offsets=_flat(topics),
            topic_ids=dict(value.get("@ids", {})),
            initial=bool(value.get("@initial", False)),
            started_at=None if start is None else _flat(start),
            behind=frozenset((topic, partition) for topic, partition in value.get("@behind", ())),
            clock=value.get("@clock"),
            replayed=bool(value.get("@muted", False)),
            follows=None if follows is None else times,
        )

    def true_start(self, end: Positions) -> Positions:
        """Where the micro-batch that ends at `end` begins, if it begins at self."""
        if self.initial and end.started_at is not None:
            return replace(self, offsets=end.started_at)
        return self


def digest(text: str) -> str:
    """Of a source's offsets, for the marker: equal text, equal digest."""
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def least_of(*limits: int | None) -> int | None:
    """None is no limit."""
    return min((limit for limit in limits if limit is not None), default=None)


def limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """Ends so that about `max_offsets` are read: to each partition its share of the lag, and at least one.

    Never beyond `end`; more than `max_offsets` only where there are more lagging partitions than that.
    """
    lags = {place: end[place] - start.get(place, 0) for place in sorted(end)}
    total = sum(lag for lag in lags.values() if lag > 0)
    if total <= max_offsets:
        return dict(end)
    chosen = dict(end)
    lag_so_far = given_so_far = 0
    for place, lag in lags.items():
        if lag <= 0:
            continue
        # Rounded on the running sum, so that the shares add up to the limit and a backlog that is a multiple of
        # it leaves no micro-batch of a few records behind.
        lag_so_far += lag
        share = lag_so_far * max_offsets // total - given_so_far
        given_so_far += share
        chosen[place] = start.get(place, 0) + min(lag, max(1, share))
    return chosen


def evenly_limited(
    start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int], max_offsets: int
) -> dict[TopicPartition, int]:
    """As `limited`, but all partitions get the same, and what short ones leave goes to the others.

    Where records of several partitions wait for each other, a short one (a table) must not hold up a long one.
    """
    lags = {place: max(0, end[place] - start.get(place, 0)) for place in sorted(end)}
    chosen, left = dict(end), max_offsets
    lagging = sorted((place for place in lags if lags[place]), key=lambda place: lags[place])
    for index, place in enumerate(lagging):
        share = min(lags[place], max(1, left // (len(lagging) - index)))
        left -= share
        chosen[place] = start.get(place, 0) + share
    return chosen


def split_range(start: int, end: int, parts: int) -> list[tuple[int, int]]:
    """`[start, end)` in at most `parts` pieces of nearly the same length, in order, none empty."""
    length = end - start
    parts = max(1, min(parts, length))
    edges = [start + length * index // parts for index in range(parts + 1)]
    return list(pairwise(edges))


def _nested(offsets: Mapping[TopicPartition, int]) -> dict[str, Any]:
    value: dict[str, Any] = {}
    for (topic, partition), offset in sorted(offsets.items()):
        value.setdefault(topic, {})[str(partition)] = offset
    return value


def _flat(value: Mapping[str, Mapping[str, int]]) -> dict[TopicPartition, int]:
    return {(topic, int(p)): int(offset) for topic, items in value.items() for p, offset in items.items()}
