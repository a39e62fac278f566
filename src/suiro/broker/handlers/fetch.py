"""Fetch: record bytes go from the log's files to the socket unchanged, or a client on this machine maps the files.

The response is laid out by hand around the file regions (Kafka's FetchResponse, versions 4 to 18), because a
response object would hold the records. If there is less than `min_bytes`, the fetch waits until one of its
partitions grows, or until `max_wait` is over; an error in reading one ends the wait, a partition that is unknown or
not for this client does not. Which partitions a request means, and which of them an answer names, is the business
of `fetch_sessions`.

All reading is in `_Fetch._read`: what it leaves in a `Wanted` is what the answer says of that partition. Records that
are only in the remote tier are read in threads, and the answer is given when they came, or without them after
`remote.fetch.max.wait.ms`; they are kept for the client's next request then.
"""

from __future__ import annotations

import asyncio
import logging
import struct
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any
from uuid import UUID

from suiro import descriptors
from suiro.broker.coordination.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    NO_SESSION,
    FetchSession,
    FetchSessionError,
    Key,
    Wanted,
)
from suiro.broker.exchange import Answer, Exchange, Later, RawResponse
from suiro.broker.handlers import whole_ms
from suiro.broker.handlers.purgatory import Delayed
from suiro.broker.net.connection import Piece
from suiro.broker.security.acl import Operation, ResourceType
from suiro.log import InRemoteTierError, LogError, OffsetOutOfRangeError, PartitionLog, ReadResult
from suiro.protocol.fields import array_length, string, uvarint
from suiro.protocol.file_regions import LEAST_BYTES, MOST_FILES, FileRegion
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.fetch.v18.request import FetchRequest


logger = logging.getLogger(__name__)

_TOPIC_IDS_SINCE = 13
_MOST_REGIONS = descriptors.for_files() // 4
"""Partitions of which one answer has records. Their files stay open until the client has taken it."""
_EXPECTED = (ErrorCode.offset_out_of_range, ErrorCode.kafka_storage_error)
"""Errors of a log that do not count as failed fetches."""


def fetch(exchange: Exchange, request: FetchRequest) -> Answer:
    """Fetch: record bytes go from the log's files to the socket unchanged, or a client on this machine maps the
    files."""
    broker = exchange.broker
    version = exchange.version
    wanted = _wanted(request, version)
    epoch = getattr(request, "session_epoch", FINAL_EPOCH)
    try:
        session = broker.fetch_sessions.resume(
            getattr(request, "session_id", NO_SESSION),
            epoch,
            by_topic_id=version >= _TOPIC_IDS_SINCE,
            wanted=wanted.values(),
            forgotten=_forgotten(request, version),
            now_ms=broker.clock.monotonic_ms(),
        )
    except FetchSessionError as error:
        return _layout(version, (), error=error.code)
    reading = _Fetch(
        exchange,
        request,
        wanted=list(wanted.values()) if session is None else [],
        session=session,
        begins_session=epoch == INITIAL_EPOCH,
    )
    wait_ms = min(whole_ms(request.max_wait), broker.settings.fetch_max_wait_ms)
    worth = reading.look()
    if reading.in_tier:
        return exchange.in_task(reading.answer_with_tier())
    may_wait = wait_ms > 0 and (session is not None or broker.fetch_sessions.may_wait(len(wanted)))
    if worth or not may_wait:
        return reading.answer()
    later = Later()
    delayed = Delayed(
        loop=broker.loop,
        growth=reading if session is None else session,
        is_ready=reading.look,
        finish=lambda: later.give(reading.answer()),
        fail=exchange.connection.close,
        wait_ms=wait_ms,
    )
    later.abandoned = delayed.cancel
    return later


def _wanted(request: FetchRequest, version: int) -> dict[Key, Wanted]:
    """The partitions that the request names, in its order; of one named twice, the last word counts."""
    found: dict[Key, Wanted] = {}
    by_id = version >= _TOPIC_IDS_SINCE
    topic: Any  # has a name or an id, by version
    for topic in request.topics:
        name = topic.topic_id if by_id else topic.topic
        for part in topic.partitions:
            key = (name, part.partition)
            found[key] = Wanted(
                key=key,
                offset=part.fetch_offset,
                max_bytes=part.partition_max_bytes,
                leader_epoch=part.current_leader_epoch if version >= 9 else -1,
                last_fetched_epoch=part.last_fetched_epoch if version >= 12 else -1,
                name=None if by_id else name,
            )
    return found


def _forgotten(request: FetchRequest, version: int) -> Iterable[Key]:
    for topic in getattr(request, "forgotten_topics_data", ()):
        name = topic.topic_id if version >= _TOPIC_IDS_SINCE else topic.topic
        for index in topic.partitions:
            yield name, index


class _Fetch:
    """One fetch: `look` each time a partition grew, then `answer`."""

    def __init__(
        self,
        exchange: Exchange,
        request: FetchRequest,
        *,
        wanted: list[Wanted],
        session: FetchSession | None,
        begins_session: bool,
    ) -> None:
        broker = exchange.broker
        self._broker = broker
        self._exchange = exchange
        self._version = exchange.version
        self._wanted = wanted
        self._session = session
        self._begins_session = begins_session
        self._epoch = -1 if session is None else session.epoch
        self._max_bytes = min(request.max_bytes, broker.settings.fetch_max_bytes)
        state: Any = getattr(request, "replica_state", request)
        self._from_replica = state.replica_id >= 0
        if broker.quotas is not None and not self._from_replica:
            quota = broker.client_quotas.most_fetched_at_once(exchange.connection.session, exchange.client_id)
            self._max_bytes = self._max_bytes if quota is None else min(self._max_bytes, quota)
        self._min_bytes = min(request.min_bytes, self._max_bytes)
        self._read_committed = request.isolation_level == 1
        self._may_read: dict[str, bool] = {}
        self._resolved: set[Wanted] = set()
        self._looked_at: list[Wanted] = []
        self.in_tier: dict[Wanted, tuple[int, bool]] = {}
        """The partitions that the last look found in the remote tier, with `max_bytes` and `min_one_batch`."""
        if session is not None and session.read_committed != self._read_committed:
            session.read_committed = self._read_committed
            session.stir_all()

    def look(self) -> bool:
        """Read the partitions that may have news, up to the limit of the response. Returns whether to answer now.

        The first partition that has records gives at least one batch, whatever the limits.
        """
        if self._session is not None and (not self._session.is_open or self._is_overtaken()):
            return True
        batch = self._wanted if self._session is None else self._session.in_order()
        left, size, worth, regions = self._max_bytes, 0, False, 0
        readable: list[Wanted] = []
        refused: list[Wanted] = []
        self.in_tier.clear()
        for wanted in batch:
            if wanted not in self._resolved:
                self._resolve(wanted)
            if wanted.refused:
                refused.append(wanted)
                continue
            readable.append(wanted)
            room = max(0, min(wanted.max_bytes, left)) if regions < _MOST_REGIONS else 0
            self._read(wanted, max_bytes=room, min_one_batch=size == 0)
            result = wanted.result
            if result is None or wanted.diverging is not None:
                worth = True
            elif wanted in self.in_tier:
                worth = True
                left -= self.in_tier[wanted][0]
                regions += 1
            else:
                size += result.size
                left -= result.size
                regions += len(result.regions)
        self._looked_at = readable + refused if refused else readable
        total = len(batch) if self._session is None else len(self._session.partitions)
        is_full = regions >= _MOST_REGIONS
        return worth or is_full or size >= self._min_bytes or len(refused) == total

    def _resolve(self, wanted: Wanted) -> None:
        """Find the partition, and whether this client may read it. Called once for each request."""
        self._resolved.add(wanted)
        name, code, partition = wanted.name, ErrorCode.none, None
        topics = self._broker.topics
        if name is None:
            topic = topics.topic_by_id(wanted.key[0])  # type: ignore[arg-type]
            name = wanted.name = None if topic is None else topic.name
        if name is None:
            code = ErrorCode.unknown_topic_id
        elif not self._is_allowed(name):
            code = ErrorCode.topic_authorization_failed
        else:
            partition = topics.partition(name, wanted.key[1])
            if partition is None:
                code = ErrorCode.unknown_topic_or_partition
            else:
                self._broker.metrics.topic(name).fetch_requests += 1
        if wanted.partition is not partition:
            wanted.unwatch()
            wanted.partition = partition
        wanted.code, wanted.refused, wanted.result, wanted.diverging = code, partition is None, None, None

    def _is_allowed(self, topic: str) -> bool:
        allowed = self._may_read.get(topic)
        if allowed is None:
            if self._from_replica:
                allowed = self._exchange.may_on_cluster(Operation.CLUSTER_ACTION)
            else:
                allowed = self._exchange.may(Operation.READ, ResourceType.TOPIC, topic)
            self._may_read[topic] = allowed
        return allowed

    def _read(self, wanted: Wanted, *, max_bytes: int, min_one_batch: bool) -> None:
        partition = wanted.partition
        assert partition is not None
        wanted.result = wanted.diverging = None
        wanted.code = code = self._refusal(wanted)
        if code is not ErrorCode.none:
            return
        log = partition.log
        try:
            if wanted.last_fetched_epoch >= 0:
                wanted.diverging = self._divergence(wanted)
                max_bytes, min_one_batch = (0, False) if wanted.diverging else (max_bytes, min_one_batch)
            wanted.result = log.read(
                wanted.offset if wanted.diverging is None else log.log_end_offset,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                min_one_batch=min_one_batch,
            )
        except InRemoteTierError as error:
            if self._broker.tier is None:
                wanted.code = error.code
                return
            self.in_tier[wanted] = (max_bytes, min_one_batch and not self.in_tier)
            wanted.result = _nothing(log)
        except LogError as error:
            wanted.code = error.code
            if error.code not in _EXPECTED:
                self._broker.metrics.topic(partition.topic).failed_fetch_requests += 1
            if error.code is ErrorCode.kafka_storage_error and self._version <= 5:
                wanted.code = ErrorCode.not_leader_or_follower  # what clients of that time repeat after

    def _refusal(self, wanted: Wanted) -> ErrorCode:
        """The code that refuses the read before the log is asked."""
        partition = wanted.partition
        assert partition is not None
        if partition.deleted:
            return ErrorCode.unknown_topic_or_partition
        if self._version >= _TOPIC_IDS_SINCE and partition.log.topic_id != wanted.key[0]:
            return ErrorCode.inconsistent_topic_id
        code = ErrorCode.none
        if wanted.leader_epoch >= 0:
            code = partition.check_leader_epoch(wanted.leader_epoch)
        if self._from_replica and code is ErrorCode.none:
            # This node is the only replica of its partitions.
            if wanted.leader_epoch >= 0:
                return ErrorCode.unknown_leader_epoch
            return ErrorCode.not_leader_or_follower
        return code

    def _divergence(self, wanted: Wanted) -> tuple[int, int] | None:
        """(epoch, end offset) where the client's log diverges from ours, by the epoch of its last record."""
        assert wanted.partition is not None
        log = wanted.partition.log
        found = log.end_offset_for_epoch(wanted.last_fetched_epoch)
        if found is None or wanted.offset < log.log_start_offset:
            raise OffsetOutOfRangeError(
                f"where epoch {wanted.last_fetched_epoch} of {log.topic}-{log.partition} ended is not known"
            )
        epoch, end = found
        return found if epoch < wanted.last_fetched_epoch or end < wanted.offset else None

    async def answer_with_tier(self) -> RawResponse:
        """Read what is only in the remote tier, then answer."""
        await self._read_tier()
        return self.answer()

    async def _read_tier(self) -> None:
        tier, loop = self._broker.tier, self._broker.loop
        assert tier is not None
        reading: dict[asyncio.Task[ReadResult], Wanted] = {}
        for wanted, (max_bytes, min_one_batch) in self.in_tier.items():
            if max_bytes == 0 and not min_one_batch:
                continue
            assert wanted.partition is not None
            self._broker.metrics.topic(wanted.partition.topic).remote_fetch_requests += 1
            read = tier.read(
                wanted.partition,
                wanted.offset,
                max_bytes=max_bytes,
                read_committed=self._read_committed,
                min_one_batch=min_one_batch,
            )
            reading[loop.create_task(read)] = wanted
        if not reading:
            return  # The records of other partitions, which are here, take all the room.
        try:
            await asyncio.wait(reading, timeout=self._broker.settings.remote_fetch_max_wait_ms / 1000)
        finally:
            for task in reading:
                task.cancel()  # The thread goes on, and keeps what it read.
        if self._is_overtaken():
            return  # What the session's partitions now hold belongs to its next request.
        for wanted in self._looked_at:
            if wanted.partition is not None and wanted.partition.deleted:
                wanted.code, wanted.result = ErrorCode.unknown_topic_or_partition, None
        for task, wanted in reading.items():
            if not task.done() or task.cancelled():
                continue
            error = task.exception()
            assert wanted.partition is not None
            if wanted.partition.deleted:
                continue
            counts = self._broker.metrics.topic(wanted.partition.topic)
            if error is None:
                wanted.result = task.result()
                counts.remote_fetch_bytes += wanted.result.size
            else:
                counts.remote_fetch_errors += 1
                wanted.result = None
                wanted.code = error.code if isinstance(error, LogError) else ErrorCode.unknown_server_error
                logger.warning("reading %s-%d: %s", wanted.name, wanted.key[1], error)

    # Without a session the fetch itself listens to its partitions.

    def wait(self, wake: Callable[[], None]) -> None:
        self._broker.fetch_sessions.waiting_partitions += len(self._wanted)
        for wanted in self._wanted:
            if wanted.partition is not None:
                wanted.partition.waiters[self] = wake

    def stop_waiting(self, wake: Callable[[], None]) -> None:
        self._broker.fetch_sessions.waiting_partitions -= len(self._wanted)
        for wanted in self._wanted:
            if wanted.partition is not None:
                wanted.partition.waiters.pop(self, None)

    def answer(self) -> RawResponse:
        """The response with the results of the last look. An incremental one names only the news."""
        session, looked_at = self._session, self._looked_at
        session_id, news = NO_SESSION, looked_at
        if session is not None:
            session_id = session.id
            if self._is_overtaken():
                code = ErrorCode.invalid_fetch_session_epoch
                return _layout(self._version, (), error=code, session_id=session_id)
            news = [wanted for wanted in looked_at if session.has(wanted) and wanted.is_news()]
        response = self._lay_out(news, session_id)
        if self._is_throttled(response, news):
            _let_go(looked_at)
            # The session stays as it was, and its id is sent: without the id the client would begin another session.
            return _layout(self._version, (), session_id=session_id)
        if session is not None:
            session.told(looked_at, read_committed=self._read_committed)
        elif self._begins_session:
            session_id = self._broker.fetch_sessions.begin(
                looked_at,
                by_topic_id=self._version >= _TOPIC_IDS_SINCE,
                privileged=self._from_replica,
                read_committed=self._read_committed,
                now_ms=self._broker.clock.monotonic_ms(),
            )
            response = self._lay_out(news, session_id)
        for wanted in looked_at:
            if wanted.result is not None and wanted.result.size and wanted.name is not None:
                self._broker.metrics.topic(wanted.name).bytes_out += wanted.result.size
        _let_go(looked_at)
        return response

    def _is_overtaken(self) -> bool:
        """Whether the client has sent the session's next request on another connection meanwhile."""
        return self._session is not None and self._session.epoch != self._epoch

    def _lay_out(self, news: Sequence[Wanted], session_id: int) -> RawResponse:
        return _layout(
            self._version,
            news,
            session_id=session_id,
            read_committed=self._read_committed,
            takes_files=self._exchange.takes_files,
        )

    def _is_throttled(self, response: RawResponse, news: Sequence[Wanted]) -> bool:
        """Whether the answer would exceed the client's quota: then it is not sent, and does not count."""
        if self._broker.quotas is None or self._from_replica:
            return False
        size = sum(len(piece) for piece in response.pieces if isinstance(piece, bytes))
        size += sum(wanted.result.size for wanted in news if wanted.result is not None)
        throttled = self._exchange.record_bytes("fetch", size) > 0
        if throttled:
            self._exchange.record_bytes("fetch", -size)
        return throttled


def _let_go(looked_at: Iterable[Wanted]) -> None:
    """Drop the results: a session would keep their files open."""
    for wanted in looked_at:
        wanted.result = None


def _nothing(log: PartitionLog) -> ReadResult:
    return ReadResult(
        regions=[],
        size=0,
        high_watermark=log.high_watermark,
        last_stable_offset=log.last_stable_offset,
        log_start_offset=log.log_start_offset,
        aborted=[],
    )


# FetchResponse by hand. Flexible versions (12 and up) have compact lengths and a tag section (empty but for a
# diverging epoch) after every structure; version 13 names topics by id.

_NO_TAGS = b"\0"
_HEAD = struct.Struct(">ihi")  # throttle time, error, session
_PARTITION_5 = struct.Struct(">ihqqq")
_PARTITION_4 = struct.Struct(">ihqq")
_ABORTED = struct.Struct(">qq")
_EPOCH_END = struct.Struct(">iq")


def _layout(
    version: int,
    partitions: Sequence[Wanted],
    *,
    error: ErrorCode = ErrorCode.none,
    session_id: int = NO_SESSION,
    read_committed: bool = False,
    takes_files: bool = False,
) -> RawResponse:
    """`takes_files`: of a client on this machine, which may have records by file (`file_regions`)."""
    flexible = version >= 12
    no_tags = _NO_TAGS if flexible else b""
    pieces: list[Piece] = []
    named: list[int] = []
    head = bytearray(_HEAD.pack(0, error, session_id) if version >= 7 else 4)
    topics: list[list[Wanted]] = []
    for part in partitions:
        if not topics or topics[-1][0].key[0] != part.key[0]:
            topics.append([])
        topics[-1].append(part)
    head += array_length(len(topics), flexible=flexible)
    for parts in topics:
        head += _topic_key(parts[0].key[0], version)
        head += array_length(len(parts), flexible=flexible)
        for part in parts:
            _partition_head(head, part, version, read_committed=read_committed)
            result = part.result
            tags = no_tags
            if flexible and part.diverging is not None:
                tags = _diverging_tag(*part.diverging)
            size = result.size if result is not None else 0
            if takes_files and result is not None and size >= LEAST_BYTES and len(named) < MOST_FILES:
                (region,) = result.regions
                named.append(region[0])
                tags, size = FileRegion.of(*region).tagged_fields(), 0
            head += uvarint(size + 1) if flexible else size.to_bytes(4, "big")
            if result is not None and size:
                pieces.append(bytes(head))
                pieces.extend(result.regions)
                head = bytearray()
            head += tags
        head += no_tags
    head += no_tags
    if head:
        pieces.append(bytes(head))
    return RawResponse(pieces, flexible, named=tuple(named))


def _partition_head(head: bytearray, part: Wanted, version: int, *, read_committed: bool) -> None:
    """The fields of a partition up to the length of its records."""
    flexible, result, code = version >= 12, part.result, part.code
    if result is None:
        high_watermark = stable = start = -1
    else:
        high_watermark, stable = result.high_watermark, result.last_stable_offset
        start = result.log_start_offset
    if version >= 5:
        head += _PARTITION_5.pack(part.key[1], code, high_watermark, stable, start)
    else:
        head += _PARTITION_4.pack(part.key[1], code, high_watermark, stable)
    if part.refused:
        head += b"\1" if flexible else b"\0\0\0\0"  # an empty array
    elif read_committed and result is not None and part.diverging is None:
        head += array_length(len(result.aborted), flexible=flexible)
        for producer_id, first_offset in result.aborted:
            head += _ABORTED.pack(producer_id, first_offset)
            if flexible:
                head += _NO_TAGS
    else:
        head += b"\0" if flexible else b"\xff\xff\xff\xff"  # null
    if version >= 11:
        head += b"\xff\xff\xff\xff"  # no preferred read replica


def _diverging_tag(epoch: int, end_offset: int) -> bytes:
    """A tag section with EpochEndOffset, tag 0: twelve bytes and its own empty tags."""
    return b"\x01\x00\x0d" + _EPOCH_END.pack(epoch, end_offset) + _NO_TAGS


def _topic_key(key: str | UUID | None, version: int) -> bytes:
    if version >= _TOPIC_IDS_SINCE:
        return key.bytes if isinstance(key, UUID) else bytes(16)
    return string(str(key), flexible=version >= 12)
