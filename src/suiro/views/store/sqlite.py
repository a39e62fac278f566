"""A store in one SQLite file: one writer and any number of readers, which do not wait for each other (WAL).

Triggers write `history` and `changes`, so no statement can change a row without them. After kill -9 the file has whole
cuts only. After a power failure the last cuts may be missing, and the follower reads them from the log again.
"""

from __future__ import annotations

import os
import queue
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, nullcontext, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from suiro.clock import monotonic_s
from suiro.views.store.conditions import SearchWord
from suiro.views.store.json_text import canonical
from suiro.views.store.rows import (
    Prepared,
    QuestionTooLargeError,
    StoreBrokenError,
    StoreFullError,
    StoreUnavailableError,
)
from suiro.views.store.tables import FORMAT_VERSION, Store

if TYPE_CHECKING:
    from suiro.views.definition import VersionSpec

PAGE_BYTES = 4_096  # larger ones cost more to write: triggers may have to put a page back as it was
WRITER_CACHE_KIB = 65_536
READER_CACHE_KIB = 8_192
LOG_LIMIT_BYTES = 64 * 1024 * 1024  # what the write-ahead log is cut back to
BUSY_TIMEOUT_S = 10.0
QUESTION_LIMIT_S = 10.0
STEPS_BETWEEN_LOOKS = 100_000

_TABLES = """
CREATE TABLE meta (only INTEGER PRIMARY KEY CHECK (only = 1), format INTEGER NOT NULL, owner TEXT NOT NULL,
                   key_types TEXT NOT NULL, applying INTEGER);
CREATE TABLE cuts (number INTEGER PRIMARY KEY, time_ms INTEGER NOT NULL, cut TEXT NOT NULL);
CREATE TABLE rows (key BLOB PRIMARY KEY, since INTEGER NOT NULL, hash INTEGER NOT NULL, doc INTEGER,
                   columns TEXT NOT NULL, value TEXT NOT NULL) WITHOUT ROWID;
CREATE TABLE history (key BLOB, until INTEGER, since INTEGER NOT NULL, hash INTEGER NOT NULL, doc INTEGER,
                      columns TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (key, until)) WITHOUT ROWID;
CREATE TABLE changes (cut INTEGER, key BLOB, PRIMARY KEY (cut, key)) WITHOUT ROWID;
CREATE TRIGGER written AFTER INSERT ON rows BEGIN
  INSERT INTO changes VALUES (NEW.since, NEW.key) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER replaced AFTER UPDATE ON rows BEGIN
  INSERT INTO history SELECT OLD.key, NEW.since, OLD.since, OLD.hash, OLD.doc, OLD.columns, OLD.value
    WHERE OLD.since < NEW.since;
  INSERT INTO changes VALUES (NEW.since, NEW.key) ON CONFLICT DO NOTHING;
END;
CREATE TRIGGER deleted AFTER DELETE ON rows BEGIN
  INSERT INTO history SELECT OLD.key, applying, OLD.since, OLD.hash, OLD.doc, OLD.columns, OLD.value
    FROM meta WHERE OLD.since < applying;
  INSERT INTO changes SELECT applying, OLD.key FROM meta WHERE true ON CONFLICT DO NOTHING;
END;
"""

# The words of a row are found by key and cut. A value that is replaced within one cut was in no cut's state, so its
# words are deleted at once.
_SEARCH_TABLES = """
CREATE VIRTUAL TABLE search USING fts5(words, key UNINDEXED, since UNINDEXED, tokenize = 'ascii', detail = none);
CREATE TRIGGER replaced_words AFTER UPDATE ON rows WHEN OLD.since = NEW.since BEGIN
  DELETE FROM search WHERE rowid = OLD.doc;
END;
CREATE TRIGGER deleted_words AFTER DELETE ON rows WHEN OLD.since = (SELECT applying FROM meta) BEGIN
  DELETE FROM search WHERE rowid = OLD.doc;
END;
"""

_UPSERT = (
    "INSERT INTO rows (key, since, hash, doc, columns, value) VALUES (?, ?, ?, ?, ?, ?) "
    "ON CONFLICT (key) DO UPDATE SET since = excluded.since, hash = excluded.hash, doc = excluded.doc, "
    "value = excluded.value WHERE value <> excluded.value"
)
_WORDS = "INSERT INTO search (rowid, words, key, since) SELECT ?, ?, key, since FROM rows WHERE key = ? AND doc = ?"


class SqliteStore(Store):
    looks_up_at_once = True
    database_error = sqlite3.Error
    row_lock = ""  # one transaction at a time writes anyway

    def __init__(self, spec: VersionSpec, path: Path) -> None:
        """Creates the file if it does not exist. Raises `StoreBrokenError`, `StoreUnavailableError`,
        `StoreFullError`."""
        super().__init__(spec)
        self._path = path
        path.parent.mkdir(parents=True, exist_ok=True)
        with self._translated_errors():
            self._writer = self._connect(WRITER_CACHE_KIB)
            try:
                self._make()
            except BaseException:
                self._writer.close()
                raise

    def _connect(self, cache_kib: int) -> sqlite3.Connection:
        connection = sqlite3.connect(
            self._path,
            timeout=BUSY_TIMEOUT_S,
            isolation_level=None,
            check_same_thread=False,
            cached_statements=256,
        )
        connection.execute(f"PRAGMA page_size = {PAGE_BYTES}")
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        connection.execute("PRAGMA secure_delete = OFF")  # some builds overwrite what is deleted with zeros
        connection.execute(f"PRAGMA journal_size_limit = {LOG_LIMIT_BYTES}")
        connection.execute(f"PRAGMA cache_size = -{cache_kib}")
        return connection

    def _make(self) -> None:
        # An existing store is opened without a wait for the lock: somebody may be writing a large cut.
        is_made = self._writer.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]
        with nullcontext(self._writer) if is_made else self._transaction() as connection:
            if not connection.execute("SELECT count(*) FROM sqlite_master").fetchone()[0]:
                statements = _TABLES + (_SEARCH_TABLES if self.spec.search else "")
                for statement in _statements(statements):
                    connection.execute(statement)
                connection.execute(
                    "INSERT INTO meta VALUES (1, ?, ?, ?, NULL)",
                    (FORMAT_VERSION, self._owner(), canonical([[] for _ in self.spec.key])),
                )
            try:
                version, owner = connection.execute("SELECT format, owner FROM meta").fetchone()
            except (sqlite3.OperationalError, TypeError):
                raise StoreBrokenError(
                    f"{self._path} is an SQLite file, but no store of a view: give the store another place"
                ) from None
            self._check_owner(version, owner, str(self._path))

    def _run(self, connection: sqlite3.Connection, statement: str, *parameters: Any) -> sqlite3.Cursor:
        return connection.execute(statement, parameters)

    def _reader(self) -> sqlite3.Connection:
        try:
            connection: sqlite3.Connection = self._readers.get_nowait()
        except queue.Empty:
            if self._is_closed:  # perhaps dropped: a new connection would create the file again
                raise StoreUnavailableError(f"the store {self._path} is closed; ask again") from None
            connection = self._connect(READER_CACHE_KIB)
            connection.execute("PRAGMA query_only = ON")
        return connection

    def _begin_reading(self, connection: sqlite3.Connection, limited: bool) -> None:
        if limited:
            ends = monotonic_s() + QUESTION_LIMIT_S
            connection.set_progress_handler(lambda: monotonic_s() > ends, STEPS_BETWEEN_LOOKS)
        connection.execute("BEGIN")

    def _give_back(self, connection: sqlite3.Connection) -> None:
        connection.set_progress_handler(None, 0)
        super()._give_back(connection)

    @contextmanager
    def _transaction(self) -> Iterator[sqlite3.Connection]:
        with self._writing, self._translated_errors():
            self._writer.execute("BEGIN IMMEDIATE")
            try:
                yield self._writer
                self._writer.execute("COMMIT")
            except BaseException:
                if self._writer.in_transaction:
                    with suppress(sqlite3.Error):  # SQLite may have rolled back by itself
                        self._writer.execute("ROLLBACK")
                raise

    @contextmanager
    def _translated_errors(self, *, limited: bool = False) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            code = getattr(error, "sqlite_errorcode", 0) & 0xFF
            if code == sqlite3.SQLITE_FULL:
                raise StoreFullError(
                    f"no room for the store {self._path}: {error}. The cut before is served; free some space, and it "
                    "goes on by itself"
                ) from error
            if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
                raise StoreBrokenError(
                    f"the store {self._path} is damaged: {error}. Remove it, and it is made again from the log"
                ) from error
            if code in (sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_READONLY) and self._is_denied():
                raise StoreBrokenError(
                    f"the store {self._path}: {error}. The host's user needs the right to read and write the file, "
                    "those beside it, and its folder"
                ) from error
            if code == sqlite3.SQLITE_INTERRUPT:
                raise QuestionTooLargeError(
                    f"the question took longer than {QUESTION_LIMIT_S:g} s: ask for a smaller range of keys"
                ) from error
            raise StoreUnavailableError(f"the store {self._path}: {error}") from error

    def _is_denied(self) -> bool:
        """Whether rights are why a file cannot be opened. It may also be the number of open files, or a disk that is
        read-only at present. (The file must not be opened: its end would take SQLite's locks with it.)"""
        folder = self._path.parent
        if not folder.exists() or os.statvfs(folder).f_flag & os.ST_RDONLY:
            return False
        files = filter(os.path.lexists, self._files())
        return not os.access(folder, os.W_OK | os.X_OK) or not all(os.access(path, os.R_OK | os.W_OK) for path in files)

    def _begin_cut(self, connection: sqlite3.Connection, number: int, anew: bool) -> None:
        connection.execute("UPDATE meta SET applying = ?", (number,))
        if anew:
            connection.execute("CREATE TEMP TABLE IF NOT EXISTS met (key BLOB PRIMARY KEY) WITHOUT ROWID")
            connection.execute("DELETE FROM met")

    def _write(self, connection: sqlite3.Connection, number: int, prepared: Prepared, anew: bool) -> None:
        upserts = prepared.upserts
        docs: Sequence[int | None] = [None] * len(upserts)
        if self.spec.search:
            (last,) = connection.execute("SELECT coalesce(max(rowid), 0) FROM search").fetchone()
            docs = range(last + 1, last + 1 + len(upserts))
        numbered = list(zip(docs, upserts, strict=True))
        connection.executemany(
            _UPSERT,
            [(place, number, digest, doc, key, value) for doc, (place, digest, key, value, _) in numbered],
        )
        if self.spec.search:
            connection.executemany(_WORDS, [(doc, " ".join(row[4]), row[0], doc) for doc, row in numbered])
        connection.executemany("DELETE FROM rows WHERE key = ?", zip(prepared.deletes))
        if anew:
            places = ((place,) for place, *_ in upserts)
            connection.executemany("INSERT INTO met VALUES (?) ON CONFLICT DO NOTHING", places)

    def _delete_unmet(self, connection: sqlite3.Connection, number: int) -> None:
        connection.execute("DELETE FROM rows WHERE key NOT IN (SELECT key FROM met)")
        connection.execute("DELETE FROM met")

    def _delete_history(self, connection: sqlite3.Connection, changes: Sequence[tuple[int, bytes]]) -> None:
        if self.spec.search:
            connection.executemany(
                "DELETE FROM search WHERE rowid = (SELECT doc FROM history WHERE until = ? AND key = ?)",
                changes,
            )
        connection.executemany("DELETE FROM history WHERE until = ? AND key = ?", changes)
        connection.executemany("DELETE FROM changes WHERE cut = ? AND key = ?", changes)

    def drop(self) -> None:
        self.close()
        for path in self._files():
            path.unlink(missing_ok=True)

    def _files(self) -> list[Path]:
        return [Path(f"{self._path}{end}") for end in ("", "-wal", "-shm")]

    def _compared(self, value: Any, sign: str | None, text: str, path: tuple[str | int, ...]) -> tuple[str, list[Any]]:
        at = "$" + "".join(f"[{step}]" if isinstance(step, int) else f'."{step}"' for step in path)
        kind, item = f"json_type({text}, ?)", f"json_extract({text}, ?)"
        if value is None or isinstance(value, bool):  # their types are their values
            return f"coalesce({kind}, 'null') = ?", [at, canonical(value)]
        kinds = "= 'text'" if isinstance(value, str) else "IN ('integer', 'real')"
        is_kind = f"coalesce({kind} {kinds}, false)"
        if sign is None:
            return f"({is_kind} AND substr({item}, 1, length(?)) = ?)", [at, at, value, value]
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            value = float(value)  # SQLite's integers have 64 bits. It reads larger integers in JSON as floats.
        return f"({is_kind} AND {item} {sign} ?)", [at, at, value]

    def _has_words(self, words: Sequence[SearchWord]) -> tuple[str, list[Any]]:
        wanted = " AND ".join(f'"{word}"' + ("*" if is_prefix else "") for word, is_prefix in words)
        return "(key, since) IN (SELECT key, since FROM search WHERE search MATCH ?)", [wanted]


def _statements(script: str) -> Iterator[str]:
    """Yields one statement after the other; `executescript` would commit between them."""
    statement = ""
    for line in script.splitlines():
        statement += line + "\n"
        if sqlite3.complete_statement(statement):
            yield statement
            statement = ""
