"""A tail: records as they come, as many as a person reads. Tabs that follow the same records share one."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from typing import NamedTuple

from suiro.client import NO_LEADER, Client, Fetched, TopicInfo
from suiro.clock import Clock
from suiro.console.formats import Decoded
from suiro.console.pages import LEADER_WAIT_MS
from suiro.console.records import LogRecord, Start, behind_deleted, bytes_of, records_of
from suiro.console.topics import topic_info
from suiro.console.web.api.records import (
    FILTER,
    SCAN_FETCH_BYTES,
    WHERE,
    Matching,
    leaderless_of,
    partitions_of,
    start_offsets_soon,
)
from suiro.console.web.endpoint import Call, Events, get
from suiro.console.web.streams import KEEP_ALIVE, SharedStreams, event
from suiro.errors import OffsetOutOfRangeError, RetriableKafkaError, SuiroError, UnknownTopicError
from suiro.foundation.http import Role
from suiro.foundation.types import TopicPartition

STEP_MS = 200
"""The length of a step of a tail, without the wait for records. After each step, the reader may have disconnected."""
TAIL_RECORDS = 40
"""The most records shown in each step: people read fewer. The others are counted."""
TAIL_BEHIND_MAX = 2_000
"""The most offsets by which a tail may be behind in one partition, before it continues near the end."""
TAIL_LOOKED_AT = 200
"""The same without a filter. Transaction markers and gaps of compaction count."""
TAIL_BYTES = 64 * 1024 * 1024  # the most of one step
TAIL_WAIT_MS = 250
TAIL_LOOKS_MS = 10_000
"""The time after which a tail looks for new partitions."""


@get("/topics/{topic}/tail", query={**WHERE, **FILTER})
def _tail(call: Call, client: Client) -> Events:
    """Server-sent events: records as they come, so many as a person reads."""
    topic = call.path["topic"]
    matching = Matching(call, topic)
    info = topic_info(client, topic)
    positions = start_offsets_soon(client, topic, partitions_of(call, info), Start(kind="latest"))
    followed = _Followed(info, positions, leaderless_of(call, info), is_whole="partition" not in call.query)
    return Events(parts=_tailed(call, matching, followed))


class _Followed:
    """The partitions of a tail: the offset `at` which each is, and those that are `leaderless`. These are followed as
    soon as they have a leader: from their offset, or else from their end. If the tail `is_whole`, it also follows new
    partitions. It begins anew if the topic is created again."""

    def __init__(
        self, info: TopicInfo, positions: Mapping[int, int], leaderless: Sequence[int], *, is_whole: bool
    ) -> None:
        self._info = info
        self._topic = info.name
        self._is_whole = is_whole
        self._looks_ms = 0
        self.at = {(info.name, partition): offset for partition, offset in positions.items()}
        self.leaderless = frozenset(leaderless)

    def fetch(self, client: Client, clock: Clock) -> dict[TopicPartition, Fetched]:
        """Returns what has come, within `LEADER_WAIT_MS` if a partition loses its leader."""
        now_ms = clock.monotonic_ms()
        try:
            if now_ms >= self._looks_ms or self.leaderless:
                self._looks_ms = now_ms + TAIL_LOOKS_MS
                without = self._look_at_topic(client)
                late = sorted(self.leaderless - without)
                ends = start_offsets_soon(client, self._topic, late, Start(kind="latest"))
                self.at.update({(self._topic, partition): end for partition, end in ends.items()})
                self.leaderless &= without
            asked = {place: offset for place, offset in self.at.items() if place[1] not in self.leaderless}
            if not asked:
                return {}
            return client.fetch(
                asked,
                max_bytes=SCAN_FETCH_BYTES,
                partition_max_bytes=SCAN_FETCH_BYTES,
                max_wait_ms=0,
                leader_wait_ms=LEADER_WAIT_MS,
            )
        except (OffsetOutOfRangeError, UnknownTopicError) as error:
            before = self._info
            self._look_at_topic(client)
            if self._info.topic_id == before.topic_id:
                if not isinstance(error, OffsetOutOfRangeError):
                    raise
                self.at[error.topic, error.partition] = behind_deleted(error)
        except RetriableKafkaError as error:
            if error.code_name != NO_LEADER:
                raise
            self._look_at_topic(client)
        return {}

    def _look_at_topic(self, client: Client) -> frozenset[int]:
        """Returns the partitions without a leader. Those of which no offset is known stay `leaderless`."""
        before, self._info = self._info, topic_info(client, self._topic)
        count = len(self._info.partitions)
        if self._info.topic_id != before.topic_id:
            places = [(self._topic, partition) for partition in range(count)]
            begun = dict.fromkeys(places if self._is_whole else self.at, 0)
            self.at.clear()
            self.at.update(begun)
            self.leaderless = frozenset()
        elif self._is_whole:
            for partition in range(len(before.partitions), count):
                self.at.setdefault((self._topic, partition), 0)
        without = frozenset(one.partition for one in self._info.partitions if one.leader < 0)
        known = {partition for _, partition in self.at}
        self.leaderless = (self.leaderless - known) | (known & without)
        return without


class _Step(NamedTuple):
    """An event, and how many records the tail has told of before it and after it."""

    event: bytes
    before: int
    after: int
    leaderless: list[int]


_tails = SharedStreams[_Step]()


def _tailed(call: Call, matching: Matching, followed: _Followed) -> Iterator[bytes]:
    """Tabs that follow the same have one tail. One with a filter, which counts what is unclear, is alone."""
    alone = None if matching.filter is None else id(matching)
    what = (id(call.console), call.path["topic"], *sorted(call.query.items()), call.role >= Role.ADMIN, alone)
    told: int | None = None
    for steps in _tails.follow(what, _steps(call, matching, followed)):
        if not steps:
            yield _left_out(0, sorted(followed.leaderless))
            continue
        missed = 0 if told is None else steps[0].before - told
        told = steps[-1].after
        events = b"".join(step.event for step in steps)
        yield _left_out(missed, steps[0].leaderless) + events if missed else events


def _left_out(records: int, leaderless: list[int]) -> bytes:
    return event("records", {"records": [], "dropped": records, "leaderless": leaderless})


def _steps(call: Call, matching: Matching, followed: _Followed) -> Iterator[_Step]:
    clock = call.console.clock
    at = followed.at
    view, is_filtered = matching.view, matching.filter is not None
    behind_max = TAIL_BEHIND_MAX if is_filtered else TAIL_LOOKED_AT
    is_behind, count = False, 0
    try:
        while True:
            last: deque[tuple[LogRecord, tuple[Decoded, Decoded] | None]] = deque(maxlen=TAIL_RECORDS)
            seen = dropped = held = 0
            state = matching.unclear, followed.leaderless
            # A few steps a second are enough for people. The node looks at a fetch that waits at each write.
            clock.sleep_ms(0 if is_behind else TAIL_WAIT_MS)
            # The client is lent for one step, so that twenty tails can share clients.
            with call.console.client() as client:
                answers = followed.fetch(client, clock)
            until = clock.monotonic_ms() + STEP_MS
            for place, fetched in answers.items():
                behind = fetched.last_stable_offset - behind_max
                if at[place] < behind:
                    dropped += behind - at[place]
                    at[place] = behind
                for record, following in records_of(*place, at[place], fetched, True):
                    at[place] = following
                    if record is None:
                        continue
                    held += bytes_of(record)
                    if clock.monotonic_ms() >= until or held > TAIL_BYTES:
                        dropped += 1
                        continue
                    found = matching.look(record) if is_filtered else None
                    if found is not None or not is_filtered:
                        seen += 1
                        last.append((record, found))
            is_behind = any(one.data and at[place] < one.last_stable_offset for place, one in answers.items())
            # Without a filter, only records that are shown are decoded.
            shown = [view.shown(record, *(found or view.key_and_value(record))) for record, found in last]
            dropped += seen - len(shown)
            has_news = seen or dropped or state != (matching.unclear, followed.leaderless)
            told = {
                "records": shown,
                "dropped": dropped,
                "leaderless": sorted(followed.leaderless),
                **matching.unclear,
            }
            before, count = count, count + len(shown) + dropped
            yield _Step(event("records", told) if has_news else KEEP_ALIVE, before, count, sorted(followed.leaderless))
    except SuiroError as error:
        yield _Step(event("failed", {"message": str(error)}), count, count, [])
