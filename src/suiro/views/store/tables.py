"""A store is five tables, the same in SQLite and Postgres; everything that is read of them is read here.

| table | one row is |
|---|---|
| `rows` | a key as it is now: its value, and `since` which cut |
| `history` | a value that a key had: from cut `since` on, no more at cut `until` |
| `changes` | that a cut wrote or deleted a key |
| `cuts` | a cut whose state can still be read; the last one is the state of `rows` |
| `meta` | whose store it is; the types that the key's columns had |

The state as of cut n: what is in `rows` with `since <= n`, and what is in `history` with `since <= n < until`. A cut's
rows and the cut itself are written in one transaction, and whoever reads has a snapshot of all tables: so a state
that is no cut's state cannot be seen. `prune` forgets cuts, oldest first, and what only they needed.
"""

from __future__ import annotations

import json
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any, ClassVar, Protocol, Self

from suiro.errors import UsageError
from suiro.foundation.types import TopicPartition
from suiro.views.cuts import Cut
from suiro.views.store.conditions import DEFAULT_LIMIT, Condition, Query, SearchWord
from suiro.views.store.places import AFTER_ALL, place_of
from suiro.views.store.rows import (
    Change,
    CutGoneError,
    Digest,
    Found,
    KeyTypes,
    NoCutError,
    Page,
    Prepared,
    Row,
    StoreBrokenError,
    StoreOfAnotherError,
    key_from,
    prepare,
)

FORMAT_VERSION = 1
BUCKET_ROWS = 4_096
CHANGES_AT_ONCE = 1_000
PRUNE_AT_ONCE = 5_000
CUTS_AT_ONCE = 100
NO_END = 2**62
KNOWN_CUTS = 10_000

Batch = tuple[Sequence[tuple[Any, ...]], Sequence[str | None]]
"""Keys and their values, None for deleted ones, in the order of the log."""

LIVE = "SELECT key, columns, value, hash FROM rows WHERE key >= ? AND key < ? AND since <= ?"
PAST = "SELECT key, columns, value, hash FROM history WHERE key >= ? AND key < ? AND since <= ? AND until > ?"
SUMS = "SELECT count(*), sum(hash & 4294967295), sum(hash >> 32) FROM"


class StoreSpec(Protocol):
    """What a store must know of the version whose rows it has."""

    @property
    def view(self) -> str: ...
    @property
    def version(self) -> int: ...
    @property
    def key(self) -> tuple[str, ...]: ...
    @property
    def serve(self) -> str: ...
    @property
    def search(self) -> tuple[str, ...]: ...
    @property
    def history_ms(self) -> int: ...
    @property
    def journal_id(self) -> str: ...


class Read(Protocol):
    """Runs a SELECT in a snapshot; `?` stands for a parameter."""

    def __call__(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]: ...


class TableStore(ABC):
    """Thread-safe; any number of processes may read while one writes."""

    looks_up_at_once: ClassVar[bool]
    """A row is found by its key without a wait for another process: sooner than another thread would begin to."""

    def __init__(self, spec: StoreSpec) -> None:
        self.spec = spec
        self._known_cuts: dict[int, Cut] = {}
        self._held = threading.local()  # `read` of the snapshot that this thread holds

    @contextmanager
    def held(self) -> Iterator[None]:
        """All that this thread reads inside is of one moment: no cut is forgotten under its hands. The database keeps
        for as long what others delete and overwrite, so not for longer than it takes."""
        with self._snapshot() as read:
            self._held.read = read
            try:
                yield
            finally:
                del self._held.read

    @contextmanager
    def _reading(self, *, limited: bool = False) -> Iterator[Read]:
        held: Read | None = getattr(self._held, "read", None)
        if held is not None:
            yield held
            return
        with self._snapshot(limited=limited) as read:
            yield read

    # -- reading -------------------------------------------------------------------------------------------

    @property
    def cut(self) -> Cut | None:
        """The newest one: what the store's state is. None before the first."""
        with self._reading() as read:
            found = read("SELECT number, cut FROM cuts ORDER BY number DESC LIMIT 1")
            return self._known(*found[0]) if found else None

    def newest(self) -> Cut:
        """As `cut`; raises `NoCutError` before the first."""
        with self._reading() as read:
            return self._cut(read, None)

    def cuts(self) -> list[Cut]:
        """Those whose state can be read, newest first."""
        with self._reading() as read:
            return [self._known(*row) for row in read("SELECT number, cut FROM cuts ORDER BY number DESC")]

    def newest_cuts(self) -> Iterator[Cut]:
        """As `cuts`, read only as far as is asked for: a day has 100,000. What is forgotten meanwhile may lack."""
        before = NO_END
        while True:
            with self._reading() as read:
                found = read(
                    "SELECT number, cut FROM cuts WHERE number < ? ORDER BY number DESC LIMIT ?",
                    before,
                    CUTS_AT_ONCE,
                )
            yield from (self._known(*row) for row in found)
            if len(found) < CUTS_AT_ONCE:
                return
            before = found[-1][0]

    def cut_at(
        self,
        *,
        number: int | None = None,
        time_ms: int | None = None,
        inputs: Mapping[TopicPartition, int] | None = None,
    ) -> Cut:
        """The cut of this number; or the newest that was made until then; or the newest that reflects nothing of these
        input partitions from these offsets on. Raises `CutGoneError` where no kept one is so old, `UsageError` for
        offsets of topics of which the version reads none: every cut would do."""
        with self._reading() as read:
            if number is not None:
                return self._cut(read, number)
            if time_ms is not None:
                found = read(
                    "SELECT number, cut FROM cuts WHERE time_ms <= ? ORDER BY number DESC LIMIT 1", time_ms
                )
                if found:
                    return self._known(*found[0])
                raise self._gone(read, f"time {time_ms} ms")
            wanted = inputs or {}
            topics = {topic for topic, _ in wanted}
            for cut in self._newest_of(read):
                own = cut.topics
                if topics and own and not topics & own:
                    raise UsageError(
                        f"version {self.spec.version} of view {self.spec.view!r} does not read "
                        f"{', '.join(map(repr, sorted(topics)))}; it reads {', '.join(sorted(own))}"
                    )
                if all(cut.inputs.get(place, 0) <= offset for place, offset in wanted.items()):
                    return cut
            named = ", ".join(f"{topic}:{p}:{offset}" for (topic, p), offset in sorted(wanted.items()))
            raise self._gone(read, f"the offsets {named}")

    def get(self, key: Sequence[Any], *, as_of: int | None = None) -> Found:
        """The row of a whole key."""
        if len(key) != len(self.spec.key):
            raise UsageError(
                f"view {self.spec.view!r} has the key {', '.join(self.spec.key)}: {len(self.spec.key)} parts, not "
                f"{len(key)}"
            )
        place = place_of(key)
        with self._reading() as read:
            cut = self._cut(read, as_of)
            found = read(
                "SELECT columns, value, hash FROM rows WHERE key = ? AND since <= ?", place, cut.number
            )
            if not found and as_of is not None:
                found = read(
                    "SELECT columns, value, hash FROM history WHERE key = ? AND until > ? AND since <= ?",
                    place,
                    cut.number,
                    cut.number,
                )
        if not found:
            return Found(cut, None)
        columns, value, digest = found[0]
        return Found(cut, Row(place, key_from(columns), value, digest))

    def rows(
        self,
        *,
        first: Sequence[Any] | None = None,
        last: Sequence[Any] | None = None,
        prefix: Sequence[Any] | None = None,
        where: Sequence[Condition | str] = (),
        search: str | None = None,
        limit: int = DEFAULT_LIMIT,
        after: bytes | None = None,
        as_of: int | None = None,
    ) -> Page:
        """Rows by key: `first` and `last` are included and may be the first parts of a key, `prefix` is the first
        parts and perhaps a beginning of the next; `search` finds rows that have all its words."""
        query = Query.of(
            first=first,
            last=last,
            prefix=prefix,
            where=[Condition.parse(item) if isinstance(item, str) else item for item in where],
            search=search,
            limit=limit,
            after_place=after,
        )
        if query.words and not self.spec.search:
            raise UsageError(
                f"view {self.spec.view!r} has no words to search: name columns with @view(..., search=(...))"
            )
        with self._reading(limited=True) as read:
            cut = self._cut(read, as_of)
            rows = self._select(read, query, cut.number, with_past=as_of is not None)
        more = len(rows) > query.limit
        rows = rows[: query.limit]
        return Page(cut, rows, rows[-1].place if more else None)

    def key_types(self) -> KeyTypes:
        with self._reading() as read:
            ((text,),) = read("SELECT key_types FROM meta")
            return types_from(text)

    def changes(
        self, after: int, upto: int, start: bytes = b"", *, limit: int = CHANGES_AT_ONCE
    ) -> tuple[Cut, list[Change], bytes | None] | None:
        """What the first cut behind number `after`, up to `upto`, changed, from the place `start` on; the place to go
        on at if that was not all of it. None if there is no such cut. Raises `CutGoneError`."""
        with self._reading() as read:
            self._cut(read, after)  # what came next is known only as long as it is kept
            found = read(
                "SELECT number, cut FROM cuts WHERE number > ? AND number <= ? ORDER BY number LIMIT 1",
                after,
                upto,
            )
            if not found:
                return None
            cut = self._known(*found[0])
            rows = read(
                "SELECT c.key, coalesce(r.columns, h.columns, d.columns), coalesce(r.value, h.value) FROM changes c "
                "LEFT JOIN rows r ON r.key = c.key AND r.since = c.cut "
                "LEFT JOIN history h ON h.key = c.key AND h.since = c.cut "
                "LEFT JOIN history d ON d.key = c.key AND d.until = c.cut "
                "WHERE c.cut = ? AND c.key >= ? ORDER BY c.key LIMIT ?",
                cut.number,
                start,
                limit + 1,
            )
        # Without columns: a row that came and went within the cut.
        changes = [
            Change(bytes(k), key_from(columns), value) for k, columns, value in rows[:limit] if columns
        ]
        return cut, changes, bytes(rows[limit][0]) if len(rows) > limit else None

    # -- comparing -----------------------------------------------------------------------------------------

    def bucket_bounds(self, size: int = BUCKET_ROWS) -> tuple[bytes, ...]:
        """Places that part the rows into buckets of about `size` rows: n bounds for n + 1 buckets."""
        bounds: list[bytes] = []
        place = b""
        while True:
            with self._reading() as read:
                found = read(
                    "SELECT key FROM rows WHERE key > ? ORDER BY key LIMIT 1 OFFSET ?", place, size - 1
                )
            if not found:
                return tuple(bounds)
            place = bytes(found[0][0])
            bounds.append(place)

    def bucket_digests(self, bounds: Sequence[bytes], as_of: int) -> Iterator[Digest]:
        """Of each bucket how many rows it has and what they add up to. No row leaves the database."""
        for start, end in _ranges(bounds):
            with self._reading() as read:
                number = self._cut(read, as_of).number
                parts = [
                    *read(f"{SUMS} rows WHERE key >= ? AND key < ? AND since <= ?", start, end, number),
                    *read(
                        f"{SUMS} history WHERE key >= ? AND key < ? AND since <= ? AND until > ?",
                        start,
                        end,
                        number,
                        number,
                    ),
                ]
            yield Digest.of(parts)

    def bucket_rows(self, bucket: int, bounds: Sequence[bytes], as_of: int) -> list[Row]:
        """The rows of one bucket by key."""
        start, end = _ranges(bounds)[bucket]
        with self._reading() as read:
            number = self._cut(read, as_of).number
            return self._select(read, Query(start, end, limit=-1), number, with_past=True)

    # -- writing -------------------------------------------------------------------------------------------

    def apply(self, cut: Cut, keys: Sequence[tuple[Any, ...]], values: Sequence[str | None]) -> bool:
        """Writes a cut and its rows, all or nothing; False where the store is at this cut, or beyond it, already."""
        return self.apply_batches(cut, [(keys, values)])

    @abstractmethod
    def apply_batches(self, cut: Cut, batches: Iterable[Batch], *, anew: bool = False) -> bool:
        """As `apply`, for more rows than should be held at once. `anew`: these are all rows there are, so that others
        are deleted. What `batches` raises is raised, and nothing was written."""

    @abstractmethod
    def prune(self, now_ms: int) -> int:
        """Forgets cuts older than the view's history, but not the one whose state was there when it begins: a time in
        it can be read however long before it the last change was. Returns how many. In small transactions."""

    @abstractmethod
    def drop(self) -> None:
        """Frees all that the store takes up. It is closed then."""

    @abstractmethod
    def close(self) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    # -- inside --------------------------------------------------------------------------------------------

    @abstractmethod
    def _snapshot(self, *, limited: bool = False) -> AbstractContextManager[Read]:
        """All that is read inside is of one moment. `limited`: a question that takes too long fails."""

    @abstractmethod
    def _holds(self, condition: Condition, text: str, path: tuple[str | int, ...]) -> tuple[str, list[Any]]:
        """SQL that is true where what the path leads to, in the column `text` of JSON, fulfils the condition."""

    @abstractmethod
    def _has_words(self, words: Sequence[SearchWord]) -> tuple[str, list[Any]]:
        """SQL that is true for a row that has all words."""

    def _select(self, read: Read, query: Query, number: int, *, with_past: bool) -> list[Row]:
        conditions = ""
        values: list[Any] = []
        for condition in query.where:
            place = _of_key(condition, self.spec.key)
            target = ("value", condition.path) if place is None else ("columns", place)
            sql, more = self._holds(condition, *target)
            conditions, values = f"{conditions} AND {sql}", [*values, *more]
        if query.words:
            sql, more = self._has_words(query.words)
            conditions, values = f"{conditions} AND {sql}", [*values, *more]
        statement, parameters = LIVE + conditions, [query.start, query.end, number, *values]
        if with_past:
            statement = f"{statement} UNION ALL {PAST}{conditions}"
            parameters += [query.start, query.end, number, number, *values]
        statement += " ORDER BY key"
        if query.limit >= 0:
            statement, parameters = f"{statement} LIMIT ?", [*parameters, query.limit + 1]
        return [
            Row(bytes(place), key_from(columns), value, digest)
            for place, columns, value, digest in read(statement, *parameters)
        ]

    def _newest_of(self, read: Read) -> Iterator[Cut]:
        """Newest first, read only as far as is asked for."""
        found = read("SELECT number, cut FROM cuts ORDER BY number DESC LIMIT ?", CUTS_AT_ONCE)
        while found:
            yield from (self._known(*row) for row in found)
            found = read(
                "SELECT number, cut FROM cuts WHERE number < ? ORDER BY number DESC LIMIT ?",
                found[-1][0],
                CUTS_AT_ONCE,
            )

    def _cut(self, read: Read, as_of: int | None) -> Cut:
        if as_of is None:
            found = read("SELECT number, cut FROM cuts ORDER BY number DESC LIMIT 1")
            if not found:
                raise self._no_cut()
        else:
            found = read("SELECT number, cut FROM cuts WHERE number = ?", as_of)
            if not found:
                raise self._gone(read, f"cut {as_of}")
        return self._known(*found[0])

    def _known(self, number: int, text: str) -> Cut:
        cut = self._known_cuts.get(number)
        if cut is None:
            cut = Cut.from_json(json.loads(text))
            if len(self._known_cuts) >= KNOWN_CUTS:
                self._known_cuts.clear()
            self._known_cuts[number] = cut
        return cut

    def _no_cut(self) -> NoCutError:
        return NoCutError(
            f"version {self.spec.version} of view {self.spec.view!r} has no rows to show yet: its first cut is still "
            "being made. Ask again"
        )

    def _gone(self, read: Read, wanted: str) -> Exception:
        found = read("SELECT min(number), max(number), min(time_ms) FROM cuts")
        first, last, since_ms = found[0]
        if first is None:
            return self._no_cut()
        return CutGoneError(
            f"version {self.spec.version} of view {self.spec.view!r} does not keep its state as of {wanted}: it keeps "
            f"cuts {first} to {last}, since {since_ms} ms. A longer history is @view(..., history=...)"
        )

    def _check_owner(self, version: int, owner: str, place: str) -> None:
        if version != FORMAT_VERSION:
            raise StoreBrokenError(
                f"the store in {place} has format {version}, this version of suiro reads {FORMAT_VERSION}: use the one "
                "that made it, or remove it, and it is made again from the log"
            )
        if owner == self._owner():
            return
        theirs, ours = json.loads(owner), json.loads(self._owner())
        if theirs | {"log": ""} == ours | {"log": ""}:
            raise StoreOfAnotherError(
                f"the store in {place} has rows of version {self.spec.version} of view {self.spec.view!r} from "
                f"another log: there topic _suiro_views has the id {theirs.get('log', 'unknown')}, here "
                f"{ours.get('log', 'unknown')}. Give each log's host a folder (--data) and a database (--postgres) of "
                "its own; or, where that log is gone, remove the store and deploy again"
            )
        raise StoreOfAnotherError(
            f"the store in {place} is of {owner}, not of {self._owner()}: give each its own place"
        )

    def _owner(self) -> str:
        spec = self.spec
        owner = {"view": spec.view, "version": spec.version, "key": spec.key, "search": spec.search}
        return json.dumps(owner | ({"log": spec.journal_id} if spec.journal_id else {}))


def merged_types(text: str, more: Iterable[Prepared]) -> str:
    """The types that a store has in its `meta`, with those of the rows that are written."""
    columns = [set(kinds) for kinds in json.loads(text)]
    for prepared in more:
        for kinds, new in zip(columns, prepared.types, strict=True):
            kinds |= new
    return json.dumps([sorted(kinds) for kinds in columns])


def types_from(text: str) -> KeyTypes:
    return tuple(frozenset(kinds) for kinds in json.loads(text))


def prepare_for(spec: StoreSpec, batch: Batch) -> Prepared:
    return prepare(*batch, columns=spec.key, search=spec.search)


def _of_key(condition: Condition, columns: tuple[str, ...]) -> tuple[str | int, ...] | None:
    """Where the column is in the key's JSON array, if it is of the key."""
    head, *rest = condition.path
    if condition.column in columns:
        return (columns.index(condition.column),)
    return (columns.index(head), *rest) if head in columns else None


def _ranges(bounds: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip([b"", *bounds], [*bounds, AFTER_ALL], strict=True))
