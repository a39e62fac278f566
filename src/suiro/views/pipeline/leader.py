"""Lets two versions meet at equal offsets: a version that is built beside another ends its micro-batches at the cuts of
that one, its leader.

`step_beside` is the rule. If a limit is smaller than the distance of two cuts of the leader, a micro-batch may end
between them. But it never ends behind a cut in some partitions and before it in others. So for every cut of the leader
from the first common one on, the version has an equal cut, or skips the cut within one micro-batch. It reaches the
newest cut exactly.

At the leader's newest cut, the version waits for the leader. It does not wait for a leader that is gone, or that makes
no cut for `STILL_MS` although there is more to read. Then it runs freely, until the leader has a cut that is, in every
partition, at or beyond the version's position.
"""

from __future__ import annotations

import logging
from bisect import bisect_left, bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.clock import Clock, SystemClock
from suiro.errors import TransientError, UnknownTopicError
from suiro.foundation.types import TopicPartition
from suiro.spark import Allowance, evenly_limited, least_of
from suiro.views.pipeline.pace import Budget, Stride, read_throttle

if TYPE_CHECKING:
    from suiro.views.cuts import Cut

STILL_MS = 10_000
LOOK_FOR_TOPIC_MS = 2_000
CUTS_MAX = 100_000
_log = logging.getLogger(__name__)

Offsets = Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """How far a micro-batch may go. `cut`: it goes to `ends` exactly, where the leader has this cut. `waits`: there is
    more to read behind the leader's newest cut, and the version waits for the leader."""

    ends: Offsets
    cut: Cut | None = None
    waits: bool = False


def step_beside(
    begins: Offsets,
    ends: Offsets,
    max_offsets: int | None,
    cuts: Sequence[Cut],
    *,
    unlimited: Collection[str] = (),
    is_free: bool = False,
) -> Step:
    """`cuts`: the leader's, by number; each is in every partition at or beyond the one before. `unlimited`: topics
    without the limit `max_offsets`. `is_free`: do not wait at the leader's newest cut.

    Partitions of topics that the leader does not read go to their ends.
    """
    if not cuts:
        return Step(ends=ends) if is_free else Step(ends=begins, waits=any(ends[at] > begins[at] for at in ends))
    topics = cuts[-1].topics
    shared = [place for place in ends if place[0] in topics]
    own = {place: end for place, end in ends.items() if place[0] not in topics}
    if not shared:
        return Step(ends=ends)

    def at(cut: Cut, place: TopicPartition) -> int:
        return cut.inputs.get(place, 0)  # the partition may be newer than the cut

    def is_reached(cut: Cut) -> bool:
        return all(at(cut, place) >= begins[place] for place in shared)

    def is_past(cut: Cut) -> bool:
        return any(at(cut, place) > begins[place] for place in shared)

    def is_beyond(cut: Cut) -> bool:
        return any(at(cut, place) > ends[place] for place in shared)

    def size(cut: Cut) -> int:
        return sum(at(cut, place) - begins[place] for place in shared if place[0] not in unlimited)

    # All four change once along the cuts, or grow.
    first = bisect_left(cuts, True, key=is_reached)
    first = bisect_left(cuts, True, lo=first, key=is_past)
    stop = bisect_left(cuts, True, lo=first, key=is_beyond)
    within = stop
    if max_offsets is not None and first < stop:
        # A limit gives each partition one record at least.
        lags = [at(cuts[first], place) > begins[place] for place in shared if place[0] not in unlimited]
        within = bisect_right(cuts, max(max_offsets, sum(lags)), lo=first, hi=stop, key=size)
    if within > first:
        cut = cuts[within - 1]
        return Step(ends=own | {place: at(cut, place) for place in shared}, cut=cut)
    if first < len(cuts):
        return Step(ends=own | {place: min(ends[place], at(cuts[first], place)) for place in shared})
    if is_free:
        return Step(ends=ends)
    newest = cuts[-1]
    towards = {place: min(ends[place], max(begins[place], at(newest, place))) for place in shared}
    return Step(ends=own | towards, waits=any(ends[place] > end for place, end in towards.items()))


class Leader:
    """The leader's cuts, for a planner. `poll` returns the new ones, and raises `UnknownTopicError` if their topic is
    gone."""

    def __init__(self, poll: Callable[[], Sequence[Cut]], clock: Clock) -> None:
        self._poll = poll
        self._clock = clock
        self._cuts: list[Cut] = []
        self._is_gone = False
        self._looked_ms: int | None = None
        self._waits_since: int | None = None
        self._is_still = False

    def step(self, begins: Offsets, ends: Offsets, max_offsets: int | None, *, unlimited: Collection[str]) -> Step:
        self._look()
        if self._is_gone:
            return Step(ends=ends)
        step = step_beside(begins, ends, max_offsets, self._cuts, unlimited=unlimited, is_free=self._is_still)
        if not step.waits:
            self._waits_since = None
            return step
        now = self._clock.monotonic_ms()
        if self._waits_since is None:
            self._waits_since = now
        if now - self._waits_since >= STILL_MS:
            self._is_still = True
            _log.warning("the version beside which this one is built stands still; going on without it")
            return self.step(begins, ends, max_offsets, unlimited=unlimited)
        return step

    def _look(self) -> None:
        now = self._clock.monotonic_ms()
        if self._is_gone and self._looked_ms is not None and now - self._looked_ms < LOOK_FOR_TOPIC_MS:
            return
        self._looked_ms = now
        try:
            new = self._poll()
        except UnknownTopicError:
            self._is_gone, self._cuts = True, []
            return
        except TransientError:
            return  # the known cuts are still valid
        self._is_gone = False
        for cut in new:
            # Where topics are joined, the first cuts after lost state was rebuilt may lie before the last one.
            last = self._cuts[-1].inputs if self._cuts else {}
            if all(cut.inputs.get(place, 0) >= offset for place, offset in last.items()):
                self._cuts.append(cut)
                self._is_still, self._waits_since = False, None
        del self._cuts[:-CUTS_MAX]


class VersionPace:
    """The `suiro.spark.Pace` of one version: its throttle or its stride, then its leader. Picklable without its state,
    which stays in the process that plans.

    `takes_more`: micro-batches of a long backlog may be larger than the limit (`pace`).
    """

    def __init__(
        self,
        folder: Path,
        *,
        bootstrap_servers: str,
        settings: Mapping[str, str] | None = None,
        leader_cuts_topic: str | None = None,
        takes_more: bool = False,
        clock: Clock | None = None,
    ) -> None:
        self._given: dict[str, Any] = {
            "folder": folder,
            "bootstrap_servers": bootstrap_servers,
            "settings": dict(settings or {}),
            "leader_cuts_topic": leader_cuts_topic,
            "takes_more": takes_more,
        }
        self._clock = clock or SystemClock()
        self._budget = Budget()
        self._stride: Stride | None = None
        self._leader: Leader | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return partial(VersionPace, **self._given), ()

    def allowance(
        self,
        begins: Offsets,
        ends: Offsets,
        max_offsets: int | None,
        *,
        most: int | None = None,
        unlimited: Collection[str],
    ) -> Allowance:
        now_ms = self._clock.monotonic_ms()
        rate = read_throttle(self._given["folder"])
        if rate is not None:
            available = sum(ends[place] - begins[place] for place in ends)
            allowed = self._budget.allowed(rate, now_ms, sum(begins.values()), available)
            if not allowed:
                return Allowance(ends=begins, max_offsets=None)
            max_offsets = least_of(allowed, max_offsets)
        elif max_offsets is not None and self._given["takes_more"]:
            self._stride = self._stride or Stride(max_offsets)
            limited = (offset for place, offset in begins.items() if place[0] not in unlimited)
            max_offsets = self._stride.limit(now_ms, sum(limited))
        max_offsets = least_of(max_offsets, most)
        if self._given["leader_cuts_topic"] is None:
            return Allowance(ends=ends, max_offsets=max_offsets)
        step = self._led().step(begins, ends, max_offsets, unlimited=unlimited)
        return allowance_of(step, begins, ends, max_offsets, unlimited=unlimited)

    def _led(self) -> Leader:
        if self._leader is None:
            from suiro.client import Client
            from suiro.views.cuts import CutLog

            client = Client(self._given["bootstrap_servers"], settings=self._given["settings"])
            log = CutLog(client, self._given["leader_cuts_topic"])
            self._leader = Leader(log.poll, self._clock)
        return self._leader


def allowance_of(
    step: Step, begins: Offsets, ends: Offsets, max_offsets: int | None, *, unlimited: Collection[str]
) -> Allowance:
    """At a cut of the leader, the same partitions are behind as in that cut, because the same records wait."""
    cut = step.cut
    if cut is None:
        return Allowance(ends=step.ends, max_offsets=max_offsets)
    topics = cut.topics
    own = {p: end for p, end in step.ends.items() if p[0] not in topics and p[0] not in unlimited}
    if own and max_offsets is not None:
        read = sum(
            end - begins[place] for place, end in step.ends.items() if place[0] in topics and place[0] not in unlimited
        )
        own = evenly_limited(begins, own, max(1, max_offsets - read))
    behind = {place for place in cut.behind if place in ends}
    behind |= {place for place, end in own.items() if end < ends[place]}
    return Allowance(ends={**step.ends, **own}, max_offsets=None, behind=frozenset(behind))
