"""The list of a node's topics on disk: which exist, with what id, settings and number of partitions.

It decides which topics exist; a partition's folder alone is not a topic. `topics.json` holds an earlier state, and
`topics.journal` every change since, one line each, so that a change costs one line however many topics there are. A
start, and a long journal, writes the whole list again: to another file, which is synced and renamed over the old one.
Lines have numbers and the list knows its last one, so a crash between the two steps repeats nothing. A crash leaves at
worst a half-written last line, of a change that no client has an answer to. The steps after a `put` may fail, since a
disk gets full: then its line is cut off again, which needs no room. If there were other changes meanwhile, a further
line takes it back; if there is no room for that one, it is written before any other change.
"""

from __future__ import annotations

import json
import logging
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, get_args
from uuid import UUID

from suiro.errors import ConfigError
from suiro.log import check_version, replace_file

logger = logging.getLogger(__name__)

LIST_FILE = "topics.json"
JOURNAL_FILE = "topics.journal"
_VERSION = 1
"""Of both files. A release that writes another kind of line raises it."""
_LONG_JOURNAL = 5_000

Change = Literal["put", "delete", "deleted"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicEntry:
    name: str
    topic_id: UUID
    partitions: int
    configs: Mapping[str, str]

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> TopicEntry:
        return cls(
            name=value["name"],
            topic_id=UUID(value["id"]),
            partitions=value["partitions"],
            configs=dict(value["configs"]),
        )

    def to_json(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "id": str(self.topic_id),
            "partitions": self.partitions,
            "configs": dict(self.configs),
        }


class TopicList:
    """`load` once; then every change is on disk when the call returns, unless made `together` with others."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / LIST_FILE
        self._journal_path = directory / JOURNAL_FILE
        self.topics: dict[UUID, TopicEntry] = {}
        self.deleting: dict[UUID, TopicEntry] = {}
        self._number = 0
        self._lines = 0
        self._last_line = 0
        self._last_put: TopicEntry | None = None  # what the last line says, if it is a put
        self._owed: list[tuple[Change, TopicEntry]] = []  # holds already, and could not be written yet
        self._journal = -1
        self._together = False

    @property
    def exists(self) -> bool:
        return self._path.exists()

    def load(self) -> None:
        """Read list and journal, and begin a new journal. Raises `ConfigError` where one is damaged."""
        whole: int | None = None
        if self._path.exists():
            try:
                content = json.loads(self._path.read_text(encoding="utf-8"))
                check_version(self._path, content["version"], _VERSION)
                self._number = content.get("number", 0)
                for known, key in ((self.topics, "topics"), (self.deleting, "deleting")):
                    for entry in map(TopicEntry.from_json, content[key]):
                        known[entry.topic_id] = entry
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self._path} is damaged ({error!r}); restore it, or move it and {JOURNAL_FILE} away to adopt "
                    "the folders found: their topics have lost their settings then, and keep all records"
                ) from error
            whole = self._replay()
        self._journal = os.open(self._journal_path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o644)
        if whole is not None:
            os.ftruncate(self._journal, whole)  # the next line must not stand behind what a crash left of one

    def put(self, *entries: TopicEntry) -> None:
        """A topic is new, or has other settings or more partitions."""
        for entry in entries:
            self._write("put", entry)

    def take_back(self, entry: TopicEntry, *, before: TopicEntry | None) -> None:
        """Undo a `put` of this entry. `before`: the entry in its place until then. Raises OSError; then it is written
        before the next change."""
        if before is None:
            self.topics.pop(entry.topic_id, None)
        else:
            self.topics[entry.topic_id] = before
        if self._last_put == entry:
            self._last_put = None
            os.ftruncate(self._journal, self._last_line)
            self._number -= 1
            self._lines -= 1
            if not self._together:
                os.fsync(self._journal)
            return
        # Other clients have their turns between the steps of a creation: the last line belongs to another change.
        self._owed += [("delete", entry), ("deleted", entry)] if before is None else [("put", before)]
        self._settle()

    def delete(self, topic_id: UUID) -> None:
        """A topic is gone; its folders may still be there."""
        self._write("delete", self.topics[topic_id])

    def deleted(self, topic_id: UUID) -> None:
        """The folders are gone too."""
        self._write("deleted", self.deleting[topic_id])

    @contextmanager
    def together(self) -> Iterator[None]:
        """Changes made within are synced to disk once, at the end, if there are any."""
        self._together = True
        number = self._number
        try:
            yield
        finally:
            self._together = False
            if self._number != number:
                os.fsync(self._journal)

    def fold(self) -> None:
        """Write the whole list, and begin an empty journal."""
        content = {
            "version": _VERSION,
            "number": self._number,
            "topics": [entry.to_json() for entry in self.topics.values()],
            "deleting": [entry.to_json() for entry in self.deleting.values()],
        }
        replace_file(self._path, json.dumps(content).encode())
        os.ftruncate(self._journal, 0)
        self._lines = 0
        self._last_put = None

    def close(self) -> None:
        if self._journal >= 0:
            os.close(self._journal)
            self._journal = -1

    def _write(self, change: Change, entry: TopicEntry) -> None:
        self._settle()
        self._append(change, entry)

    def _settle(self) -> None:
        while self._owed:
            self._append(*self._owed[0])
            del self._owed[0]

    def _append(self, change: Change, entry: TopicEntry) -> None:
        if self._lines >= _LONG_JOURNAL:
            try:
                self.fold()
            except OSError as error:  # the change below needs less room
                logger.warning("cannot write %s anew, %s goes on: %s", self._path, JOURNAL_FILE, error)
        line = json.dumps({"number": self._number + 1, change: entry.to_json()}).encode() + b"\n"
        end = os.fstat(self._journal).st_size
        try:
            if os.write(self._journal, line) != len(line):
                raise OSError(f"the disk took only a part of a line of {self._journal_path}")
            if not self._together:
                os.fsync(self._journal)
        except OSError:
            os.ftruncate(self._journal, end)  # a half line in the middle would make the rest unreadable
            raise
        self._number += 1
        self._apply(change, entry)
        self._last_line = end
        self._last_put = entry if change == "put" else None
        self._lines += 1

    def _apply(self, change: Change, entry: TopicEntry) -> None:
        match change:
            case "put":
                self.topics[entry.topic_id] = entry
            case "delete":
                self.topics.pop(entry.topic_id, None)
                self.deleting[entry.topic_id] = entry
            case "deleted":
                self.deleting.pop(entry.topic_id, None)

    def _replay(self) -> int:
        """Apply the journal. Returns the size of its whole lines; a crash may have left a part of one behind them."""
        journal = self._journal_path.read_bytes() if self._journal_path.exists() else b""
        whole = journal.rfind(b"\n") + 1
        for position, line in enumerate(journal[:whole].split(b"\n")[:-1]):
            try:
                content = json.loads(line)
                number = content.pop("number")
                ((change, value),) = content.items()
                entry = TopicEntry.from_json(value)
                if change not in get_args(Change):
                    raise ValueError(change)
            except (ValueError, KeyError, TypeError, AttributeError) as error:
                raise ConfigError(
                    f"{self._journal_path}, line {position + 1} is damaged ({error!r}); restore it, or remove it "
                    f"to begin with what {LIST_FILE} says"
                ) from error
            self._lines += 1
            if number > self._number:
                self._number = number
                self._apply(change, entry)
        return whole
