"""Keys of rows to select again: an update did not send a TOAST value, and neither the topic nor a later range has it.

A key is listed from the skipped change until a complete record or a tombstone of it is written. The list is part of the
position: it becomes visible with the records around it, and survives a kill.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

PART = "owed/"

Texts = Sequence[str]


class ReselectKeys:
    """By table, the key in Avro and its columns as Postgres prints them, in the table's order."""

    def __init__(self, parts: Mapping[str, Any], *, limit: int) -> None:
        self._limit = limit
        self._tables: dict[str, dict[bytes, Texts]] = {}
        self._durable: set[tuple[str, bytes]] = set()
        self._changed: set[tuple[str, bytes]] = set()  # that are here or in the position, not in both
        for part, texts in parts.items():
            if part.startswith(PART):
                table, _, key = part[len(PART) :].rpartition("/")
                self._tables.setdefault(table, {})[bytes.fromhex(key)] = texts
                self._durable.add((table, bytes.fromhex(key)))

    def __len__(self) -> int:
        return sum(len(keys) for keys in self._tables.values())

    @property
    def is_over_limit(self) -> bool:
        return len(self) > self._limit

    @property
    def largest(self) -> str:
        """Returns the table with the most keys."""
        return max(self._tables, key=lambda table: len(self._tables[table]))

    @property
    def tables(self) -> list[str]:
        return list(self._tables)

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    def of(self, table: str) -> Mapping[bytes, Texts]:
        return self._tables.get(table, {})

    def add(self, table: str, key: bytes, texts: Texts) -> None:
        self._tables.setdefault(table, {})[key] = texts
        self._note(table, key)

    def remove(self, table: str, keys: Iterable[bytes]) -> None:
        known = self._tables.get(table)
        if known is None:
            return
        for key in keys:
            if known.pop(key, None) is not None:
                self._note(table, key)
        if not known:
            del self._tables[table]

    def _note(self, table: str, key: bytes) -> None:
        is_durable = (table, key) in self._durable
        note = self._changed.discard if is_durable == (key in self.of(table)) else self._changed.add
        note((table, key))

    def forget(self, table: str) -> None:
        self.remove(table, list(self.of(table)))

    def drain_changed(self) -> dict[str, Any]:
        """Returns the changed parts of the position, and resets the changes."""
        parts: dict[str, Any] = {}
        for table, key in self._changed:
            texts = self.of(table).get(key)
            parts[f"{PART}{table}/{key.hex()}"] = None if texts is None else list(texts)
        self._durable ^= self._changed
        self._changed = set()
        return parts
