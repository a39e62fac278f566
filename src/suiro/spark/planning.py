"""Plans the records that a micro-batch or a batch reads: resolves and limits bounds, and detects lost data.

Loss is: a position below the log's start, beyond its end, in a topic that vanished or was made again, in a partition
that is gone. It raises `DataLossError` before anything runs, or, with failOnDataLoss=false, is logged and the range
is clamped to what exists; never is a position moved back. Gaps inside a range (compaction, control records, aborted
transactions) are not loss.

Talks to Kafka through the client passed in, on the driver only.
"""

from __future__ import annotations

import logging
import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from typing import Any, Protocol

from suiro.clock import Clock
from suiro.errors import ConfigError, DataLossError, SuiroError, UnknownTopicError
from suiro.foundation.types import TopicPartition
from suiro.spark.offsets import Positions, evenly_limited, least_of, limited, split_range
from suiro.spark.options import EARLIEST, LATEST, Bound, SourceOptions
from suiro.spark.record_sizes import Limited, RecordSizes
from suiro.spark.waiting import SourceClient

SETTLE_MS = 10_000  # a new leader's last stable offset may be behind for a moment
SETTLE_WAIT_MS = 50
METADATA_MAX_AGE_MS = 1_000
SHORT_WAIT_MS = 25

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class Allowance:
    """How far a micro-batch may go: to `ends`, or less far where that is more than `max_offsets`. With `behind` it goes
    to `ends` exactly, and these are noted as the partitions that are behind."""

    ends: Mapping[TopicPartition, int]
    max_offsets: int | None
    behind: frozenset[TopicPartition] | None = None


class Pace(Protocol):
    """Limits a stream's micro-batches; asked each time Spark asks for an end. Lives in the process that plans."""

    def allowance(
        self,
        begins: Mapping[TopicPartition, int],
        ends: Mapping[TopicPartition, int],
        max_offsets: int | None,
        *,
        most: int | None,
        unlimited: Collection[str],
    ) -> Allowance:
        """`ends`: the ends of the partitions. The result lies between `begins` and `ends`. Its `max_offsets` may be
        less or more than the option's. `most`: so many offsets have `max_bytes`; nobody may read more."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class OffsetRange:
    """Records `[start, end)` of a partition: what one task reads. `topic_id`: hex, if the brokers have topic ids. No
    other topic of this name is read.
    """

    topic: str
    partition: int
    start: int
    end: int
    topic_id: str | None = None

    @property
    def place(self) -> TopicPartition:
        return self.topic, self.partition


@dataclass(frozen=True, slots=True)
class _Known:
    partitions: frozenset[TopicPartition]
    topic_ids: Mapping[str, str]
    leaders: frozenset[int]
    read_at_ms: int


class Planner:
    def __init__(self, client: SourceClient, options: SourceOptions, *, clock: Clock) -> None:
        self.client = client
        self._options = options
        self._clock = clock
        self._known: _Known | None = None
        self._sizes = RecordSizes(client, clock)
        self._confirmed: Mapping[TopicPartition, int] = {}  # ends that Kafka told this process
        self.newest: Positions | None = None  # what there was to read when `latest` was last asked

    def batch_ranges(self) -> list[OffsetRange]:
        known = self._look(max_age_ms=0)
        start = self._resolve(self._options.starting or Bound(default=EARLIEST), known, "startingOffsets")
        end = self._resolve(self._options.ending, known, "endingOffsets")
        self._check_order(start, end)
        positions = Positions(offsets=start, topic_ids=known.topic_ids)
        return self.ranges(positions, Positions(offsets=end, topic_ids=known.topic_ids))

    def _check_order(self, start: Mapping[TopicPartition, int], end: Mapping[TopicPartition, int]) -> None:
        """Options that give an end before a start are an error of the user, not a loss of data. But an end that nobody
        gave may be below an offset that somebody gave, and that is a loss."""
        starting, ending = self._options.starting, self._options.ending
        by_times = ending.is_of_times and starting is not None and starting.is_of_times
        for place in sorted(start):
            if (by_times or ending.offsets.get(place, LATEST) >= 0) and start[place] > end[place]:
                raise ConfigError(
                    f"the options begin to read {_name(place)} at offset {start[place]}, which is beyond where they "
                    f"end, at {end[place]}"
                )

    def initial(self) -> Positions:
        known = self._look(max_age_ms=0)
        offsets = self._resolve(self._options.starting or Bound(default=LATEST), known, "startingOffsets")
        return Positions(offsets=offsets, topic_ids=known.topic_ids, initial=True)

    def latest(
        self,
        start: Positions,
        *,
        max_offsets: int | None = None,
        max_bytes: int | None = None,
        frozen: Positions | None = None,
        unlimited: Collection[str] = (),
        evenly: bool = False,
        boundary: Mapping[TopicPartition, int] | None = None,
        follows: bool = False,
        pace: Pace | None = None,
    ) -> Positions:
        """The end of the next micro-batch. `frozen`: the furthest end (Trigger.AvailableNow). `unlimited`: topics
        without the limits `max_offsets` and `max_bytes`. `evenly`: all partitions get the same part of it, not by their
        lag, unless fewer records wait for those of other partitions then. The partitions that it limited are noted as
        `behind`.

        `boundary`: no micro-batch crosses it. Until all its partitions are there, micro-batches are `replayed`. With
        `follows` it moves, and all micro-batches are replayed. `pace` limits the others.
        """
        continued, ends, known = self._present(start)
        self.newest = Positions(offsets=ends, topic_ids=known.topic_ids)
        if frozen is not None:
            ends = {
                place: min(end, max(frozen.offsets[place], continued.get(place, 0)))
                for place, end in ends.items()
                if place in frozen.offsets
            }
        begins = continued | self._list([place for place in ends if place not in continued], EARLIEST)
        stops = boundary or {}
        # Once all partitions were there, none comes back: a topic that is made again has other records at its offsets.
        is_rebuilding = start.initial or start.replayed
        is_before = any(begins[place] < stop for place, stop in stops.items() if place in ends)
        is_replayed = follows or (is_rebuilding and is_before)
        if is_replayed:
            # Those that are not of the boundary stand still until then.
            ends = {place: min(end, max(begins[place], stops.get(place, 0))) for place, end in ends.items()}
            pace = None
        shares: tuple[Limited, ...] = (evenly_limited, limited) if evenly else (limited,)
        share, most = shares[0], None
        if max_bytes is not None:
            wanted = {place: end for place, end in ends.items() if place[0] not in unlimited}
            share, most = self._sizes.best_share(max_bytes, begins, wanted, shares, max_offsets)
        ends, behind = _allowed(begins, ends, max_offsets, most, unlimited=unlimited, share=share, pace=pace)
        self._confirmed = ends
        topic_ids = {topic: known.topic_ids[topic] for topic, _ in ends if topic in known.topic_ids}
        return Positions(
            offsets=ends,
            topic_ids=topic_ids,
            started_at=start.offsets if start.initial else None,
            behind=behind,
            replayed=is_replayed,
        )

    def _present(self, start: Positions) -> tuple[dict[TopicPartition, int], dict[TopicPartition, int], _Known]:
        """The positions of `start` that still mean something, and the ends of all partitions."""
        known = self._look(max_age_ms=METADATA_MAX_AGE_MS, missing_ok=True)
        continued = self._continued(start, known)
        ends = self._ends(known.partitions, continued, known)
        if ends != continued:
            # Before anything is read, make sure that these are still the topics they were.
            known = self._look(max_age_ms=0, missing_ok=True)
            continued = self._continued(start, known)
            ends = {place: end for place, end in ends.items() if place in known.partitions}
        return continued, ends, known

    def wait_for_more(self, at: Positions, wait_ms: int) -> bool:
        """Waits for records beyond `at`, and returns whether there are some; returns as soon as there are. It sends one
        request, which the broker answers late. It is called after `latest` found nothing: the next `latest` raises an
        error that is passed over here."""
        if self._known is not None and len(self._known.leaders) > 1:
            # The client has an answer when all leaders have given theirs, and those with nothing new give it late.
            wait_ms = min(wait_ms, SHORT_WAIT_MS)
        offsets = {place: offset for place, offset in at.offsets.items() if offset >= 0}
        if wait_ms <= 0 or not offsets:
            return False
        try:
            found = self.client.fetch(
                offsets,
                read_committed=self._options.read_committed,
                max_wait_ms=wait_ms,
                max_bytes=1,  # of what there is, one batch comes all the same
                partition_max_bytes=1,
            )
        except SuiroError as error:
            _log.debug("it cannot be waited for more, going on: %s", error)
            return False
        return any(one.last_stable_offset > offsets[place] for place, one in found.items())

    def ranges(self, start: Positions, end: Positions) -> list[OffsetRange]:
        """The ranges to read between two positions. All of their offsets are present in Kafka."""
        start = start.true_start(end)
        known = self._look(max_age_ms=METADATA_MAX_AGE_MS, topics={topic for topic, _ in end.offsets})
        continued = self._continued(start, known, reaching=end)
        wanted = {}
        for place, stop in end.offsets.items():
            if place not in known.partitions:
                self._lost(f"{_name(place)} is gone; offsets up to {stop} were planned")
            elif not _same_topic(end.topic_ids, known.topic_ids, place[0]):
                self._lost(f"topic {place[0]!r} was deleted and made again; its offsets up to {stop} are gone")
            elif place not in continued or continued[place] != stop:
                wanted[place] = stop
        earliest = self._list(list(wanted), EARLIEST)
        reachable = self._reachable(wanted)
        found = []
        read_before = {topic for topic, _ in continued}
        for place, stop in sorted(wanted.items()):
            first = continued.get(place, earliest[place])
            # A topic that somebody names later may begin where it likes; what a query waits for begins at 0.
            is_awaited = place[0] in read_before or self._options.subscription.pattern is not None
            if place not in continued and is_awaited and earliest[place] > 0:
                self._lost(
                    f"{_name(place)} is new here, and begins at {earliest[place]} by now; what was before it was never "
                    "read"
                )
            if first < earliest[place]:
                self._lost(
                    f"{_name(place)} begins at {earliest[place]} now; offsets from {first} were planned. Records "
                    "were deleted, perhaps by retention, which goes by their timestamps (retention.ms of the topic)"
                )
                first = earliest[place]
            if reachable[place] < stop or first > stop:
                self._lost(f"{_name(place)} ends at {reachable[place]}; offsets {first} to {stop} were planned")
                stop = reachable[place]
            if first < stop:
                topic_id = known.topic_ids.get(place[0])
                found.append(OffsetRange(topic=place[0], partition=place[1], start=first, end=stop, topic_id=topic_id))
        return self._split(found)

    def _split(self, ranges: list[OffsetRange]) -> list[OffsetRange]:
        """`minPartitions` by each range's share of all, `maxRecordsPerPartition` by its length; the finer counts."""
        wanted, most = self._options.min_partitions or 0, self._options.max_records_per_partition
        total = sum(item.end - item.start for item in ranges)
        pieces = []
        for item in ranges:
            length = item.end - item.start
            parts = max(1, round(wanted * length / total)) if len(ranges) < wanted else 1
            parts = max(parts, -(-length // most)) if most else parts
            for first, stop in split_range(item.start, item.end, parts):
                pieces.append(replace(item, start=first, end=stop))
        return pieces

    def _look(self, *, max_age_ms: int, missing_ok: bool = False, topics: Collection[str] | None = None) -> _Known:
        known = self._known
        now = self._clock.monotonic_ms()
        if known is not None and now - known.read_at_ms < max_age_ms:
            return known
        subscription = self._options.subscription
        named = set(subscription.topics) | {topic for topic, _ in subscription.assigned} | set(topics or ())
        if subscription.pattern is not None:
            infos = self.client.metadata(None)
            matches = re.compile(subscription.pattern).fullmatch
            infos = {name: info for name, info in infos.items() if matches(name) and not info.internal}
        else:
            infos = self.client.metadata(sorted(named))
            if not missing_ok and topics is None:
                self._require(named, infos)
        places = {(name, item.partition) for name, info in infos.items() for item in info.partitions}
        if subscription.assigned:
            if not missing_ok and topics is None:
                for place in sorted(set(subscription.assigned) - places):
                    raise ConfigError(f"option assign: {_name(place)} does not exist")
            places &= set(subscription.assigned)
        ids = {name: info.topic_id.hex for name, info in infos.items() if info.topic_id is not None}
        leaders = frozenset(
            item.leader for name, info in infos.items() for item in info.partitions if (name, item.partition) in places
        )
        self._known = _Known(frozenset(places), ids, leaders, now)
        return self._known

    @staticmethod
    def _require(named: set[str], infos: Mapping[str, Any]) -> None:
        missing = sorted(named - set(infos))
        if missing:
            raise UnknownTopicError(
                f"topic {', '.join(map(repr, missing))} does not exist; create it before reading it",
                "UNKNOWN_TOPIC_OR_PARTITION",
            )

    def _list(self, places: Collection[TopicPartition], what: int) -> dict[TopicPartition, int]:
        if not places:
            return {}
        listed = self.client.list_offsets(dict.fromkeys(places, what), read_committed=self._options.read_committed)
        return {place: item.offset for place, item in listed.items()}

    def _resolve(self, bound: Bound, known: _Known, option: str) -> dict[TopicPartition, int]:
        places = known.partitions
        if bound.timestamp is not None:
            return self._at_time(dict.fromkeys(places, bound.timestamp), bound, option)
        if bound.timestamps:
            times = self._complete(bound.timestamps, places, f"{option}ByTimestamp")
            return self._at_time(times, bound, option)
        said = self._complete(bound.offsets, places, option) if bound.offsets else dict.fromkeys(places, bound.default)
        offsets = {place: offset for place, offset in said.items() if offset >= 0}
        for word in (EARLIEST, LATEST):
            offsets.update(self._list([place for place, offset in said.items() if offset == word], word))
        return offsets

    def _at_time(self, times: Mapping[TopicPartition, int], bound: Bound, option: str) -> dict[TopicPartition, int]:
        listed = self.client.list_offsets(times, read_committed=self._options.read_committed)
        later = [place for place, item in listed.items() if item.offset < 0]
        if later and not bound.none_is_latest:
            named = ", ".join(f"{_name(place)} ({times[place]})" for place in sorted(later))
            raise ConfigError(
                f"option {option}: no record is as young as the time given for {named}; give an earlier time, or "
                f"set {option}ByTimestampStrategy to latest to begin at the end there"
            )
        return {place: item.offset for place, item in listed.items() if item.offset >= 0} | self._list(later, LATEST)

    @staticmethod
    def _complete(
        said: Mapping[TopicPartition, int], places: Collection[TopicPartition], option: str
    ) -> dict[TopicPartition, int]:
        if set(said) != set(places):
            missing = ", ".join(map(_name, sorted(set(places) - set(said))))
            unknown = ", ".join(map(_name, sorted(set(said) - set(places))))
            raise ConfigError(
                f"option {option} must name every partition that is read"
                + (f"; missing: {missing}" if missing else "")
                + (f"; not read: {unknown}" if unknown else "")
            )
        return dict(said)

    def _continued(
        self, start: Positions, known: _Known, *, reaching: Positions | None = None
    ) -> dict[TopicPartition, int]:
        """The positions of `start` that still mean something; the others are loss."""
        kept = {}
        for place, offset in start.offsets.items():
            topic = place[0]
            if reaching is not None and place not in reaching.offsets:
                continue  # told when its end was planned
            if place not in known.partitions:
                self._lost(f"{_name(place)} is gone; it was read up to {offset}")
            elif not _same_topic(start.topic_ids, known.topic_ids, topic):
                self._lost(f"topic {topic!r} was deleted and made again; partition {place[1]} was at {offset}")
            else:
                kept[place] = offset
        return kept

    def _ends(
        self, places: Collection[TopicPartition], begins: Mapping[TopicPartition, int], known: _Known
    ) -> dict[TopicPartition, int]:
        """Last stable offsets, none below where the reading stands."""
        deadline = self._clock.monotonic_ms() + SETTLE_MS
        while True:
            ends = self._list(places, LATEST)
            short = sorted(place for place in ends if ends[place] < begins.get(place, 0))
            if not short:
                return ends
            if self._clock.monotonic_ms() >= deadline:
                for place in short:
                    self._lost(f"{_name(place)} ends at {ends[place]}; it was read up to {begins[place]}")
                return {place: max(end, begins.get(place, 0)) for place, end in ends.items()}
            self._check_topics(known)
            self._clock.sleep_ms(SETTLE_WAIT_MS)

    def _check_topics(self, known: _Known) -> None:
        """A log that became shorter is most often a topic made again: say so at once."""
        topics = sorted({topic for topic, _ in known.partitions})
        infos = self.client.metadata(topics)
        for topic in topics:
            info = infos.get(topic)
            now = info.topic_id.hex if info is not None and info.topic_id is not None else None
            if info is None or known.topic_ids.get(topic) not in (None, now):
                self._lost(f"topic {topic!r} was deleted or made again while it was read")
                self._known = None

    def _reachable(self, ends: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """How far each partition can be read; waits for a leader that is still catching up."""
        unsure = {place: end for place, end in ends.items() if self._confirmed.get(place) != end}
        deadline = self._clock.monotonic_ms() + SETTLE_MS
        while True:
            now = self._list(unsure, LATEST)
            is_there = all(now[place] >= end for place, end in unsure.items())
            if is_there or self._clock.monotonic_ms() >= deadline:
                return {**ends, **now}
            self._clock.sleep_ms(SETTLE_WAIT_MS)

    def _lost(self, what: str) -> None:
        if self._options.fail_on_data_loss:
            raise DataLossError(
                f"data was lost: {what}. Set failOnDataLoss to false to go on with what exists. Or start again: a "
                "topology with a new application id; a query of format suiro with a new checkpoint, explicit "
                "startingOffsets and checkpoint.missing set to begin"
            )
        _log.warning("data was lost, going on: %s", what)


def _allowed(
    begins: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
    max_offsets: int | None,
    most: int | None,
    *,
    unlimited: Collection[str],
    share: Limited,
    pace: Pace | None,
) -> tuple[dict[TopicPartition, int], frozenset[TopicPartition]]:
    """The ends that `max_offsets`, `most` and `pace` allow, and the partitions that this leaves behind."""
    chosen = dict(ends)
    if pace is not None:
        allowed = pace.allowance(begins, ends, max_offsets, most=most, unlimited=unlimited)
        chosen, max_offsets = dict(allowed.ends), allowed.max_offsets
        if allowed.behind is not None:
            return chosen, allowed.behind
    max_offsets = least_of(max_offsets, most)
    if max_offsets is not None:
        wanted = {place: end for place, end in chosen.items() if place[0] not in unlimited}
        chosen |= share(begins, wanted, max_offsets)
    behind = (place for place, end in chosen.items() if end < ends[place] and place[0] not in unlimited)
    return chosen, frozenset(behind)


def _same_topic(before: Mapping[str, str], now: Mapping[str, str], topic: str) -> bool:
    """True also where a broker too old for topic ids leaves it open."""
    old, new = before.get(topic), now.get(topic)
    return old is None or new is None or old == new


def _name(place: TopicPartition) -> str:
    return f"{place[0]}-{place[1]}"
