"""The last value of each key in a topic, read back from Kafka if the WAL does not have it.

It is needed in three cases: an update does not send an unchanged TOAST value; a TRUNCATE names no keys; and a new
snapshot does not name the keys that were deleted. The topic has all of them, so no other state is kept between runs.

A scan reads what is committed, and then what the open transaction of this capture has sent (callers flush first). No
other producer writes to these topics.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import Any

import pyarrow as pa

from suiro.client import LATEST, Client
from suiro.errors import TransientError
from suiro.topic_table import batches, committed_range

OLD = b"\1"  # in place of a value that must not be trusted
NEVER = 1 << 62  # an offset that no record has

PORTION_KEYS = 50_000
CACHE_KIB = 8_192  # of SQLite, divided by the number of files


def ends(client: Client, topic: str, partitions: int) -> dict[int, int]:
    """Returns the end of each partition."""
    wanted = {(topic, partition): LATEST for partition in range(partitions)}
    return {place[1]: found.offset for place, found in client.list_offsets(wanted).items()}


def scan(client: Client, topic: str, partitions: int) -> Iterator[tuple[int, pa.RecordBatch]]:
    """Yields (partition, rows with the columns key, value and offset) of everything that the topic has now."""
    for partition in range(partitions):
        place = (topic, partition)
        start, stable = committed_range(client, place)
        end = client.list_offsets({place: LATEST})[place].offset
        for first, last, committed in ((start, stable, True), (stable, end, False)):
            for batch in batches(client, place, first, last, compacted=True, read_committed=committed):
                if batch.num_rows:
                    yield partition, batch


class Memory:
    """The memory that several `KeyedValues` share. Beyond the limit, the largest of them is written to disk."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self.used = 0
        self.users: list[KeyedValues] = []
        self.files = 0

    def add(self, size: int) -> None:
        self.used += size
        if self.used > self.limit:
            max(self.users, key=lambda one: one.size).spill()


class KeyedValues:
    """Key to value, in memory up to a limit and in a SQLite file of this process beyond it. Raises `TransientError` for
    a disk that fails or is full: the next session may find room."""

    def __init__(self, path: Path, *, memory: Memory) -> None:
        self._path = path
        self._shared = memory
        self._memory: dict[bytes, bytes] = {}
        self.size = 0  # of what is in memory
        self._file: sqlite3.Connection | None = None
        memory.users.append(self)

    def close(self) -> None:
        self._forget()
        self._shared.users.remove(self)
        if self._file is not None:
            self._shared.files -= 1
            self._file.close()
            self._path.unlink(missing_ok=True)

    def get(self, key: bytes) -> bytes | None:
        found = self._memory.get(key)
        if found is not None or self._file is None:
            return found or None
        with self._errors_of_disk():
            row = self._file.execute("select value from entries where key = ?", (key,)).fetchone()
        return None if row is None else bytes(row[0])

    def put(self, key: bytes, value: bytes) -> None:
        """The value has at least one byte."""
        before = self._memory.get(key)
        self._memory[key] = value
        self._add(len(value) - (len(before) if before is not None else -len(key) - 150))

    def remove(self, key: bytes) -> None:
        if self._file is None:
            before = self._memory.pop(key, None)
            if before is not None:
                self._add(-len(before) - len(key) - 150)
            return
        before = self._memory.get(key)
        self._memory[key] = b""  # hides what the file has, until the next spill
        self._add(-len(before) if before is not None else len(key) + 150)

    def portions(self) -> Iterator[list[bytes]]:
        """All keys, `PORTION_KEYS` at a time."""
        keys = self.all_keys()
        while portion := list(islice(keys, PORTION_KEYS)):
            yield portion

    def all_keys(self) -> Iterator[bytes]:
        if self._file is not None:
            self.spill()
            with self._errors_of_disk():
                for (key,) in self._file.execute("select key from entries"):
                    yield bytes(key)
            return
        yield from list(self._memory)

    def clear(self) -> None:
        self._forget()
        if self._file is not None:
            with self._errors_of_disk():
                self._file.execute("delete from entries")

    def _add(self, size: int) -> None:
        self.size += size
        self._shared.add(size)

    def _forget(self) -> None:
        """Forgets what is in memory."""
        self._memory.clear()
        self._shared.used -= self.size
        self.size = 0

    @contextmanager
    def _errors_of_disk(self) -> Iterator[None]:
        try:
            yield
        except (OSError, sqlite3.Error) as error:
            raise TransientError(f"the last values of keys cannot be kept in {self._path}: {error}") from error

    def spill(self) -> None:
        """Moves what is in memory to the file."""
        kept = [(key, value) for key, value in self._memory.items() if value]
        gone = [(key,) for key, value in self._memory.items() if not value]
        with self._errors_of_disk():
            if self._file is None:
                self._path.parent.mkdir(parents=True, exist_ok=True)
                self._path.unlink(missing_ok=True)
                self._file = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
                self._shared.files += 1
                self._file.execute("pragma journal_mode = off")  # it is of no use after this process
                self._file.execute("pragma synchronous = off")
                self._file.execute(f"pragma cache_size = -{CACHE_KIB // self._shared.files}")
                self._file.execute("create table entries (key blob primary key, value blob) without rowid")
            self._file.execute("begin")
            self._file.executemany("insert or replace into entries values (?, ?)", kept)
            self._file.executemany("delete from entries where key = ?", gone)
            self._file.execute("commit")
        self._forget()


def load(values: KeyedValues, client: Client, topic: str, partitions: int, *, since: Mapping[int, int]) -> None:
    """Loads the last value of each key that has one, and `OLD` for a value that must not be trusted: one before the
    offset of its partition, or in a partition that is not the key's any more."""

    def apply(partition: int, batch: pa.RecordBatch, is_present: bool) -> None:
        limit = since.get(partition, 0) if is_present else NEVER
        rows: Any = zip(*(batch.column(name).to_pylist() for name in ("key", "value", "offset")), strict=True)
        for key, value, offset in rows:
            if value is None:
                values.remove(key)
            else:
                values.put(key, value if offset >= limit else OLD)

    _apply_in_order(values, client, topic, partitions, apply)


def load_older(keys: KeyedValues, client: Client, topic: str, partitions: int, since: dict[int, int]) -> None:
    """Loads the keys that have a value and were last written before the offset of their partition."""

    def apply(partition: int, batch: pa.RecordBatch, is_present: bool) -> None:
        limit = since.get(partition, 0)
        rows: Any = zip(
            batch.column("key").to_pylist(),
            batch.column("value").is_valid().to_pylist(),
            batch.column("offset").to_pylist(),
            strict=True,
        )
        for key, is_alive, offset in rows:
            if is_alive and offset < limit:
                keys.put(key, OLD)
            else:
                keys.remove(key)

    _apply_in_order(keys, client, topic, partitions, apply)


def _apply_in_order(
    into: KeyedValues,
    client: Client,
    topic: str,
    partitions: int,
    apply: Callable[[int, pa.RecordBatch, bool], None],
) -> None:
    """Calls `apply` with the records of each key in the order in which they were written. If the topic got more
    partitions, a key may have older records in its former partition, which may be a later one than its present one."""

    from suiro.protocol import columnar

    def look(*, present: bool) -> bool:
        has_others = False
        for partition, batch in scan(client, topic, partitions):
            is_chosen = (columnar.partitions_of(batch.column("key"), partitions) == partition) == present
            if is_chosen.all():
                apply(partition, batch, present)
                continue
            has_others = True
            if is_chosen.any():
                apply(partition, batch.filter(pa.array(is_chosen)), present)
        return has_others

    if look(present=True):
        into.clear()
        look(present=False)
        look(present=True)
