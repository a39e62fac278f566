"""Pages through a log: the records around an offset, forward or backward, with the transaction state of each.

Unlike a consumer, a page shows everything: records of aborted and open transactions are marked, not skipped. A page
holds about `PAGE_BYTES`, shared between its partitions, and at least one record of each. If that is not enough for a
whole page, the page has fewer records and says where to continue.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from suiro.client import Client, Fetched
from suiro.console.records import BATCH_BYTES_MAX, LogRecord, size_of
from suiro.errors import CorruptRecordError
from suiro.foundation.types import TopicPartition
from suiro.protocol.record_batch import BatchHeader, iter_headers, verify
from suiro.protocol.records import control_type, decode_batch, iter_batch

FETCH_BYTES = 256 * 1024
PAGE_BYTES = 16 * 1024 * 1024
HELD_BYTES = 64 * 1024 * 1024
"""Beyond it, a page has no records of further partitions: a kilobyte of a batch may be a record of a hundred
megabytes."""
PAGES_MAX = 1_000
"""The most fetches for one page: a log may have any number of batches without records."""
STEP_GROWTH = 4
LEADER_WAIT_MS = 2_000
"""The time in which a partition usually gets another leader. A page, a search or a tail does not wait longer."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")

Transaction = Literal["committed", "aborted", "open"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Batch:
    """The batch of a record: its codec, its bytes in the log, and the number of its records."""

    codec: str
    bytes: int
    records: int


@dataclass(frozen=True, slots=True, kw_only=True)
class LogEntry:
    """`transaction` is None for a record that was written without a transaction."""

    record: LogRecord
    batch: Batch
    transaction: Transaction | None


@dataclass(frozen=True, slots=True, kw_only=True)
class LogPage:
    """`before` and `after` are {partition: offset}: where the previous page ends and the next one begins."""

    entries: tuple[LogEntry, ...]
    before: Mapping[int, int]
    after: Mapping[int, int]


def read_page(
    client: Client,
    topic: str,
    *,
    positions: Mapping[int, int],
    ranges: Mapping[int, tuple[int, int]],
    direction: Literal["forward", "backward"],
    limit: int,
) -> LogPage:
    """Returns at most `limit` records from the positions on, or before them. Partitions are merged by time, each in its
    own order. Raises `RetriableKafkaError` if a partition loses its leader."""
    is_forward = direction == "forward"
    reading = _Reading(client, topic, PAGE_BYTES // max(len(positions), 1))
    read = reading.forward if is_forward else reading.backward
    starts: dict[int, int] = {}
    found: dict[int, list[LogEntry]] = {}
    reached: dict[int, int] = {}
    held = 0
    for partition, position in positions.items():
        first, end = ranges[partition]
        start = starts[partition] = min(max(position, first), end)
        if held > HELD_BYTES:
            found[partition], reached[partition] = [], start
            continue
        found[partition], reached[partition] = read(partition, start, first, end, limit)
        held += sum(size_of(one.record) for one in found[partition])
    merged = list(heapq.merge(*found.values(), key=lambda one: (one.record.timestamp, one.record.partition)))
    kept = merged[:limit] if is_forward else merged[-limit:]
    before, after = {}, {}
    for partition, start in starts.items():
        mine = [one.record.offset for one in kept if one.record.partition == partition]
        is_whole = len(mine) == len(found[partition])
        if is_forward:
            before[partition] = start
            after[partition] = reached[partition] if is_whole else mine[-1] + 1 if mine else start
        else:
            before[partition] = reached[partition] if is_whole else mine[0] if mine else start
            after[partition] = start
    return LogPage(entries=tuple(kept), before=before, after=after)


class _Reading:
    """Reads one page. `share` limits the bytes of each partition, both as fetched and uncompressed."""

    def __init__(self, client: Client, topic: str, share: int) -> None:
        self._client = client
        self._topic = topic
        self._share = share
        self._bytes = 0
        self._fetches = 0
        self._is_first = True

    def forward(self, partition: int, position: int, first: int, end: int, limit: int) -> tuple[list[LogEntry], int]:
        """Returns the records, and the offset of the next ones."""
        self._begin()
        entries: list[LogEntry] = []
        at = position
        while at < end and len(entries) < limit and self._may_go_on():
            found, following = self._fetch(partition, at, most=limit - len(entries))
            entries += found
            if following <= at:
                break
            at = following
        return entries, at

    def backward(self, partition: int, position: int, first: int, end: int, limit: int) -> tuple[list[LogEntry], int]:
        """Returns the records, and the offset before which there may be others. A log may have gaps of any size, so
        each step looks further back. If records are large, steps get smaller."""
        self._begin()
        entries: list[LogEntry] = []
        high, step = position, limit
        while high > first and len(entries) < limit and self._may_go_on():
            low = max(first, high - step)
            window: list[LogEntry] = []
            at = low
            while at < high and self._may_go_on():
                found, following = self._fetch(partition, at, before=high)
                window += found
                if following <= at:
                    break
                at = following
            if at < high:
                # Some records in between were not read: show only those next to the position.
                if entries or high - low == 1:
                    break
                step = max((at - low) // 2, 1)
                self._begin()
                continue
            entries = window + entries
            high, step = low, step * STEP_GROWTH
        kept = entries[-limit:]
        return kept, kept[0].record.offset if len(entries) > limit else high

    def _begin(self) -> None:
        """Resets the count of bytes."""
        self._bytes = 0
        self._is_first = True

    def _may_go_on(self) -> bool:
        return self._is_first or (self._bytes < self._share and self._fetches < PAGES_MAX)

    def _fetch(
        self, partition: int, at: int, *, most: int | None = None, before: int | None = None
    ) -> tuple[list[LogEntry], int]:
        """Returns records from an offset on, and where to continue: at most `most`, or those `before` an offset. A
        batch may uncompress to millions of records."""
        place = (self._topic, partition)
        most_bytes = min(FETCH_BYTES, self._share)
        limits: dict[str, Any] = {
            "max_bytes": most_bytes,
            "partition_max_bytes": most_bytes,
            "max_wait_ms": 0,
            "leader_wait_ms": LEADER_WAIT_MS,
        }
        stable = self._client.fetch({place: at}, read_committed=True, **limits)[place]
        self._is_first = False
        self._fetches += 1
        self._bytes += len(stable.data)
        if at < stable.last_stable_offset:
            return self._entries(place, at, stable, most, before, is_stable=True)
        fetched = self._client.fetch({place: at}, read_committed=False, **limits)[place]
        self._bytes += len(fetched.data)
        return self._entries(place, at, fetched, most, before, is_stable=False)

    def _entries(
        self,
        place: TopicPartition,
        at: int,
        fetched: Fetched,
        most: int | None,
        before: int | None,
        *,
        is_stable: bool,
    ) -> tuple[list[LogEntry], int]:
        entries: list[LogEntry] = []
        following, packed, unpacked = at, len(fetched.data), 0
        try:
            headers = list(iter_headers(fetched.data))
            states = _states(fetched, headers, is_stable)
            for (position, header), state in zip(headers, states, strict=True):
                if before is not None and following >= before:
                    break
                following = max(following, header.next_offset)
                if header.is_control or header.next_offset <= at:
                    continue
                verify(fetched.data, position, header)
                for entry in self._of_batch(place, at, fetched, position, header, state):
                    if before is not None and entry.record.offset >= before:
                        break
                    entries.append(entry)
                    unpacked += size_of(entry.record)
                    if len(entries) == most or unpacked > self._share:
                        return entries, entry.record.offset + 1
        except CorruptRecordError as error:
            raise CorruptRecordError(f"{place[0]}-{place[1]} is damaged: {error}") from error
        finally:
            self._bytes += max(unpacked - packed, 0)
        return entries, following

    def _of_batch(
        self,
        place: TopicPartition,
        at: int,
        fetched: Fetched,
        position: int,
        header: BatchHeader,
        state: Transaction | None,
    ) -> Iterator[LogEntry]:
        codec = CODECS[header.compression] if header.compression < len(CODECS) else str(header.compression)
        batch = Batch(codec=codec, bytes=header.size, records=header.count)
        for record in iter_batch(fetched.data, position, limit=BATCH_BYTES_MAX):
            if record.offset >= at:
                made = LogRecord(
                    topic=place[0],
                    partition=place[1],
                    offset=record.offset,
                    timestamp=record.timestamp,
                    key=record.key,
                    value=record.value,
                    headers=record.headers,
                )
                yield LogEntry(record=made, batch=batch, transaction=state)


def _states(fetched: Fetched, headers: Sequence[tuple[int, BatchHeader]], is_stable: bool) -> list[Transaction | None]:
    """Returns the state of each batch. Before the last stable offset the broker names aborted transactions. After it a
    later marker decides, and without a marker the transaction is open."""
    states: list[Transaction | None] = []
    if is_stable:
        aborted = sorted(fetched.aborted, key=lambda item: item[1])
        ended: set[int] = set()
        for position, header in headers:
            while aborted and aborted[0][1] <= header.last_offset:
                ended.add(aborted.pop(0)[0])
            if header.is_control:
                if _marker(fetched, position) == "abort":
                    ended.discard(header.producer_id)
                states.append(None)
            elif header.is_transactional:
                states.append("aborted" if header.producer_id in ended else "committed")
            else:
                states.append(None)
        return states
    outcome: dict[int, Transaction] = {}
    for position, header in reversed(headers):
        if header.is_control:
            outcome[header.producer_id] = "aborted" if _marker(fetched, position) == "abort" else "committed"
            states.append(None)
        else:
            states.append(outcome.get(header.producer_id, "open") if header.is_transactional else None)
    return states[::-1]


def _marker(fetched: Fetched, position: int) -> str | None:
    decoded = decode_batch(fetched.data, position, limit=BATCH_BYTES_MAX)
    return control_type(decoded[0]) if decoded else None
