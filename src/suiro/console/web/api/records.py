"""Records: a page around an offset, a search, and a download."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from suiro.client import NO_LEADER, Client, Fetched, TopicInfo
from suiro.clock import Clock
from suiro.console.formats import Decoded, Filter
from suiro.console.pages import LEADER_WAIT_MS, read_page
from suiro.console.records import LogRecord, Start, behind_deleted, chosen_of, parse_start, start_offsets
from suiro.console.topics import ranges_of, require_partition, topic_info
from suiro.console.web.endpoint import Call, Download, Events, NotFoundError, get, number_of
from suiro.console.web.record_files import FILE_FORMATS, Csv, Found, JsonLines
from suiro.console.web.record_json import RecordJson, RecordView
from suiro.console.web.streams import event
from suiro.errors import (
    CorruptRecordError,
    DeadlineExceededError,
    OffsetOutOfRangeError,
    RegistryUnavailableError,
    RetriableKafkaError,
    SuiroError,
    TransientError,
    UsageError,
)
from suiro.foundation.types import TopicPartition
from suiro.protocol.record_batch import iter_headers

PAGE_RECORDS = 100
PAGE_RECORDS_MAX = 1_000
PAGE_PARTITIONS_MAX = 200
"""The most partitions that are merged by time. Of a topic with more, one partition is shown at a time."""
SCAN_RECORDS = 100
SCAN_RECORDS_MAX = 10_000
SCAN_STEP_MS = 100
"""The length of a step of a search or a file. After each step, the reader may have disconnected. A search tells its
progress twice a second, also while the console reads the state of ten thousand topics."""
SCAN_FETCH_BYTES = 1024 * 1024
REGISTRY_WAIT_MS = 60_000
"""The time that a file waits for the schema of a record."""
EMPTY_FETCHES_MAX = 80
"""The most fetches of a search without records, each of `SCAN_WAIT_MS`, although there were some when it began."""
SCAN_WAIT_MS = 250

FORMATS = {"key": "the format of keys: auto, string, json, avro, long, hex", "value": "the format of values"}
WHERE = {"partition": "one partition; all, where it is not said", **FORMATS}
FILTER = {"filter": "a rule, as connectors have them: late > 15 and carrier != 'XX'"}
_FROM = {"from": "earliest, latest, an offset, -N, or a time in ISO 8601"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Edges:
    """The end of the previous page and the beginning of the next one."""

    before: int
    after: int


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordsPage:
    """`leaderless` partitions have no leader, so their records are not on the page."""

    records: tuple[RecordJson, ...]
    positions: dict[int, Edges]
    ranges: dict[int, tuple[int, int]]
    leaderless: tuple[int, ...]


@get(
    "/topics/{topic}/records",
    query={
        **_FROM,
        **WHERE,
        "positions": "PARTITION:OFFSET,... of the page before, in place of from",
        "direction": "forward or backward",
        "limit": f"at most {PAGE_RECORDS_MAX}",
    },
)
def _page(call: Call, client: Client) -> RecordsPage:
    """A page of records around a place, those of aborted and open transactions, too."""
    info = topic_info(client, call.path["topic"])
    try:
        return _page_of(call, client, info)
    except RetriableKafkaError as error:
        if error.code_name != NO_LEADER:
            raise
    # A partition has lost its leader meanwhile. The page shows the others.
    return _page_of(call, client, topic_info(client, info.name))


def _page_of(call: Call, client: Client, info: TopicInfo) -> RecordsPage:
    topic = info.name
    view = RecordView(call, topic)
    limit = call.number("limit", PAGE_RECORDS, most=PAGE_RECORDS_MAX) or 1
    chosen = partitions_of(call, info)
    if len(chosen) > PAGE_PARTITIONS_MAX:
        raise UsageError(
            f"topic {topic!r} has {len(chosen)} partitions, more than are shown together; give partition=N"
        )
    ranges = _ranges(client, topic, chosen)
    direction = _direction(call)
    if "positions" in call.query:
        known = chosen if "partition" in call.query else range(len(info.partitions))
        said = _positions(call.query["positions"], known)
        positions = {partition: at for partition, at in said.items() if partition in chosen}
    else:
        start = parse_start(call.query.get("from", "latest"))
        if start.kind == "last":  # the newest records of all partitions together
            start, direction, limit = Start(kind="latest"), "backward", min(limit, max(start.value, 1))
        positions = start_offsets_soon(client, topic, chosen, start, read_committed=False)
    page = read_page(client, topic, positions=positions, ranges=ranges, direction=direction, limit=limit)
    return RecordsPage(
        records=tuple(view.of(one) for one in page.entries),
        positions={
            partition: Edges(before=page.before[partition], after=page.after[partition]) for partition in positions
        },
        ranges=ranges,
        leaderless=leaderless_of(call, info),
    )


def _direction(call: Call) -> Literal["forward", "backward"]:
    said = call.query.get("direction", "backward" if call.query.get("from", "latest") == "latest" else "forward")
    if said not in ("forward", "backward"):
        raise UsageError(f"direction={said[:80]!r}: forward or backward")
    return "forward" if said == "forward" else "backward"


def partitions_of(call: Call, info: TopicInfo, *, whole: bool = False) -> list[int]:
    """The partition that is asked for, or all that have a leader. Raises `TransientError` if none has one; with `whole`
    if one has none."""
    wanted = call.number("partition")
    if wanted is not None:
        require_partition(info.name, wanted, len(info.partitions))
        return [wanted]
    led = [one.partition for one in info.partitions if one.leader >= 0]
    without = len(info.partitions) - len(led)
    if without and (whole or not led):
        raise TransientError(
            f"{without} of {len(info.partitions)} partitions of {info.name} have no leader, so their records cannot be "
            "read now; try again, or give partition=N"
        )
    return led


def leaderless_of(call: Call, info: TopicInfo) -> tuple[int, ...]:
    """Returns the partitions that `partitions_of` leaves out."""
    return () if "partition" in call.query else tuple(one.partition for one in info.partitions if one.leader < 0)


def _ranges(client: Client, topic: str, partitions: Sequence[int]) -> dict[int, tuple[int, int]]:
    places = [(topic, partition) for partition in partitions]
    found = ranges_of(client, places, leader_wait_ms=LEADER_WAIT_MS)
    return {partition: found[topic, partition] for partition in partitions}


start_offsets_soon = partial(start_offsets, leader_wait_ms=LEADER_WAIT_MS)


def _positions(text: str, known: Sequence[int]) -> dict[int, int]:
    """Parses positions such as `0:12,1:40`."""
    found = {}
    for part in text.split(","):
        partition, colon, offset = part.partition(":")
        if not colon:
            raise UsageError(f"positions: {part[:80]!r} is not PARTITION:OFFSET")
        number = number_of("positions", partition)
        if number not in known:
            raise UsageError(f"positions: there is no partition {number}")
        found[number] = number_of("positions", offset)
    return found


@get("/topics/{topic}/record", query={**WHERE, "offset": "its offset"})
def _one(call: Call, client: Client) -> RecordJson:
    """One record, whole."""
    topic = call.path["topic"]
    view = RecordView(call, topic)
    partition, offset = place_of(call)
    return view.of(entry_at(client, topic, partition, offset), whole=True)


def place_of(call: Call) -> tuple[int, int]:
    """Returns the partition and the offset that are asked for. Raises `UsageError`."""
    partition, offset = call.number("partition"), call.number("offset")
    if partition is None or offset is None:
        raise UsageError("give partition=N and offset=N")
    return partition, offset


def entry_at(client: Client, topic: str, partition: int, offset: int) -> Any:
    require_partition(topic, partition, len(topic_info(client, topic).partitions))
    ranges = _ranges(client, topic, [partition])
    page = read_page(client, topic, positions={partition: offset}, ranges=ranges, direction="forward", limit=1)
    if not page.entries or page.entries[0].record.offset != offset:
        raise NotFoundError(f"{topic}-{partition} has no record at offset {offset}")
    return page.entries[0]


class Matching:
    """Finds the records that a request asks for, as its user may see them."""

    def __init__(self, call: Call, topic: str, *, is_exact: bool = False) -> None:
        text = call.query.get("filter", "").strip()
        self.view = RecordView(call, topic, is_exact=is_exact)
        self.filter = Filter(text) if text else None

    def look(self, record: LogRecord) -> tuple[Decoded, Decoded] | None:
        """Returns the key and the value of a record; None if the filter leaves it out."""
        view, wanted = self.view, self.filter
        if wanted is not None:
            key = view.key_for_a_filter(record) if "key" in wanted.reads else None
            if not wanted.holds(record, view.value_for_a_filter(record), key):
                return None
        return view.key_and_value(record)

    @property
    def unclear(self) -> dict[str, Any]:
        """The number of records that the filter did not fit so far, and the first of them."""
        return {"unclear": 0, "first_unclear": None} if self.filter is None else self.filter.left_out


@dataclass(slots=True)
class _Progress:
    scanned: int = 0
    matched: int = 0
    bytes: int = 0
    share: float = 0.0


class _Fetches:
    """Fetches what follows on a thread while a search looks at what has come. Nobody else may use the client then."""

    def __init__(self, client: Client, thread: ThreadPoolExecutor) -> None:
        self._client = client
        self._thread = thread
        self._next: tuple[TopicPartition, int, Future[Fetched]] | None = None

    def get(self, place: TopicPartition, at: int, end: int) -> Fetched:
        if self._next is None or self._next[:2] != (place, at):
            self._ask(place, at)
        assert self._next is not None
        waiting, self._next = self._next[2], None
        fetched = waiting.result()
        with suppress(CorruptRecordError):  # it is reported behind what is whole
            following = max((header.next_offset for _, header in iter_headers(fetched.data)), default=end)
            if at < following < end:
                self._ask(place, following)
        return fetched

    def _ask(self, place: TopicPartition, at: int) -> None:
        self._next = place, at, self._thread.submit(self._fetch, place, at)

    def _fetch(self, place: TopicPartition, at: int) -> Fetched:
        return self._client.fetch(
            {place: at},
            max_bytes=SCAN_FETCH_BYTES,
            partition_max_bytes=SCAN_FETCH_BYTES,
            max_wait_ms=SCAN_WAIT_MS,
            leader_wait_ms=LEADER_WAIT_MS,
        )[place]


class _Scan:
    """Reads committed records from a start to the current end of the topic, partition by partition, so that the result
    is always the same. `steps` yields the records of each step. The rest of a partition that loses its leader meanwhile
    is left out, and the partition is in `leaderless`. `deleted` counts the offsets that were deleted before they were
    read. If it `is_exact`, each record is decoded by its schema: it waits
    for a registry that does not answer, and ends with an error."""

    def __init__(self, call: Call, topic: str, *, limit: int | None, is_exact: bool = False) -> None:
        self._console = call.console
        self._clock: Clock = call.console.clock
        self._topic = topic
        self._limit = limit
        self._is_exact = is_exact
        self.matching = Matching(call, topic, is_exact=is_exact)
        self.view = self.matching.view
        wanted = self.matching.filter
        self._choose = None if wanted is None else self.view.choose(wanted)
        self.progress = _Progress()
        self.leaderless: list[int] = []
        self.deleted = 0
        with call.console.client() as client:
            info = topic_info(client, topic)
            self._topic_id = info.topic_id
            chosen = partitions_of(call, info, whole=True)
            start = parse_start(call.query.get("from", "earliest"))
            self._starts = start_offsets_soon(client, topic, chosen, start)
            ends = start_offsets_soon(client, topic, chosen, Start(kind="latest"))
        self._ends = ends
        self._total = sum(max(ends[one] - self._starts[one], 0) for one in chosen) or 1
        self._done = 0
        self._until_ms = 0
        self._found: list[Found] = []

    def steps(self) -> Iterator[list[Found]]:
        with self._console.client() as client, ThreadPoolExecutor(1, thread_name_prefix="console-fetch") as asking:
            fetches = _Fetches(client, asking)
            self._until_ms = self._clock.monotonic_ms() + SCAN_STEP_MS
            for partition in self._starts:
                yield from self._read(fetches, partition)
                if self._is_full:
                    break
                self._done += self._ends[partition] - self._starts[partition]
            else:
                self.progress.share = 1.0
            now = asking.submit(client.metadata, [self._topic]).result().get(self._topic)
            if now is not None and now.topic_id != self._topic_id:
                raise UsageError(f"topic {self._topic!r} was deleted and created again meanwhile; begin again")
        yield self._found

    @property
    def _is_full(self) -> bool:
        return self._limit is not None and self.progress.matched >= max(self._limit, 1)

    def _step(self) -> Iterator[list[Found]]:
        """Ends a step, and begins the next one."""
        found, self._found = self._found, []
        yield found
        self._until_ms = self._clock.monotonic_ms() + SCAN_STEP_MS

    def _read(self, fetches: _Fetches, partition: int) -> Iterator[list[Found]]:
        """Reads a partition to its end, or until enough is found."""
        place, start, end = (self._topic, partition), self._starts[partition], self._ends[partition]
        progress, at, empty = self.progress, start, 0
        while at < end:
            try:
                fetched = fetches.get(place, at, end)
            except RetriableKafkaError as error:
                if error.code_name != NO_LEADER:
                    raise
                self.leaderless.append(partition)
                # It took its time. The next partitions may have lost theirs, too.
                yield from self._step()
                return
            except OffsetOutOfRangeError as error:
                before, at = at, behind_deleted(error)
                self.deleted += min(at, end) - before
                # The log may lose records for ever, or say so.
                yield from self._step()
                continue
            progress.bytes += len(fetched.data)
            before = at
            found = chosen_of(*place, at, fetched, True, end=end, choose=self._choose)
            for count, record, following in found:
                at = following
                progress.scanned += count
                if record is not None:
                    if self._is_exact:
                        seen = yield from self._look_patiently(record)
                    else:
                        seen = self.matching.look(record)
                    if seen is not None:
                        progress.matched += 1
                        self._found.append((record, *seen))
                        if self._is_full:
                            return
                # Also after batches without visible records: aborted transactions may have gigabytes.
                if self._clock.monotonic_ms() >= self._until_ms:
                    progress.share = min((self._done + at - start) / self._total, 1.0)
                    yield from self._step()
            empty = empty + 1 if at == before else 0
            if empty > EMPTY_FETCHES_MAX:
                raise DeadlineExceededError(
                    f"no more records of {self._topic}-{partition} arrive from offset {at} on, although it had "
                    f"{end} when the search began; was the topic recreated?"
                )
            if empty:  # the step ends, and the next one asks again
                yield from self._step()

    def _look_patiently(self, record: LogRecord) -> Generator[list[Found], None, tuple[Decoded, Decoded] | None]:
        """Like `look`. Yields nothing, step by step, while the registry does not answer."""
        ends_ms = self._clock.monotonic_ms() + REGISTRY_WAIT_MS
        while True:
            try:
                return self.matching.look(record)
            except RegistryUnavailableError as error:
                if self._clock.monotonic_ms() >= ends_ms:
                    raise TransientError(
                        f"{record.topic}-{record.partition} offset {record.offset} cannot be decoded: {error}; try "
                        "again, or give formats that need no registry (key=..., value=...)"
                    ) from error
            yield []
            self._clock.sleep_ms(SCAN_STEP_MS)


@get("/topics/{topic}/scan", query={**_FROM, **WHERE, **FILTER, "limit": f"at most {SCAN_RECORDS_MAX}"})
def _scan(call: Call) -> Events:
    """Server-sent events: the records that a filter lets through, to the end that the topic has now."""
    limit = call.number("limit", SCAN_RECORDS, most=SCAN_RECORDS_MAX) or 1
    return Events(parts=_scanned(_Scan(call, call.path["topic"], limit=limit), limit))


def _scanned(scan: _Scan, limit: int) -> Iterator[bytes]:
    progress = scan.progress
    try:
        for found in scan.steps():
            told = event("records", [scan.view.shown(*one) for one in found]) if found else b""
            yield told + event("progress", progress)
        end = {
            "reason": "limit" if progress.matched >= limit else "leaderless" if scan.leaderless else "end",
            "scanned": progress.scanned,
            "matched": progress.matched,
            "leaderless": scan.leaderless,
            "deleted": scan.deleted,
            **scan.matching.unclear,
        }
        yield event("end", end)
    except SuiroError as error:
        yield event("failed", {"message": str(error)})


@get(
    "/topics/{topic}/export",
    query={**_FROM, **WHERE, **FILTER, "format": "jsonl or csv", "limit": "how many; all, where it is not said"},
)
def _export(call: Call) -> Download:
    """Records as a file."""
    topic = call.path["topic"]
    kind = call.query.get("format", "jsonl")
    if kind not in FILE_FORMATS:
        raise UsageError(f"format={kind[:80]!r}: {' or '.join(FILE_FORMATS)}")
    scan = _Scan(call, topic, limit=call.number("limit"), is_exact=True)
    form = FILE_FORMATS[kind]
    return Download(name=f"{topic}.{kind}", media_type=form.media_type, parts=_exported(scan, form))


def _exported(scan: _Scan, form: Csv | JsonLines) -> Iterator[bytes]:
    yield form.head
    for found in scan.steps():
        if scan.leaderless:  # a file without these records must not look whole
            raise TransientError(f"partition {scan.leaderless[0]} has lost its leader; try again")
        yield form.lines(found, scan.view)
    wanted = scan.matching.filter
    if wanted is not None and wanted.unclear:
        yield form.left_out(wanted)
