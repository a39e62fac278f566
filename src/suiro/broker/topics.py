"""The topics of a node: their ids, settings and open partitions, and the file that remembers them.

`topics.json` in the data directory is the truth about which topics exist; a partition's folder alone is not a
topic. It is written whole beside itself, flushed, and renamed over the old one, so a crash leaves the old or the
new list, never half of one.

- Creating: the list is written first; folders that a crash kept from being made are made at the next start.
- Deleting: the topic moves to the list's `deleting` part first; a start finishes what a crash interrupted, by
  topic id, so that a new topic of the same name is never touched.
- A data directory with partition folders but without the file comes from elsewhere (Apache Kafka itself): its
  topics are adopted as they are.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID, uuid4

from suiro.broker.configs import log_config
from suiro.config import NodeSettings
from suiro.errors import ConfigError

if TYPE_CHECKING:
    from suiro.clock import Clock
    from suiro.log import DataDirectory, LogConfig, PartitionLog

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
_REGISTRY = "topics.json"
_KRAFT_TOPIC = "__cluster_metadata"


class InvalidTopicError(Exception):
    """A topic name that Kafka would refuse too."""


@dataclass(slots=True, eq=False)
class Partition:
    """One partition: its log, and who waits for it to grow."""

    topic: str
    index: int
    log: PartitionLog
    waiters: dict[object, Callable[[], None]] = field(default_factory=dict)
    deleted: bool = False

    def grown(self) -> None:
        """Call after the log's end or its last stable offset moved."""
        if self.waiters:
            for wake in list(self.waiters.values()):
                wake()


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    configs: dict[str, str]
    partitions: list[Partition]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def check_topic_name(name: str) -> None:
    """Raises `InvalidTopicError` with Kafka's rule that the name breaks."""
    if not name:
        raise InvalidTopicError("a topic name cannot be empty")
    if name in (".", ".."):
        raise InvalidTopicError(f"a topic cannot be called {name!r}")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"a topic name has at most {MAX_NAME_LENGTH} characters, this has {len(name)}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(f"topic name {name!r}: only letters, digits, '.', '_' and '-' are allowed")


class TopicRegistry:
    """All topics by name and by id. Everything here runs on the event loop's thread."""

    def __init__(self, directory: DataDirectory, *, settings: NodeSettings, clock: Clock) -> None:
        self._directory = directory
        self._path = directory.path / _REGISTRY
        self._settings = settings
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}

    def load(self) -> None:
        """Open every partition the list names; finish interrupted deletions."""
        path = self._path
        if path.exists():
            try:
                content = json.loads(path.read_text(encoding="utf-8"))
            except ValueError as error:
                raise ConfigError(
                    f"{path} is damaged ({error}); restore it, or move it away to adopt the folders found"
                ) from error
        else:
            content = {"topics": self._found_folders(), "deleting": []}
        self._finish_deletions({UUID(entry["id"]) for entry in content["deleting"]})
        for entry in content["topics"]:
            self._open(entry["name"], UUID(entry["id"]), dict(entry["configs"]), entry["partitions"])
        if content["deleting"] or not path.exists():
            self._save(())

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_name.values())

    def __contains__(self, name: str) -> bool:
        return name in self._by_name

    def topic(self, name: str) -> Topic | None:
        return self._by_name.get(name)

    def topic_by_id(self, topic_id: UUID | None) -> Topic | None:
        return self._by_id.get(topic_id) if topic_id is not None else None

    def partition(self, name: str, index: int) -> Partition | None:
        topic = self._by_name.get(name)
        if topic is None or not 0 <= index < len(topic.partitions):
            return None
        return topic.partitions[index]

    def partitions(self) -> Iterator[Partition]:
        for topic in self._by_name.values():
            yield from topic.partitions

    def create(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Topic:
        """Create a topic whose name and configs the caller has checked, and which does not exist."""
        assert name not in self._by_name
        topic = Topic(name, uuid4(), dict(configs), [])
        self._by_name[name] = topic
        self._by_id[topic.topic_id] = topic
        try:
            self._save((), counts={name: partitions})
            self._open_partitions(topic, partitions)
        except BaseException:
            self._forget_unfinished(topic, partitions)
            raise
        return topic

    def _forget_unfinished(self, topic: Topic, partitions: int) -> None:
        """After a failed creation (disk full, no descriptor left): a part of a topic would pass for all of it."""
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        for index in range(partitions):
            with contextlib.suppress(OSError):
                self._directory.delete_partition(topic.name, index)
            shutil.rmtree(self._directory.path / f"{topic.name}-{index}", ignore_errors=True)
        with contextlib.suppress(OSError):  # else the next start makes the topic, empty
            self._save(())

    def grow(self, topic: Topic, partitions: int) -> None:
        """Add partitions up to the given number."""
        self._save((), counts={topic.name: partitions})
        self._open_partitions(topic, partitions)

    def delete(self, topic: Topic) -> None:
        """Forget the topic and remove its data. Waiting fetches see it gone."""
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        self._save((topic,))
        for partition in topic.partitions:
            partition.deleted = True
            self._directory.delete_partition(topic.name, partition.index)
        self._save(())
        for partition in topic.partitions:
            partition.grown()

    def alter_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Give the topic these settings of its own instead of those it has. Raises `ConfigError`."""
        config = self.log_config(configs)
        before, topic.configs = topic.configs, dict(configs)
        try:
            self._save(())
        except BaseException:
            topic.configs = before
            raise
        self._apply(topic, config)

    def settings_changed(self, settings: NodeSettings) -> None:
        """The node's defaults are others: they hold at once for every topic that does not say otherwise."""
        self._settings = settings
        for topic in self._by_name.values():
            self._apply(topic, self.log_config(topic.configs))

    def _apply(self, topic: Topic, config: LogConfig) -> None:
        for partition in topic.partitions:
            if partition.log.config != config:
                partition.log.update_config(config)

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """The log's settings: the node's defaults with a topic's own on top. Raises `ConfigError`."""
        return log_config(configs, self._settings)

    def _open(self, name: str, topic_id: UUID, configs: dict[str, str], partitions: int) -> None:
        topic = Topic(name, topic_id, configs, [])
        self._by_name[name] = topic
        self._by_id[topic_id] = topic
        self._open_partitions(topic, partitions)

    def _open_partitions(self, topic: Topic, count: int) -> None:
        config = self.log_config(topic.configs)
        for index in range(len(topic.partitions), count):
            log = self._directory.open_partition(
                topic.name, index, topic_id=topic.topic_id, config=config, clock=self._clock
            )
            topic.partitions.append(Partition(topic.name, index, log))

    def _save(self, deleting: tuple[Topic, ...], *, counts: Mapping[str, int] | None = None) -> None:
        def entry(topic: Topic) -> dict[str, Any]:
            return {
                "name": topic.name,
                "id": str(topic.topic_id),
                "partitions": (counts or {}).get(topic.name, len(topic.partitions)),
                "configs": topic.configs,
            }

        content = {
            "version": 1,
            "topics": [entry(topic) for topic in self._by_name.values()],
            "deleting": [entry(topic) for topic in deleting],
        }
        write_atomically(self._path, json.dumps(content, indent=1).encode())

    def _finish_deletions(self, deleting: set[UUID]) -> None:
        for place in self._directory.partitions():
            if place.topic_id in deleting:
                shutil.rmtree(place.directory, ignore_errors=True)

    def _found_folders(self) -> list[dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        for place in self._directory.partitions():
            if place.topic_id is None or place.topic == _KRAFT_TOPIC:
                continue
            fresh = {"name": place.topic, "id": str(place.topic_id), "partitions": 0, "configs": {}}
            entry = found.setdefault(place.topic, fresh)
            entry["partitions"] = max(entry["partitions"], place.partition + 1)
            logger.info("adopting %s, which this node did not make", place.directory.name)
        return list(found.values())


def write_atomically(path: Path, content: bytes) -> None:
    """Replace a file so that a crash leaves the old content or the new."""
    beside = path.with_name(path.name + ".tmp")
    with open(beside, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    os.replace(beside, path)
