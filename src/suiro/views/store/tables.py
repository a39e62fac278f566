"""A store is five tables, the same in SQLite and Postgres. This module reads and writes them; `sqlite` and `postgres`
have the statements that differ.

| table | one row is |
|---|---|
| `rows` | a key as it is now: its value, and `since` which cut |
| `history` | a value that a key had: from cut `since` on, no more at cut `until` |
| `changes` | that a cut wrote or deleted a key |
| `cuts` | a cut whose state can still be read; the last one is the state of `rows` |
| `meta` | whose store it is; the types that the key's columns had |

The state as of cut n is what `rows` has with `since <= n`, and what `history` has with `since <= n < until`. One
transaction writes a cut's rows and the cut itself, and a reader has a snapshot of all tables. So nobody can see a state
that is not the state of a cut. `prune` deletes cuts, the oldest first, and what only they needed.
"""

from __future__ import annotations

import json
import queue
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, Self

from suiro.errors import UsageError
from suiro.foundation.types import TopicPartition
from suiro.views.cuts import Cut
from suiro.views.store.conditions import (
    DEFAULT_LIMIT,
    MAX_CONDITIONS,
    MAX_LIMIT,
    SIGNS,
    Condition,
    SearchWord,
    words_to_find,
)
from suiro.views.store.keys import AFTER_ALL, KeyTypes, place_of, range_of
from suiro.views.store.rows import (
    Change,
    CutGoneError,
    Digest,
    Found,
    NoCutError,
    Page,
    Prepared,
    Row,
    StoreBrokenError,
    StoreOfAnotherError,
    key_from,
    prepare,
)

if TYPE_CHECKING:
    from suiro.views.definition import VersionSpec

FORMAT_VERSION = 1
BUCKET_ROWS = 4_096
CHANGES_AT_ONCE = 1_000
FEW_ROWS, PAGE_CHARS = DEFAULT_LIMIT, 16 * 1024 * 1024
"""A page of more rows than a few ends with the row that goes beyond so many characters: a row may have a million."""
PRUNE_AT_ONCE = 5_000
CUTS_AT_ONCE = 100
NO_END = 2**62
KNOWN_CUTS = 10_000
IDLE_READERS = 16

Batch = tuple[Sequence[tuple[Any, ...]], Sequence[str | None]]
"""Keys and their values, None for deleted ones, in the order of the log."""

CUTS = "SELECT number, cut FROM cuts"
LIVE = "SELECT key, columns, value, hash FROM rows WHERE key >= ? AND key < ? AND since <= ?"
PAST = "SELECT key, columns, value, hash FROM history WHERE key >= ? AND key < ? AND since <= ? AND until > ?"
SUMS = "SELECT count(*), sum(hash & 4294967295), sum(hash >> 32) FROM"


@dataclass(frozen=True, slots=True)
class Read:
    """Runs SELECTs in a snapshot; `?` stands for a parameter. `page`: `Store._page`."""

    run: Callable[..., Any]
    page: Callable[..., tuple[list[tuple[Any, ...]], bool]]

    def __call__(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        found: list[tuple[Any, ...]] = self.run(statement, *parameters).fetchall()
        return found


class Store(ABC):
    """Thread-safe. Any number of processes may read while one writes."""

    looks_up_at_once: ClassVar[bool]
    """Whether a look-up by key is faster than handing it to another thread, because no other process answers it."""
    database_error: ClassVar[type[Exception]]
    """The base of the driver's errors."""
    row_lock: ClassVar[str]
    """The clause that locks the row of `meta` until the transaction ends."""

    def __init__(self, spec: VersionSpec) -> None:
        self.spec = spec
        self._known_cuts: dict[int, Cut] = {}
        self._held = threading.local()  # `read` of the snapshot that this thread holds
        self._readers: queue.LifoQueue[Any] = queue.LifoQueue(IDLE_READERS)  # connections that are not in use
        self._writing = threading.Lock()  # guards the connection `_writer`
        self._writer: Any = None
        self._is_closed = False

    @contextmanager
    def held(self, *, is_long: bool = False) -> Iterator[None]:
        """Everything that this thread reads inside is of one moment, and no cut disappears meanwhile. Until the end,
        the database also keeps what others delete and overwrite, so hold it no longer than necessary. `is_long`: no
        timeout of the database ends it."""
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

    def _read(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """One statement, in a snapshot of its own unless this thread holds one."""
        with self._reading() as read:
            return read(statement, *parameters)

    @property
    def cut(self) -> Cut | None:
        """The newest cut, which is the state of the store. None before the first."""
        found = self._read(f"{CUTS} ORDER BY number DESC LIMIT 1")
        return self._known(*found[0]) if found else None

    def newest(self) -> Cut:
        """As `cut`; raises `NoCutError` before the first."""
        with self._reading() as read:
            return self._cut(read, None)

    def newest_cuts(self) -> Iterator[Cut]:
        """The cuts whose state can be read, the newest first. Reads only as many as the caller takes: a day has
        100,000. Cuts that are pruned meanwhile may be missing."""
        return self._newest_of(self._read)

    def cut_at(
        self,
        *,
        number: int | None = None,
        time_ms: int | None = None,
        inputs: Mapping[TopicPartition, int] | None = None,
    ) -> Cut:
        """Returns the cut of this number, or the newest one that was made until this time, or the newest one that
        reflects no record of these input partitions from these offsets on. Raises `CutGoneError` if no kept cut is so
        old, and `UsageError` if the version reads none of the offsets' topics: every cut would match."""
        with self._reading() as read:
            if number is not None:
                return self._cut(read, number)
            if time_ms is not None:
                found = read(f"{CUTS} WHERE time_ms <= ? ORDER BY number DESC LIMIT 1", time_ms)
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
            found = read("SELECT columns, value, hash FROM rows WHERE key = ? AND since <= ?", place, cut.number)
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
        where: Sequence[str] = (),
        search: str | None = None,
        limit: int = DEFAULT_LIMIT,
        after: bytes | None = None,
        as_of: int | None = None,
    ) -> Page:
        """Returns rows by key. `first` and `last` are included, and may be the first parts of a key. `prefix` is the
        first parts of a key, and optionally the beginning of the next one. `where`: `Condition`s as text. `search`
        finds rows with all of its words."""
        if not 1 <= limit <= MAX_LIMIT:
            raise UsageError(f"limit={limit}: between 1 and {MAX_LIMIT:,}")
        if len(where) > MAX_CONDITIONS:
            raise UsageError(f"{len(where)} conditions; the most is {MAX_CONDITIONS}")
        conditions = [Condition.parse(text) for text in where]
        words = words_to_find(search)
        if words and not self.spec.search:
            raise UsageError(
                f"view {self.spec.view!r} has no words to search: name columns with @view(..., search=(...))"
            )
        places = range_of(first, last, prefix, after)
        with self._reading(limited=True) as read:
            cut = self._cut(read, as_of)
            statement, parameters = self._selection(places, cut.number, conditions, words, with_past=as_of is not None)
            found, more = read.page(limit, f"{statement} LIMIT ?", *parameters, limit + 1)
        rows = [_row(*one) for one in found]
        return Page(cut, rows, rows[-1].place if more else None)

    def key_types(self) -> KeyTypes:
        ((text,),) = self._read("SELECT key_types FROM meta")
        return tuple(frozenset(kinds) for kinds in json.loads(text))

    def changes(
        self, after: int, upto: int, start: bytes = b"", *, limit: int = CHANGES_AT_ONCE
    ) -> tuple[Cut, list[Change], bytes | None] | None:
        """Returns the first cut behind number `after`, up to `upto`, and what it changed from the place `start` on;
        and, if there is more of it, the place to continue at. None if there is no such cut. Raises `CutGoneError`."""
        with self._reading() as read:
            self._cut(read, after)  # only while it is kept, the cut behind it is known
            found = read(f"{CUTS} WHERE number > ? AND number <= ? ORDER BY number LIMIT 1", after, upto)
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
        # A row without columns came and went within the cut.
        changes = [Change(bytes(k), key_from(columns), value) for k, columns, value in rows[:limit] if columns]
        return cut, changes, bytes(rows[limit][0]) if len(rows) > limit else None

    def bucket_bounds(self, size: int = BUCKET_ROWS) -> tuple[bytes, ...]:
        """Returns places that divide the rows into buckets of about `size` rows: n bounds for n + 1 buckets."""
        bounds: list[bytes] = []
        place = b""
        while found := self._read("SELECT key FROM rows WHERE key > ? ORDER BY key LIMIT 1 OFFSET ?", place, size - 1):
            place = bytes(found[0][0])
            bounds.append(place)
        return tuple(bounds)

    def bucket_digests(self, bounds: Sequence[bytes], as_of: int) -> Iterator[Digest]:
        """Yields the digest of each bucket. The database computes it."""
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
        with self._reading() as read:
            number = self._cut(read, as_of).number
            statement, parameters = self._selection(_ranges(bounds)[bucket], number, with_past=True)
            return [_row(*found) for found in read(statement, *parameters)]

    def apply(self, cut: Cut, keys: Sequence[tuple[Any, ...]], values: Sequence[str | None]) -> bool:
        """Writes a cut and its rows, all or nothing. Returns False if the store has this cut, or a later one."""
        return self.apply_batches(cut, [(keys, values)])

    def apply_batches(self, cut: Cut, batches: Iterable[Batch], *, anew: bool = False) -> bool:
        """As `apply`, for more rows than should be in memory at once. `anew`: these are all rows, and other rows are
        deleted. If `batches` raises an error, so does this, and nothing is written."""
        with self._transaction() as connection:
            # First the lock: of two writers, one waits, and then sees that the cut is there.
            (types,) = self._run(connection, f"SELECT key_types FROM meta{self.row_lock}").fetchone()
            (newest,) = self._run(connection, "SELECT max(number) FROM cuts").fetchone()
            if newest is not None and newest >= cut.number:
                return False
            self._begin_cut(connection, cut.number, anew)
            for batch in batches:
                prepared = prepare(*batch, columns=self.spec.key, search=self.spec.search)
                both = zip(json.loads(types), prepared.types, strict=True)
                types = json.dumps([sorted({*kinds, *new}) for kinds, new in both])
                self._write(connection, cut.number, prepared, anew)
            if anew:
                self._delete_unmet(connection, cut.number)
            self._run(connection, "UPDATE meta SET key_types = ?", types)
            written = cut.number, cut.time_ms, cut.to_bytes().decode()
            self._run(connection, "INSERT INTO cuts VALUES (?, ?, ?)", *written)
            return True

    def prune(self, now_ms: int) -> int:
        """Deletes cuts that are older than the view's history, in small transactions, and returns how many. It keeps
        the last one before the history begins, because its state is the state at every time until the next cut."""
        deleted = 0
        while True:
            with self._transaction() as connection:
                (found,) = self._run(
                    connection,
                    "SELECT max(number) FROM cuts WHERE time_ms <= ?",
                    now_ms - self.spec.history_ms,
                ).fetchone()
                if found is None:
                    return 0
                # The cuts first: from now on, nobody begins to read what the next steps delete.
                deleted += int(self._run(connection, "DELETE FROM cuts WHERE number < ?", found).rowcount)
                changes = self._run(
                    connection,
                    "SELECT cut, key FROM changes WHERE cut <= ? ORDER BY cut, key LIMIT ?",
                    found,
                    PRUNE_AT_ONCE,
                ).fetchall()
                self._delete_history(connection, changes)
            if len(changes) < PRUNE_AT_ONCE:
                return deleted

    @abstractmethod
    def drop(self) -> None:
        """Deletes the store, and closes it."""

    def close(self) -> None:
        self._is_closed = True
        with suppress(queue.Empty):
            while True:
                self._readers.get_nowait().close()
        with self._writing:
            if self._writer is not None:
                self._writer.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.close()

    @abstractmethod
    def _run(self, connection: Any, statement: str, *parameters: Any) -> Any:
        """Executes a statement, in which `?` stands for a parameter, and returns the driver's cursor."""

    @contextmanager
    def _snapshot(self, *, limited: bool = False) -> Iterator[Read]:
        """Everything that is read inside is of one moment. `limited`: a question that takes too long fails."""
        with self._translated_errors(limited=limited):
            connection = self._reader()
            try:
                self._begin_reading(connection, limited)
                yield Read(partial(self._run, connection), partial(self._page, connection))
            finally:
                self._give_back(connection)

    def _page(
        self, connection: Any, limit: int, statement: str, *parameters: Any
    ) -> tuple[list[tuple[Any, ...]], bool]:
        """Returns the rows of a page, and whether there are more. What is behind the page is not read."""
        found: list[tuple[Any, ...]] = []
        size = 0
        with closing(self._run(connection, statement, *parameters)) as rows:
            for row in rows:
                if len(found) == limit or (size > PAGE_CHARS and limit > FEW_ROWS):
                    return found, True
                found.append(row)
                size += len(row[2])
        return found, False

    @abstractmethod
    def _reader(self) -> Any:
        """Returns a connection to read with: an idle one, or a new one."""

    @abstractmethod
    def _begin_reading(self, connection: Any, limited: bool) -> None: ...

    def _give_back(self, connection: Any) -> None:
        try:
            connection.rollback()
            if not self._is_closed:
                self._readers.put_nowait(connection)
                return
        except (self.database_error, queue.Full):
            pass
        connection.close()

    @abstractmethod
    def _translated_errors(self, *, limited: bool = False) -> AbstractContextManager[None]:
        """Turns the driver's errors into the errors of `rows`."""

    @abstractmethod
    def _transaction(self) -> AbstractContextManager[Any]:
        """A transaction on the writing connection, which it gives. Commits at the end, rolls back after an error."""

    @abstractmethod
    def _begin_cut(self, connection: Any, number: int, anew: bool) -> None:
        """Prepares `_write`. With `anew`, nothing is met yet."""

    @abstractmethod
    def _write(self, connection: Any, number: int, prepared: Prepared, anew: bool) -> None:
        """Writes rows of cut `number`, and what it changes. With `anew`, notes the keys that are met."""

    @abstractmethod
    def _delete_unmet(self, connection: Any, number: int) -> None:
        """Deletes the rows whose keys were not met."""

    @abstractmethod
    def _delete_history(self, connection: Any, changes: Sequence[tuple[int, bytes]]) -> None:
        """Deletes these rows of `changes`, and the values in `history` that they ended."""

    @abstractmethod
    def _compared(self, value: Any, sign: str | None, text: str, path: tuple[str | int, ...]) -> tuple[str, list[Any]]:
        """SQL that is true if the value at the path, in the column `text` of JSON, has the type of `value` and compares
        with it by `sign`; None: begins with it. Otherwise it is false, never null."""

    def _holds(self, condition: Condition, text: str, path: tuple[str | int, ...]) -> tuple[str, list[Any]]:
        """SQL that is true if the value at the path fulfils the condition."""
        holds, parameters = self._compared(condition.value, SIGNS.get(condition.operator), text, path)
        return (f"NOT ({holds})" if condition.operator == "ne" else holds), parameters

    @abstractmethod
    def _has_words(self, words: Sequence[SearchWord]) -> tuple[str, list[Any]]:
        """SQL that is true for a row that has all words."""

    def _selection(
        self,
        places: tuple[bytes, bytes],
        number: int,
        conditions: Sequence[Condition] = (),
        words: Sequence[SearchWord] = (),
        *,
        with_past: bool,
    ) -> tuple[str, list[Any]]:
        """Rows as of cut `number` that fulfil all conditions and have all words."""
        sql = [self._holds(one, *_where(one, self.spec.key)) for one in conditions]
        sql += [self._has_words(words)] if words else []
        more = "".join(f" AND {text}" for text, _ in sql)
        values = [value for _, parameters in sql for value in parameters]
        statement, parameters = LIVE + more, [*places, number, *values]
        if with_past:
            statement = f"{statement} UNION ALL {PAST}{more}"
            parameters += [*places, number, number, *values]
        return f"{statement} ORDER BY key", parameters

    def _newest_of(self, read: Callable[..., list[tuple[Any, ...]]]) -> Iterator[Cut]:
        before = NO_END
        while True:
            found = read(f"{CUTS} WHERE number < ? ORDER BY number DESC LIMIT ?", before, CUTS_AT_ONCE)
            yield from (self._known(*row) for row in found)
            if len(found) < CUTS_AT_ONCE:
                return
            before = found[-1][0]

    def _cut(self, read: Read, as_of: int | None) -> Cut:
        if as_of is None:
            found = read(f"{CUTS} ORDER BY number DESC LIMIT 1")
        else:
            found = read(f"{CUTS} WHERE number = ?", as_of)
        if not found:
            raise self._no_cut() if as_of is None else self._gone(read, f"cut {as_of}")
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


def _row(place: bytes, columns: str, value: str, digest: int) -> Row:
    return Row(bytes(place), key_from(columns), value, digest)


def _where(condition: Condition, columns: tuple[str, ...]) -> tuple[str, tuple[str | int, ...]]:
    """Returns the column of JSON that has the condition's value, and the value's path there. A key is an array."""
    head, *rest = condition.path
    if condition.column in columns:
        return "columns", (columns.index(condition.column),)
    return ("columns", (columns.index(head), *rest)) if head in columns else ("value", condition.path)


def _ranges(bounds: Sequence[bytes]) -> list[tuple[bytes, bytes]]:
    return list(zip([b"", *bounds], [*bounds, AFTER_ALL], strict=True))
