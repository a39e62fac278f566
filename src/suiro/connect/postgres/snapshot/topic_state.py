"""The last value of each key in a topic, read back from Kafka if the WAL does not have it.

It is needed in three cases: an update does not send an unchanged TOAST value; a TRUNCATE names no keys; and a new
snapshot does not name the keys that were deleted. The topic has all of them, so no other state is kept between runs.

A scan reads what is committed, and then what the open transaction of this capture has sent (callers flush first). No
other producer writes to these topics.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa

from suiro.client import LATEST, Client
from suiro.errors import TransientError
from suiro.topic_table import batches, committed_range

OLD = b"\1"  # in place of a value that must not be trusted
NEVER = 1 << 62  # an offset that no record has

PORTION_KEYS = 50_000


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


class ValuesFile:
    """A SQLite file of this process, of which `memory_bytes` are in memory. Raises `TransientError` for a disk that
    fails or is full: the next session may find room."""

    def __init__(self, path: Path, *, memory_bytes: int) -> None:
        self._path = path
        self._memory_bytes = memory_bytes
        self._connection: sqlite3.Connection | None = None
        self.tables = count()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._path.unlink(missing_ok=True)

    def run(self, statement: str, *parameters: bytes | int) -> list[tuple[bytes, ...]]:
        try:
            return self._opened().execute(statement, parameters).fetchall()
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error

    def run_many(self, statement: str, parameters: Iterable[tuple[bytes, ...]]) -> None:
        try:
            self._opened().executemany(statement, parameters)
        except (OSError, sqlite3.Error) as error:
            raise self._failed(error) from error

    def _failed(self, error: Exception) -> TransientError:
        return TransientError(f"the last values of keys cannot be kept in {self._path}: {error}")

    def _opened(self) -> sqlite3.Connection:
        if self._connection is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._path.unlink(missing_ok=True)
            connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
            # It is of no use after this process, so nothing is committed: pages are written when there is no room.
            for setting in ("journal_mode = off", "synchronous = off", f"cache_size = -{self._memory_bytes >> 10}"):
                connection.execute(f"pragma {setting}")
            connection.execute("begin")
            self._connection = connection
        return self._connection


class KeyedValues:
    """Key to value, a table of the file."""

    def __init__(self, file: ValuesFile) -> None:
        self._file = file
        self._name = f"values_{next(file.tables)}"
        file.run(f"create table {self._name} (key blob primary key, value blob)")

    def close(self) -> None:
        self._file.run(f"drop table {self._name}")

    def get(self, key: bytes) -> bytes | None:
        found = self._file.run(f"select value from {self._name} where key = ?", key)
        return found[0][0] if found else None

    def update(self, values: Mapping[bytes, bytes | None]) -> None:
        """Sets the values of keys; None removes the key."""
        kept = [(key, value) for key, value in values.items() if value is not None]
        gone = [(key,) for key, value in values.items() if value is None]
        put = f"insert into {self._name} values (?, ?) on conflict (key) do update set value = excluded.value"
        self._file.run_many(put, kept)
        self._file.run_many(f"delete from {self._name} where key = ?", gone)

    def portions(self) -> Iterator[list[bytes]]:
        """All keys, `PORTION_KEYS` at a time."""
        statement = f"select key from {self._name} where key > ? order by key limit {PORTION_KEYS}"
        last = b""
        while found := self._file.run(statement, last):
            yield [key for (key,) in found]
            ((last,),) = found[-1:]

    def clear(self) -> None:
        self._file.run(f"delete from {self._name}")


def load(
    values: KeyedValues,
    client: Client,
    topic: str,
    partitions: int,
    *,
    since: Mapping[int, int],
    only_older: bool = False,
) -> None:
    """Loads the last value of each key that has one, and `OLD` for a value that must not be trusted: one before the
    offset of its partition, or in a partition that is not the key's any more. With `only_older`, only the keys that
    were last written before the offset of their partition."""

    def apply(partition: int, batch: pa.RecordBatch, is_present: bool) -> None:
        limit = since.get(partition, 0) if is_present or only_older else NEVER
        value_of = batch.column("value").is_valid() if only_older else batch.column("value")
        rows: Any = zip(
            *(one.to_pylist() for one in (batch.column("key"), value_of, batch.column("offset"))), strict=True
        )
        values.update(
            {key: OLD if value and offset < limit else None if only_older else value for key, value, offset in rows}
        )

    _apply_in_order(values, client, topic, partitions, apply)


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
