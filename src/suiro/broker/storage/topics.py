"""The topics of a node: their ids, settings and open partitions, and the file that remembers them.

The list on disk (`topic_list`) is the truth about which topics exist; a partition's folder alone is not a topic.

- Creating: the list is written first; folders that a crash kept from being made are made at the next start.
- Deleting: the topic moves to the list's `deleting` part first; a start finishes what a crash interrupted, by
  topic id, so that a new topic of the same name is never touched.
- Altering: the list first, then the open logs.
- A data directory with partition folders but without the file comes from elsewhere (Apache Kafka itself), or has lost
  it: its topics are adopted. Their settings are not known, so they keep all that they have.
"""

from __future__ import annotations

import contextlib
import gc
import logging
import re
import shutil
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from uuid import UUID, uuid4

from suiro.broker.refusals import RefusedError, shown
from suiro.broker.settings.cluster_state import written_down
from suiro.broker.settings.configs import log_config
from suiro.broker.storage.topic_list import LIST_FILE, TopicEntry, TopicList
from suiro.config import MAX_LONG, NodeSettings
from suiro.errors import ConfigError
from suiro.log import StorageError, parse_topic_setting
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.clock import Clock
    from suiro.log import DataDirectory, LogConfig, PartitionLog

T = TypeVar("T")

logger = logging.getLogger(__name__)

OFFSETS_TOPIC = "__consumer_offsets"
TRANSACTIONS_TOPIC = "__transaction_state"
INTERNAL_TOPICS = frozenset((OFFSETS_TOPIC, TRANSACTIONS_TOPIC))
MAX_NAME_LENGTH = 249
_LEGAL_NAME = re.compile(r"[a-zA-Z0-9._-]+")
METADATA_TOPIC = "__cluster_metadata"
"""Kafka's log of a cluster's metadata. A node has none, and no topic may have its name."""
TIER_TOPIC = "__remote_log_metadata"
"""The topic in which the remote tier keeps its list of segments."""
_KEEPS_ALL = {"cleanup.policy": ""}
"""A topic whose settings are not known, or not valid, keeps all records until it is given another policy."""
_TOGETHER = {"max.compaction.lag.ms": str(MAX_LONG), "local.retention.ms": "-2", "local.retention.bytes": "-2"}
"""Values that go together with all others."""


class InvalidTopicError(RefusedError):
    """A topic name that Kafka would refuse too."""

    def __init__(self, message: str) -> None:
        super().__init__(ErrorCode.invalid_topic_exception, message)


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

    def has_open_transaction(self, producer_id: int, producer_epoch: int) -> bool:
        """Whether this producer's transaction is open here, under this epoch."""
        entry = self.log.producer(producer_id)
        return entry is not None and entry.transaction_first_offset >= 0 and entry.producer_epoch == producer_epoch

    def check_leader_epoch(self, named: int) -> ErrorCode:
        """The code for a request that names the leader epoch it knows (-1: none)."""
        current = self.log.leader_epoch
        if named in (-1, current):
            return ErrorCode.none
        return ErrorCode.fenced_leader_epoch if named < current else ErrorCode.unknown_leader_epoch


@dataclass(slots=True, eq=False)
class Topic:
    name: str
    topic_id: UUID
    configs: dict[str, str]
    partitions: list[Partition]

    @property
    def is_internal(self) -> bool:
        return self.name in INTERNAL_TOPICS


def internal_configs(name: str, settings: NodeSettings) -> dict[str, str]:
    """The settings of a coordinators' topic."""
    segment_bytes = {
        OFFSETS_TOPIC: settings.offsets_topic_segment_bytes,
        TRANSACTIONS_TOPIC: settings.transaction_state_log_segment_bytes,
    }
    return {"cleanup.policy": "compact", "segment.bytes": str(segment_bytes[name])}


def check_topic_name(name: str) -> None:
    """Raises `InvalidTopicError` with Kafka's rule that the name breaks."""
    if not name:
        raise InvalidTopicError("Topic name is invalid: the empty string is not allowed")
    if name in (".", ".."):
        raise InvalidTopicError(f"Topic name is invalid: '{name}' is not allowed")
    if len(name) > MAX_NAME_LENGTH:
        raise InvalidTopicError(
            f"Topic name is invalid: the length of '{shown(name)}' is longer than the max allowed length "
            f"{MAX_NAME_LENGTH}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        raise InvalidTopicError(
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII alphanumerics, "
            "'.', '_' and '-'"
        )


class TopicRegistry:
    """All topics by name and by id. Everything here runs on the event loop's thread."""

    def __init__(self, directory: DataDirectory, *, settings: NodeSettings, clock: Clock) -> None:
        self._directory = directory
        self._list = TopicList(directory.path)
        self._settings = settings
        self._clock = clock
        self._by_name: dict[str, Topic] = {}
        self._by_id: dict[UUID, Topic] = {}
        self._by_metric_name: dict[str, set[str]] = {}
        self._changing: set[str] = set()
        self.version = 0
        """Rises when a topic is made."""
        self.adopted = False
        """Whether this is the first start on a directory that this node did not make."""

    def load(self) -> None:
        """Open every partition the list names; finish interrupted deletions."""
        known = self._list
        known.load()
        self.adopted = not known.exists
        if self.adopted:
            for entry in self._found_folders():
                known.topics[entry.topic_id] = entry
        self._finish_deletions(known.deleting)
        known.deleting.clear()
        is_tiered = TIER_TOPIC in {entry.name for entry in known.topics.values()}
        with _without_collecting():
            for entry in known.topics.values():
                topic = Topic(entry.name, entry.topic_id, _valid_configs(entry, is_tiered=is_tiered), [])
                self._add(topic)
                at_once(self._opening(topic, topic.partitions, entry.partitions, is_known=True))
        self.version = 0
        self._directory.all_are_open()
        try:
            known.fold()
        except OSError as error:
            if self.adopted:
                raise  # without the list nothing says that these folders were ever adopted
            # A node with a full disk must start all the same, so that clients can delete data.
            logger.warning("cannot write %s anew, its journal goes on: %s", LIST_FILE, error)

    def close(self) -> None:
        self._list.close()

    @contextlib.contextmanager
    def together(self) -> Iterator[None]:
        """Changes made within are synced to disk once, at the end: a request may make many topics. Raises
        `StorageError` where that fails; the changes hold until the node ends, and perhaps longer."""
        with written_down("changes of topics"), self._list.together():
            yield

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

    def describe(self, name: str) -> tuple[UUID, int] | None:
        """(topic id, number of partitions) of a topic."""
        topic = self._by_name.get(name)
        return None if topic is None else (topic.topic_id, len(topic.partitions))

    def name_of(self, topic_id: UUID) -> str | None:
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.name

    def names(self) -> Iterable[str]:
        return self._by_name.keys()

    def partitions(self) -> Iterator[Partition]:
        for topic in self._by_name.values():
            yield from topic.partitions

    def check_new_name(self, name: str) -> None:
        """Raises `InvalidTopicError` where Kafka would not make a topic of this name.

        Metrics have `_` for `.`, so two topics whose names differ in nothing else cannot live together.
        """
        check_topic_name(name)
        others = self._by_metric_name.get(name.replace(".", "_"), set()) - {name}
        if others:
            raise InvalidTopicError(f"Topic '{name}' collides with existing topic: {', '.join(sorted(others))}")

    def is_changing(self, name: str) -> bool:
        """Whether a topic of this name is being created, grown or deleted, in steps. Another change of it must wait."""
        return name in self._changing

    def create(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Topic:
        """All of `creating` at once: for a few partitions."""
        return at_once(self.creating(name, partitions=partitions, configs=configs))

    def creating(self, name: str, *, partitions: int, configs: Mapping[str, str]) -> Generator[None, None, Topic]:
        """Create a topic whose name and configs the caller has checked, and which does not exist, a partition in each
        step. It is there for others when all of it is.

        Raises `StorageError`, and then there is nothing of it.
        """
        assert name not in self._by_name
        topic = Topic(name, uuid4(), dict(configs), [])
        with written_down(f"topic {name}"), self._change(name):
            with self._making(topic, 0, partitions):
                yield from self._opening(topic, topic.partitions, partitions)
            self._add(topic)
        return topic

    def growing(self, topic: Topic, partitions: int) -> Generator[None, None, None]:
        """Add partitions up to the given number, one in each step; they are there for others when all are. Raises
        `StorageError`, and then there are as many as before."""
        have, configs = len(topic.partitions), topic.configs
        made: list[Partition] = []
        with written_down(f"new partitions of {topic.name}"), self._change(topic.name):
            with self._making(topic, have, partitions):
                yield from self._opening(topic, made, partitions - have, first=have)
                # An alteration of the settings meanwhile has written the old number of partitions.
                if topic.configs is not configs:
                    self._list.put(_entry(topic, partitions))
            topic.partitions += made

    @contextlib.contextmanager
    def _making(self, topic: Topic, have: int, partitions: int) -> Iterator[None]:
        """The partitions from `have` on are made within. The list names them first; what fails is taken back."""
        new = range(have, partitions)
        self._set_strays_aside(topic.name, new)
        self._list.put(_entry(topic, partitions))
        try:
            yield
        except GeneratorExit:  # the node stops: the next start makes the rest
            raise
        except BaseException:  # a part of a topic would pass for all of it
            self._remove_folders(topic, new)
            with contextlib.suppress(OSError):  # else the next start makes them, empty
                before = _entry(topic, have) if have else None
                self._list.take_back(_entry(topic, partitions), before=before)
            raise

    def deleting(self, topic: Topic) -> Generator[None, None, None]:
        """Forget the topic, and remove its data, a partition in each step. Waiting fetches see it gone at once. Until
        all is removed nobody makes another one of its name, whose folders would have these names.

        Raises `StorageError` where it stays; what cannot be removed once it is gone, the next start removes.
        """
        with self._change(topic.name):
            with written_down(f"the deletion of {topic.name}"):
                self._list.delete(topic.topic_id)
            self._remove(topic)
            for partition in topic.partitions:
                partition.deleted = True
            for partition in topic.partitions:
                partition.grown()
            is_removed = True
            for partition in topic.partitions:
                try:
                    self._directory.delete_partition(topic.name, partition.index)
                except (OSError, StorageError) as error:
                    is_removed = False
                    logger.warning(
                        "what is left of %s-%d goes at the next start: %s", topic.name, partition.index, error
                    )
                yield
            if is_removed:
                with contextlib.suppress(OSError):  # else the next start finds nothing to remove
                    self._list.deleted(topic.topic_id)

    @contextlib.contextmanager
    def _change(self, name: str) -> Iterator[None]:
        assert name not in self._changing
        self._changing.add(name)
        self._take_name(name)
        try:
            yield
        finally:
            self._changing.discard(name)
            if name not in self._by_name:
                self._free_name(name)

    def _take_name(self, name: str) -> None:
        self._by_metric_name.setdefault(name.replace(".", "_"), set()).add(name)

    def _free_name(self, name: str) -> None:
        metric_name = name.replace(".", "_")
        names = self._by_metric_name.get(metric_name, set()) - {name}
        if names:
            self._by_metric_name[metric_name] = names
        else:
            self._by_metric_name.pop(metric_name, None)

    def alter_configs(self, topic: Topic, configs: Mapping[str, str]) -> None:
        """Give the topic these settings of its own instead of those it has. Raises `ConfigError`, `StorageError`."""
        config = self.check_configs(configs, topic)
        with written_down(f"settings of {topic.name}"):
            self._list.put(replace(_entry(topic, len(topic.partitions)), configs=dict(configs)))
        topic.configs = dict(configs)
        self._apply(topic.partitions, config)

    def check_configs(self, configs: Mapping[str, str], topic: Topic | None = None) -> LogConfig:
        """Whether a new topic, or one that there is, may have these settings. Raises `ConfigError`."""
        config = self.log_config(configs)
        if config.remote_storage_enable and not self._settings.remote_log_storage_system_enable:
            raise ConfigError(
                "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
                "log storage."
            )
        had = topic is not None and self._config_in_force(topic).remote_storage_enable
        if had and not config.remote_storage_enable and not config.remote_log_delete_on_disable:
            raise ConfigError(
                "It is invalid to disable remote storage without deleting remote data. To keep the remote data and "
                "only read it, set remote.storage.enable=true,remote.log.copy.disable=true; to disable remote "
                "storage and delete all remote data, set "
                "remote.storage.enable=false,remote.log.delete.on.disable=true."
            )
        return config

    def settings_changed(self, settings: NodeSettings) -> None:
        """Apply new defaults of the node to every topic without settings of its own."""
        self._settings = settings
        for topic in self._by_name.values():
            self._apply(topic.partitions, self._config_in_force(topic))

    def _apply(self, partitions: Iterable[Partition], config: LogConfig) -> None:
        for partition in partitions:
            if partition.log.config != config:
                partition.log.update_config(config)

    def log_config(self, configs: Mapping[str, str]) -> LogConfig:
        """The log's settings: the node's defaults with a topic's own on top. Raises `ConfigError`."""
        return log_config(configs, self._settings)

    def _config_in_force(self, topic: Topic) -> LogConfig:
        """The settings in force. Those of node and topic may each be valid, and not go together."""
        try:
            return self.log_config(topic.configs)
        except ConfigError as error:
            logger.warning(
                "%s keeps all its records, as its settings and the node's contradict each other: %s", topic.name, error
            )
            return self.log_config(topic.configs | _KEEPS_ALL | _TOGETHER)

    def _add(self, topic: Topic) -> None:
        self.version += 1
        self._by_name[topic.name] = topic
        self._by_id[topic.topic_id] = topic
        self._take_name(topic.name)

    def _remove(self, topic: Topic) -> None:
        del self._by_name[topic.name]
        del self._by_id[topic.topic_id]
        self._free_name(topic.name)

    def _opening(
        self,
        topic: Topic,
        made: list[Partition],
        count: int,
        *,
        first: int = 0,
        is_known: bool = False,
    ) -> Generator[None, None, None]:
        """`count` partitions into `made`, one in each step."""
        config = self._config_in_force(topic)
        for index in range(first, first + count):
            log = self._directory.open_partition(
                topic.name,
                index,
                topic_id=topic.topic_id,
                config=config,
                clock=self._clock,
                is_known=is_known,
            )
            made.append(Partition(topic.name, index, log))
            yield
        self._apply(made, self._config_in_force(topic))  # it may have been altered meanwhile

    def _remove_folders(self, topic: Topic, partitions: Iterable[int]) -> None:
        for index in partitions:
            with contextlib.suppress(OSError):
                self._directory.delete_partition(topic.name, index)
            shutil.rmtree(self._folder(topic.name, index), ignore_errors=True)

    def _folder(self, name: str, partition: int) -> Path:
        return self._directory.path / f"{name}-{partition}"

    def _set_strays_aside(self, name: str, partitions: Iterable[int]) -> None:
        """Rename folders that belong to no topic (a power cut took it from the list), as Kafka renames strays: they
        must not become a part of a new one."""
        for index in partitions:
            folder = self._folder(name, index)
            if folder.exists():
                aside = _renamed(folder, "-stray")
                logger.warning("%s belongs to no topic; it is %s from now on", folder, aside.name)

    def _finish_deletions(self, deleting: Mapping[UUID, TopicEntry]) -> None:
        """Remove what a crash left of deleted topics.

        Their folders bear their ids. One whose file with the id a crash has emptied counts as theirs by its name,
        unless there is a new topic of that name: that one was made after the deletion was done, so the folder is
        the new topic's.
        """
        if not deleting:
            return
        alive = {entry.name for entry in self._list.topics.values()}
        doomed = {entry.name for entry in deleting.values()} - alive
        for place in self._directory.partitions():
            if place.topic_id in deleting or (place.topic_id is None and place.topic in doomed):
                shutil.rmtree(_renamed(place.directory, "-delete"), ignore_errors=True)

    def _found_folders(self) -> list[TopicEntry]:
        """The topics of the folders. Raises `ConfigError` if there is a remote tier: adopted topics would lose it."""
        found: dict[str, TopicEntry] = {}
        for place in self._directory.partitions():
            if place.topic == TIER_TOPIC:
                raise ConfigError(
                    f"{place.directory}: topics of this node have records in a remote store, and {LIST_FILE}, which "
                    "says which topics, is not there; restore it, or move this folder away to give up what is in the "
                    "store alone"
                )
            if place.topic_id is None or place.topic == METADATA_TOPIC:
                continue
            configs = _KEEPS_ALL
            if place.topic in INTERNAL_TOPICS:
                configs = internal_configs(place.topic, self._settings)
            fresh = TopicEntry(name=place.topic, topic_id=place.topic_id, partitions=0, configs=configs)
            entry = found.get(place.topic, fresh)
            found[place.topic] = replace(entry, partitions=max(entry.partitions, place.partition + 1))
            logger.info("adopting %s, which this node did not make", place.directory.name)
        for name in found.keys() - INTERNAL_TOPICS:
            logger.warning(
                "%s: its settings are not known, so it keeps all its records; give it its own cleanup.policy",
                name,
            )
        return list(found.values())


def _valid_configs(entry: TopicEntry, *, is_tiered: bool) -> dict[str, str]:
    """Leave out stored settings that are not valid: one of another version must not prevent the start. `is_tiered`: the
    remote tier may have records of the topic."""
    valid = {}
    for name, text in entry.configs.items():
        try:
            parse_topic_setting(name, text)
            valid[name] = text
        except ConfigError as error:
            logger.warning(
                "%s: a stored setting is left out, and it keeps all its records until it is given its cleanup.policy: "
                "%s",
                entry.name,
                error,
            )
    if len(valid) < len(entry.configs):
        valid |= _KEEPS_ALL
    # The tier would delete them if the topic were not in it.
    if is_tiered and "remote.storage.enable" in entry.configs.keys() - valid.keys():
        valid["remote.storage.enable"] = "true"
    return valid


@contextlib.contextmanager
def _without_collecting() -> Iterator[None]:
    """Turn the garbage collector off: all objects made within stay, and collections would take a third of a start."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()


def _renamed(folder: Path, suffix: str) -> Path:
    """Give a folder a name that no partition has, as Kafka does. A start removes one that ends in `-delete`."""
    suffix = f".{uuid4().hex}{suffix}"
    new = folder.with_name(folder.name[: 255 - len(suffix)] + suffix)
    folder.rename(new)
    return new


def at_once(steps: Generator[None, None, T]) -> T:
    """Go through all steps of a change. Returns what they return."""
    try:
        while True:
            next(steps)
    except StopIteration as done:
        value: T = done.value
        return value


def _entry(topic: Topic, partitions: int) -> TopicEntry:
    return TopicEntry(name=topic.name, topic_id=topic.topic_id, partitions=partitions, configs=dict(topic.configs))
