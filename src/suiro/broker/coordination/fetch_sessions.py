"""Incremental fetch sessions (KIP-227): a client names its partitions once, and is told only of those that changed.

What is always true:
- A session reads its partitions in order. One that gave records goes to the end, so that the size limit of a response
  cannot starve those behind it.
- `stirred` holds every partition that may have news: named by the request, grown since the last look, failed, or with
  records left. All others are at the end of what their reader may see, the client knows it, and they wait in their
  `Partition` for it to grow. A fetch of a thousand quiet partitions looks at none of them.
- The epoch of a session, which rises by one with each request, says which answer the client has had last.

A session ends when a client says so, when its last partition is forgotten, or when its place is needed: first the
longest unused, if that is two minutes, else one that is smaller than the new one and older than two minutes. Sessions
of consumers make room for those of replicas. A session that grows beyond the limit for all together ends.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Sized
from dataclasses import dataclass
from operator import attrgetter
from typing import TypeAlias
from uuid import UUID

from suiro.broker.metrics.metrics import Metrics
from suiro.broker.storage.topics import MAX_NAME_LENGTH, Partition
from suiro.log import ReadResult
from suiro.protocol.messages import ErrorCode

NO_SESSION = 0
INITIAL_EPOCH = 0
FINAL_EPOCH = -1
EVICTION_MS = 120_000
MAX_PARTITIONS = 500_000
"""Of all sessions together, with those that do not exist or are not for their client: a few hundred bytes each, which
stay when the client is gone. A client that finds no room fetches without a session. The same for all fetches together
that wait without a session. One that finds no room is answered at once."""
SMALL_FETCH = 1000
"""A fetch of so many partitions may always wait."""
_MAX_INT = 2**31 - 1

Key: TypeAlias = tuple[str | UUID | None, int]
"""A partition as requests name it: (topic's name, or its id from version 13 on; index)."""


class FetchSessionError(Exception):
    """The request does not fit the session that it names; the client starts again with a full request."""

    def __init__(self, code: ErrorCode) -> None:
        super().__init__(code.name)
        self.code = code


@dataclass(slots=True, kw_only=True, eq=False)
class Wanted:
    """One partition as a client wants it, with the result of reading it, and what the client was told last."""

    key: Key
    offset: int
    max_bytes: int
    leader_epoch: int = -1  # that the client knows; -1: none
    last_fetched_epoch: int = -1
    name: str | None = None  # the topic's; None while nothing is known by its id

    partition: Partition | None = None
    code: ErrorCode = ErrorCode.none
    refused: bool = False  # failed before it was read: unknown, or not for this client
    result: ReadResult | None = None
    diverging: tuple[int, int] | None = None
    """(epoch, end offset) from which on the client's log is not ours."""

    session: FetchSession | None = None
    place: int = 0
    told_high_watermark: int = -1
    told_log_start: int = -1

    def is_news(self) -> bool:
        """Whether an incremental answer has to name this partition."""
        result = self.result
        return (
            self.code is not ErrorCode.none
            or self.diverging is not None
            or result is None
            or result.size > 0
            or result.high_watermark != self.told_high_watermark
            or result.log_start_offset != self.told_log_start
        )

    def is_exhausted(self, *, read_committed: bool) -> bool:
        """Whether there is nothing more for this reader until the partition grows.

        Asks the log itself, which may have grown since the look while another partition was read in the remote tier.
        """
        if self.partition is None or self.partition.deleted or self.result is None:
            return False
        if self.code is not ErrorCode.none or self.diverging is not None:
            return False
        log = self.partition.log
        if (log.high_watermark, log.log_start_offset) != (self.told_high_watermark, self.told_log_start):
            return False
        return self.offset >= (log.last_stable_offset if read_committed else log.high_watermark)

    def tell(self) -> None:
        """Note what the answer says."""
        result = self.result
        if result is None or self.code is not ErrorCode.none:
            self.told_high_watermark = -1  # so that the client hears of it again when the error is over
        else:
            self.told_high_watermark = result.high_watermark
        self.told_log_start = -1 if result is None else result.log_start_offset

    def grew(self) -> None:
        """Called by the partition. If no fetch waits, one call is enough until the next look."""
        session = self.session
        assert session is not None
        session.stirred.add(self)
        if session.waiting:
            session.wake()
        else:
            self.unwatch()

    def watch(self) -> None:
        if self.partition is not None:
            self.partition.waiters[self] = self.grew

    def unwatch(self) -> None:
        if self.partition is not None:
            self.partition.waiters.pop(self, None)


class FetchSession:
    """One client's partitions. Made by `FetchSessions.begin`."""

    def __init__(self, session_id: int, *, by_topic_id: bool, privileged: bool, now_ms: int) -> None:
        self.id = session_id
        self.epoch = INITIAL_EPOCH + 1
        self.by_topic_id = by_topic_id
        self.privileged = privileged
        self.created_ms = now_ms
        self.last_used_ms = now_ms
        self.size = 0  # as of the last request: what evictions go by
        self.partitions: dict[Key, Wanted] = {}
        self.stirred: set[Wanted] = set()
        self.waiting: list[Callable[[], None]] = []
        self.read_committed = False
        self.is_open = True
        self._next_place = 0

    def add(self, wanted: Wanted) -> None:
        """Take a partition behind the others."""
        wanted.session = self
        self.partitions[wanted.key] = wanted
        self._to_the_end(wanted)

    def update(self, wanted: Iterable[Wanted], forgotten: Iterable[Key]) -> None:
        """Apply an incremental request: new partitions, new offsets of known ones, and those to forget."""
        for item in wanted:
            known = self.partitions.get(item.key)
            if known is None:
                self.add(item)
                self.stirred.add(item)
            else:
                known.offset = item.offset
                known.max_bytes = item.max_bytes
                known.leader_epoch = item.leader_epoch
                known.last_fetched_epoch = item.last_fetched_epoch
                self.stirred.add(known)
        for key in forgotten:
            gone = self.partitions.pop(key, None)
            if gone is not None:
                gone.unwatch()
                self.stirred.discard(gone)

    def stir_all(self) -> None:
        """Look at every partition in the next fetch: what a reader may see of them has changed."""
        self.stirred.update(self.partitions.values())

    def in_order(self) -> list[Wanted]:
        """The partitions that may have something to say, in the order to read them."""
        if len(self.stirred) < 2:
            return list(self.stirred)
        return sorted(self.stirred, key=attrgetter("place"))

    def has(self, wanted: Wanted) -> bool:
        """Whether this very partition is still one of the session's: it may be forgotten while a fetch waits."""
        return self.partitions.get(wanted.key) is wanted

    def told(self, looked_at: Iterable[Wanted], *, read_committed: bool) -> None:
        """The answer with the news among these goes out: all of them count as told."""
        for wanted in looked_at:
            if not self.has(wanted):
                continue
            if wanted.is_news():
                wanted.tell()
            self.rest(wanted, read_committed=read_committed)
            if wanted.result is not None and wanted.result.size:
                self._to_the_end(wanted)

    def rest(self, wanted: Wanted, *, read_committed: bool) -> None:
        """After a look: leave the partition alone until it grows, if there is nothing more in it."""
        if wanted.is_exhausted(read_committed=read_committed):
            self.stirred.discard(wanted)
            if self.is_open:
                wanted.watch()
        else:
            self.stirred.add(wanted)

    def wait(self, wake: Callable[[], None]) -> None:
        """Have `wake` called when any partition grows."""
        for wanted in self.stirred:
            wanted.watch()
        self.waiting.append(wake)

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self.waiting.remove(wake)
        if not self.is_open:
            self.close()

    def wake(self) -> None:
        for wake in self.waiting:
            wake()

    def close(self) -> None:
        """Stop watching the partitions, now or when the last fetch that waits in this session has its answer. That is
        soon: until then all partitions stay, and no longer count."""
        self.is_open = False
        self.wake()
        if not self.waiting:
            for wanted in self.partitions.values():
                wanted.unwatch()

    def _to_the_end(self, wanted: Wanted) -> None:
        wanted.place = self._next_place
        self._next_place += 1


class FetchSessions:
    """All sessions of a node, at most `slots` with at most `partitions` together, the longest unused first."""

    def __init__(self, *, slots: int, partitions: int = MAX_PARTITIONS, metrics: Metrics | None = None) -> None:
        self._slots = slots
        self._most_partitions = partitions
        self._sessions: dict[int, FetchSession] = {}
        self.waiting_partitions = 0
        """Of the fetches that wait without a session."""
        self.evictions = 0
        if metrics is not None:
            stem = "kafka_server_fetchsessioncache_"
            metrics.gauge(stem + "numincrementalfetchsessions", lambda: len(self))
            metrics.gauge(stem + "numincrementalfetchpartitionscached", lambda: self.partition_count)
            metrics.gauges(stem + "incrementalfetchsessionevictions_total", lambda: (((), self.evictions),))

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partition_count(self) -> int:
        return sum(session.size for session in self._sessions.values())

    def may_wait(self, partitions: int) -> bool:
        """Whether a fetch of so many partitions may wait without a session."""
        return partitions <= SMALL_FETCH or self.waiting_partitions + partitions <= self._most_partitions

    def stir_all(self) -> None:
        """Access rules changed: each client is told at once which of its partitions it may no longer read."""
        for session in self._sessions.values():
            session.stir_all()

    def get(self, session_id: int) -> FetchSession | None:
        return self._sessions.get(session_id)

    def resume(
        self,
        session_id: int,
        epoch: int,
        *,
        by_topic_id: bool,
        wanted: Iterable[Wanted],
        forgotten: Iterable[Key],
        now_ms: int,
    ) -> FetchSession | None:
        """The session of a request, updated by it; None for a request without one.

        A request with the initial epoch (which may begin a session) or the final one (which may not) names all its
        partitions and ends the session it names. Raises `FetchSessionError`.
        """
        if epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self._remove(session_id)
            return None
        session = self._sessions.get(session_id)
        if session is None:
            raise FetchSessionError(ErrorCode.fetch_session_id_not_found)
        if session.epoch != epoch:
            raise FetchSessionError(ErrorCode.invalid_fetch_session_epoch)
        if session.by_topic_id != by_topic_id:
            raise FetchSessionError(ErrorCode.fetch_session_topic_id_error)
        wanted = tuple(wanted)
        new = [item for item in wanted if item.key not in session.partitions]
        if new and (self._are_too_many(new) or any(map(_is_no_topics, new))):
            self._remove(session_id)
            raise FetchSessionError(ErrorCode.fetch_session_id_not_found)
        session.update(wanted, forgotten)
        if not session.partitions:
            self._remove(session_id)
            return None
        session.epoch = next_epoch(epoch)
        session.wake()  # A fetch that waits is overtaken.
        self._touch(session, now_ms)
        return session

    def begin(
        self,
        told: Iterable[Wanted],
        *,
        by_topic_id: bool,
        privileged: bool,
        read_committed: bool,
        now_ms: int,
    ) -> int:
        """Make a session of the partitions in the answer to a full request. Returns its id, or `NO_SESSION` if it has
        no place."""
        partitions = list(told)
        if len(partitions) > self._most_partitions or any(map(_is_no_topics, partitions)):
            return NO_SESSION
        while len(self._sessions) >= self._slots or self._are_too_many(partitions):
            if not self._evict(privileged, len(partitions), now_ms):
                return NO_SESSION
        session_id = random.randrange(1, _MAX_INT)
        while session_id in self._sessions:
            session_id = random.randrange(1, _MAX_INT)
        session = FetchSession(session_id, by_topic_id=by_topic_id, privileged=privileged, now_ms=now_ms)
        session.read_committed = read_committed
        for wanted in partitions:
            session.add(wanted)
            wanted.tell()
            session.rest(wanted, read_committed=read_committed)
        self._sessions[session_id] = session
        self._touch(session, now_ms)
        return session_id

    def _are_too_many(self, new: Sized) -> bool:
        return self.partition_count + len(new) > self._most_partitions

    def _touch(self, session: FetchSession, now_ms: int) -> None:
        session.last_used_ms = now_ms
        session.size = len(session.partitions)
        self._sessions[session.id] = self._sessions.pop(session.id)

    def _evict(self, privileged: bool, size: int, now_ms: int) -> bool:
        """End a session that is worth less than one of this kind and size, if there is one."""
        oldest = next(iter(self._sessions.values()), None)
        if oldest is None:
            return False
        if now_ms - oldest.last_used_ms > EVICTION_MS:
            victim = oldest
        else:
            # A session that was young when it was last used stays: its client is just beginning.
            open_to_this = [
                session
                for session in self._sessions.values()
                if session.last_used_ms - session.created_ms > EVICTION_MS or (privileged and not session.privileged)
            ]
            if not open_to_this:
                return False
            victim = min(open_to_this, key=lambda session: (session.privileged, session.size, session.id))
            if (privileged, size, 0) < (victim.privileged, victim.size, victim.id):
                return False
        self._remove(victim.id)
        self.evictions += 1
        return True

    def _remove(self, session_id: int) -> None:
        session = self._sessions.pop(session_id, None)
        if session is not None:
            session.close()


def _is_no_topics(wanted: Wanted) -> bool:
    """Whether no topic can have this name. A request may have megabytes of such names, which must not stay."""
    name = wanted.key[0]
    return isinstance(name, str) and len(name) > MAX_NAME_LENGTH


def next_epoch(epoch: int) -> int:
    """The epoch of the request after this one; it wraps round to 1, since 0 begins a session."""
    if epoch < 0:
        return FINAL_EPOCH
    return 1 if epoch == _MAX_INT else epoch + 1
