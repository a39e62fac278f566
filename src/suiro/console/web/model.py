"""The state of the cluster. One thread reads it in rounds, so that requests do not wait for the cluster.

A round reads the topics, the end offsets of their partitions, and the groups. It starts `ROUND_S` after the previous
one, or later if rounds are slow: they take at most a fifth of the time. Expensive parts are read less often: sizes and
first offsets three times a minute, and in each round as many of the groups, possibly thousands, as `GROUPS_S` allows.

Changes are encoded once and sent to all subscribers. While the cluster is unreachable, the last state remains, and the
overview tells since when and why.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from itertools import islice
from typing import Any
from urllib.parse import quote

import msgspec

from suiro.client import EARLIEST, LATEST, NO_LEADER, Broker, Client, ListedGroup, TopicInfo
from suiro.clock import Clock
from suiro.console.dead_letters import is_named_as_dead_letters
from suiro.console.groups import first_waits_since
from suiro.console.pages import LEADER_WAIT_MS
from suiro.console.topics import TopicRow, row_fields
from suiro.console.web.streams import event
from suiro.errors import KafkaError, SuiroError, UnknownTopicError
from suiro.foundation.types import TopicPartition

ROUND_S = 5.0
SHARE = 5
"""Rounds are at least so many times their duration apart."""
SELDOM_S = 20.0
GROUPS_S = 1.0
MOST = 10
"""The number of busiest topics and of groups with the largest lag in the overview."""
HISTORY = 180  # rounds; a quarter of an hour
TOPIC_HISTORY = 60
GROUP_HISTORY = 30
STALE_ROUNDS = 3
ROUNDS_BEGUN = 5
PROBLEMS_MAX = 50

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicNow(TopicRow):
    """None means that the value could not be read."""

    records: int | None  # offsets from the first to the end; compaction and transactions leave fewer records
    size_bytes: int | None
    in_per_s: float | None  # offsets a second since the round before


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupNow:
    """`lag` is in records, `lag_ms` is how long the first unread record has waited; None if unknown (yet). `trend` is
    the lag of the last rounds that read this group."""

    group: str
    state: str
    type: str
    members: int | None
    topics: tuple[str, ...]
    lag: int | None
    lag_ms: int | None
    trend: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Problem:
    severity: str  # "error" or "warning"
    text: str
    link: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Overview:
    at: int  # ms
    cluster_id: str
    controller: int
    brokers: tuple[Broker, ...]
    topics: int
    partitions: int
    groups: int
    under_replicated: int
    without_leader: int
    in_per_s: float | None
    size_bytes: int | None
    busiest: tuple[TopicNow, ...]
    lagging: tuple[GroupNow, ...]
    problems: tuple[Problem, ...]
    history: tuple[tuple[int, float], ...]
    error: str | None  # of the last round


@dataclass(slots=True)
class _Group:
    """One group, as it was read last. `waits` is {place: (committed, timestamp of the first unread record)}."""

    now: GroupNow
    waits: dict[TopicPartition, tuple[int, int | None]] = field(default_factory=dict)
    history: deque[tuple[int, int, int | None]] = field(default_factory=lambda: deque(maxlen=GROUP_HISTORY))


Subscriber = Callable[[bytes], None]
_NOTHING = Overview(
    at=0, cluster_id="", controller=-1, brokers=(), topics=0, partitions=0, groups=0, under_replicated=0,
    without_leader=0, in_per_s=None, size_bytes=None, busiest=(), lagging=(), problems=(), history=(),
    error="the cluster has not answered yet",
)  # fmt: skip


class Model:
    """Reading is thread-safe and never waits. `new_client` creates the client of the model's thread."""

    def __init__(self, new_client: Callable[[], Client], *, clock: Clock) -> None:
        self._new_client = new_client
        self._clock = clock
        self._stopping = threading.Event()
        self._wake = threading.Event()
        self._thread: threading.Thread | None = None
        self._client: Client | None = None
        self._subscribers: set[Subscriber] = set()
        self._lock = threading.Lock()
        # Read by any thread: each attribute is replaced as a whole.
        self.version = 0
        self.overview = _NOTHING
        self.topics: dict[str, TopicNow] = {}
        self.topics_json = msgspec.json.encode({"version": 0, "topics": []})
        self.groups: dict[str, GroupNow] = {}
        self.groups_json = msgspec.json.encode({"version": 0, "groups": []})
        # Used only by the model's thread.
        self._cluster: tuple[str, int, tuple[Broker, ...]] = ("", -1, ())
        self._infos: dict[str, TopicInfo] = {}
        self._firsts: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._ends_at_ms = 0
        self._ends_moment_ms = 0  # the same on the monotonic clock, as the next one
        self._sizes: dict[TopicPartition, int] | None = None
        self._seldom_at_ms: int | None = None
        self._rate: float | None = None
        self._history: deque[tuple[int, float]] = deque(maxlen=HISTORY)
        self._topic_history: dict[str, deque[tuple[int, float]]] = {}
        self._listed: dict[str, ListedGroup] = {}
        self._known: dict[str, _Group] = {}
        self._turn: deque[str] = deque()  # groups; the one that waits longest is first

    def start(self) -> None:
        self._thread = threading.Thread(target=self._run, name="console-model", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Sends subscribers an empty event, which ends them. May be called more than once."""
        self._stopping.set()
        self._wake.set()
        with self._lock:
            subscribers = list(self._subscribers)
        for one in subscribers:
            one(b"")
        client = self._client
        if client is not None:
            client.abandon()
        if self._thread is not None:
            self._thread.join(5.0)

    def look_again(self) -> None:
        """Starts the next round now, after a change through the console."""
        self._wake.set()

    @contextmanager
    def subscribed(self, subscriber: Subscriber) -> Iterator[None]:
        """Calls `subscriber` with each event on the model's thread. It must not wait."""
        with self._lock:
            self._subscribers.add(subscriber)
        try:
            yield
        finally:
            with self._lock:
                self._subscribers.discard(subscriber)

    def topic_history(self, topic: str) -> tuple[tuple[int, float], ...]:
        return tuple(self._topic_history.get(topic, ()))

    def grew_lately(self, topic: str) -> bool:
        """Whether it grew within its history, the last minutes."""
        return any(rate for _, rate in self.topic_history(topic))

    def group_history(self, group: str) -> tuple[tuple[int, int, int | None], ...]:
        known = self._known.get(group)
        return () if known is None else tuple(known.history)

    def _run(self) -> None:
        while not self._stopping.is_set():
            began = self._clock.monotonic_ms()
            self._wake.clear()
            try:
                if self._client is None:
                    self._client = self._new_client()
                self._whole_round(self._client)
                error = None
            except SuiroError as failure:
                error = f"The cluster does not answer: {failure}"
            except Exception as failure:
                logger.exception("a round of the console failed")
                error = f"The console failed: {type(failure).__name__}; its log says more"
            if error is not None and not self._stopping.is_set():
                self._close()
                self._publish_failure(error)
            took_s = (self._clock.monotonic_ms() - began) / 1_000
            self._wake.wait(max(ROUND_S, SHARE * took_s) - took_s)
        self._close()

    def _close(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None

    def _whole_round(self, client: Client) -> None:
        """Repeats a round if a topic was deleted, or a partition lost its leader, during it."""
        for left in reversed(range(ROUNDS_BEGUN)):
            try:
                self._round(client)
                return
            except KafkaError as error:
                if not left or (not isinstance(error, UnknownTopicError) and error.code_name != NO_LEADER):
                    raise
                logger.debug("a round is begun again: %s", error)

    def _round(self, client: Client) -> None:
        described = client.admin.describe_cluster()
        self._cluster = (described.cluster_id, described.controller, described.brokers)
        self._infos = client.metadata()
        led = [
            (name, one.partition) for name, info in self._infos.items() for one in info.partitions if one.leader >= 0
        ]
        now_ms, moment_ms = self._clock.wall_ms(), self._clock.monotonic_ms()
        if self._seldom_at_ms is None or moment_ms - self._seldom_at_ms >= SELDOM_S * 1_000:
            self._firsts = _offsets(client, led, EARLIEST)
            self._sizes = None
            with suppress(KafkaError):  # the user has no right to read sizes
                self._sizes = client.admin.partition_sizes()
            self._seldom_at_ms = moment_ms
        ends = _offsets(client, led, LATEST)
        rates = self._rates(ends, now_ms, (moment_ms - self._ends_moment_ms) / 1_000)
        self._ends, self._ends_at_ms, self._ends_moment_ms = ends, now_ms, moment_ms
        self._look_at_groups(client)
        self._publish(rates)

    def _rates(self, ends: dict[TopicPartition, int], now_ms: int, took_s: float) -> dict[str, float]:
        """Returns the offsets per second of each topic; nothing in the first round."""
        if not self._ends or took_s <= 0:
            return {}
        written: dict[str, int] = {}
        for place, end in ends.items():
            before = self._ends.get(place)
            # A recreated topic starts again.
            written[place[0]] = written.get(place[0], 0) + (max(end - before, 0) if before is not None else 0)
        rates = {name: count / took_s for name, count in written.items()}
        self._rate = sum(rate for name, rate in rates.items() if not self._infos[name].internal)
        self._history.append((now_ms, round(self._rate, 2)))
        for name, rate in rates.items():
            history = self._topic_history.get(name)
            if history is None and rate:
                # The history starts at zero in the previous round.
                history = self._topic_history[name] = deque([(self._ends_at_ms, 0.0)], maxlen=TOPIC_HISTORY)
            if history is not None:
                history.append((now_ms, round(rate, 2)))
        for name in self._topic_history.keys() - rates.keys():
            del self._topic_history[name]
        return rates

    def _look_at_groups(self, client: Client) -> None:
        try:
            self._listed = {one.group: one for one in client.admin.list_groups()}
        except KafkaError:
            self._listed = {}
        for gone in self._known.keys() - self._listed.keys():
            del self._known[gone]
        waiting = set(self._turn)
        self._turn.extend(sorted(name for name in self._listed if name not in waiting))
        ends_ms = self._clock.monotonic_ms() + GROUPS_S * 1_000
        for _ in range(len(self._turn)):
            if self._stopping.is_set() or self._clock.monotonic_ms() >= ends_ms:
                return
            name = self._turn.popleft()
            if name in self._listed:
                try:
                    self._look_at_group(client, self._listed[name])
                except KafkaError as error:
                    logger.debug("group %s: %s", name, error)
                # The next round appends the groups that were read.

    def _look_at_group(self, client: Client, listed: ListedGroup) -> None:
        offsets = client.offset_fetch(listed.group, require_stable=False)
        committed = {place: found.offset for place, found in offsets.items() if found is not None}
        members = None
        if listed.state in ("Empty", "Dead"):
            members = 0
        else:
            described = client.admin.describe_group(listed.group)
            members = len(described.members)
        known = self._known.get(listed.group)
        waits = {} if known is None else known.waits
        now_ms = self._clock.wall_ms()
        behind = {place: offset for place, offset in committed.items() if offset < self._ends.get(place, 0)}
        lag = sum(self._ends[place] - offset for place, offset in behind.items())
        found_waits = {place: one for place, one in waits.items() if one[0] == behind.get(place) and one[1] is not None}
        unknown = {place: offset for place, offset in behind.items() if place not in found_waits}
        for place, at in first_waits_since(client, unknown, leader_wait_ms=LEADER_WAIT_MS).items():
            found_waits[place] = (behind[place], at)
        since = min((at for _, at in found_waits.values() if at is not None), default=None)
        lag_ms = None if since is None else max(now_ms - since, 0)
        if committed and lag == 0:
            lag_ms = 0
        history = deque(maxlen=GROUP_HISTORY) if known is None else known.history
        if committed:
            history.append((now_ms, lag, lag_ms))
        now = GroupNow(
            group=listed.group,
            state=listed.state,
            type=listed.type,
            members=members,
            topics=tuple(sorted({topic for topic, _ in committed})),
            lag=lag if committed else None,
            lag_ms=lag_ms,
            trend=tuple(each[1] for each in history),
        )
        self._known[listed.group] = _Group(now=now, waits=found_waits, history=history)

    def _publish(self, rates: dict[str, float]) -> None:
        version = self.version + 1
        topics = {name: self._topic(info, rates) for name, info in sorted(self._infos.items())}
        groups = {name: self._group(listed) for name, listed in sorted(self._listed.items())}
        changed_topics, changed_groups = _changes(self.topics, topics), _changes(self.groups, groups)
        if changed_topics is not _NO_CHANGE:
            self.topics_json = msgspec.json.encode({"version": version, "topics": list(topics.values())})
        if changed_groups is not _NO_CHANGE:
            self.groups_json = msgspec.json.encode({"version": version, "groups": list(groups.values())})
        self.topics, self.groups = topics, groups
        self.overview = self._overview()
        self._notify(changed_topics, changed_groups)

    def _publish_failure(self, error: str) -> None:
        """The last state remains, with the error."""
        problems = (one for one in self.overview.problems if one.link != "")
        said = Problem(severity="error", text=error, link="")
        self.overview = dataclasses.replace(self.overview, problems=(said, *problems), error=error)
        self._notify(_NO_CHANGE, _NO_CHANGE)

    def _notify(self, topics: dict[str, list[Any]], groups: dict[str, list[Any]]) -> None:
        self.version += 1
        with self._lock:
            subscribers = list(self._subscribers)
        if subscribers:
            data = {"version": self.version, "topics": topics, "groups": groups, "overview": self.overview}
            told = event("delta", data)
            for one in subscribers:
                one(told)

    def _topic(self, info: TopicInfo, rates: dict[str, float]) -> TopicNow:
        places = [(info.name, one.partition) for one in info.partitions]
        records: int | None = None
        if all(place in self._ends for place in places):
            records = sum(max(self._ends[place] - self._firsts.get(place, 0), 0) for place in places)
        sizes = self._sizes
        rate = rates.get(info.name)
        return TopicNow(
            **row_fields(info),
            records=records,
            size_bytes=None if sizes is None else sum(sizes.get(place, 0) for place in places),
            in_per_s=None if rate is None else round(rate, 2),
        )

    def _group(self, listed: ListedGroup) -> GroupNow:
        known = self._known.get(listed.group)
        if known is not None and known.now.state == listed.state:
            return known.now
        now: dict[str, Any] = {
            "group": listed.group,
            "state": listed.state,
            "type": listed.type,
            "members": None,
        }
        if known is not None:
            return dataclasses.replace(known.now, **now)
        return GroupNow(**now, topics=(), lag=None, lag_ms=None, trend=())

    def _overview(self) -> Overview:
        cluster_id, controller, brokers = self._cluster
        topics = [one for one in self.topics.values() if not one.internal]
        busiest = sorted((one for one in topics if one.in_per_s), key=lambda one: -(one.in_per_s or 0))
        lagging = sorted((one for one in self.groups.values() if one.lag), key=lambda one: -(one.lag or 0))
        sizes = self._sizes
        return Overview(
            at=self._ends_at_ms,
            cluster_id=cluster_id,
            controller=controller,
            brokers=brokers,
            topics=len(topics),
            partitions=sum(one.partitions for one in topics),
            groups=len(self.groups),
            under_replicated=sum(one.under_replicated for one in self.topics.values()),
            without_leader=sum(one.without_leader for one in self.topics.values()),
            in_per_s=None if self._rate is None else round(self._rate, 2),
            size_bytes=None if sizes is None else sum(sizes.values()),
            busiest=tuple(busiest[:MOST]),
            lagging=tuple(lagging[:MOST]),
            problems=tuple(islice(self._problems(), PROBLEMS_MAX)),
            history=tuple(self._history),
            error=None,
        )

    def _problems(self) -> Iterator[Problem]:
        for one in self.topics.values():
            if one.without_leader:
                yield Problem(
                    severity="error",
                    text=f"{one.without_leader} of {one.partitions} partitions of {one.name} have no leader",
                    link=_link("topics", one.name),
                )
            elif one.under_replicated:
                yield Problem(
                    severity="warning",
                    text=f"{one.under_replicated} of {one.partitions} partitions of {one.name} have replicas that are "
                    "not in sync",
                    link=_link("topics", one.name),
                )
        for name in self._topic_history:
            if is_named_as_dead_letters(name) and self.grew_lately(name) and not self._infos[name].internal:
                yield Problem(severity="warning", text=new_dead_letters(name), link=_link("dead-letters", name))
        for group in self.groups.values():
            # Groups without members, such as those of applications on Spark, are always empty.
            is_of_members = self._listed[group.group].protocol_type == "consumer"
            grows = len(group.trend) >= STALE_ROUNDS and group.trend[-1] > group.trend[0]
            if is_of_members and group.lag and group.state == "Empty" and grows:
                yield Problem(
                    severity="warning",
                    text=f"Nobody reads for group {group.group}, and its lag grows: {group.lag:,} records",
                    link=_link("groups", group.group),
                )


def _offsets(client: Client, places: list[TopicPartition], which: int) -> dict[TopicPartition, int]:
    found = client.list_offsets(dict.fromkeys(places, which), leader_wait_ms=LEADER_WAIT_MS)
    return {place: one.offset for place, one in found.items()}


def new_dead_letters(topic: str) -> str:
    return f"New dead letters in {topic} within the last minutes"


_NO_CHANGE: dict[str, list[Any]] = {"changed": [], "removed": []}


def _changes(before: dict[str, Any], now: dict[str, Any]) -> dict[str, list[Any]]:
    changed = [one for name, one in now.items() if before.get(name) != one]
    removed = [name for name in before if name not in now]
    return {"changed": changed, "removed": removed} if changed or removed else _NO_CHANGE


def _link(kind: str, name: str) -> str:
    return f"#/{kind}/{quote(name, safe='')}"
