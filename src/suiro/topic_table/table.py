"""`TopicTable`: a topic as a state in memory, loaded by a thread that then follows the topic.

Invariants:

- Callers see a state only after it has loaded everything that the topic had when loading began (`is_current`). If the
  topic must be loaded again (it was deleted and recreated, or the log start moved past the reader), callers see the
  previous state until the new one is loaded, unless `drop_on_reload` is set.
- A writer can wait until the table has applied its record (`has_read`, `wait`).
- A record that cannot be read is never skipped. The table retries at the same offset, or stops with a `failure`.

The condition `changed` guards the state and all public attributes, and is notified when one of them changes. The table
holds one fetch response in memory in addition to the state.

`one_compacted_partition` creates such a topic, and `require_compacted` checks that nothing in one expires.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar
from uuid import UUID

from suiro.client import EARLIEST, LATEST, Client, Fetched, NewTopic, TopicInfo
from suiro.clock import monotonic_s
from suiro.errors import ConfigError, OffsetOutOfRangeError, TransientError, UnknownTopicError

FETCH_WAIT_MS = 500
FETCH_TIMEOUT_MS = 5_000
PARTITION_FETCH_BYTES = 4 * 1024 * 1024
RETRY_PAUSE_S = 0.2
"""After a transient error. The client has retried before, with its own backoff."""
ERROR_PAUSE_S = 1.0
REJECTED_PAUSE_S = 10.0
STOP_TIMEOUT_S = 10.0
LOOK_S = 30.0
"""How often the table looks whether its topic is the one that it has loaded."""

S = TypeVar("S")
R = TypeVar("R")

BROKERS_DEFAULT = -1
"""Replication factor: the default of the brokers."""

logger = logging.getLogger(__name__)


def _exists(topic: TopicInfo | None) -> None:
    if topic is None:
        raise UnknownTopicError("the topic does not exist", "UNKNOWN_TOPIC_OR_PARTITION")


class TopicTable(Generic[S, R]):
    """`start` begins to load. `new_state` creates an empty state. `decode` takes a fetch and its position, and returns
    rows and the next position. `apply` applies the rows of a partition to a state.

    `check_topic` gets the topic before each load, None if it does not exist. `validate` gets the state each time the
    table has read to the end of the topic. Both raise one of `rejections` if the topic or the state must not be used.
    The table then loads the topic again after `REJECTED_PAUSE_S`. `on_change` is called without the lock after rows
    were applied to the state that callers see.

    `drop_on_reload`: release the state before the topic is loaded again, for states of which memory holds only one.
    `retry_errors`: also retry after errors that are neither transient nor rejections. Without it, such an error becomes
    the `failure`, and the thread ends. `takes_new_partitions`: read partitions that are added to the topic, from their
    start.
    """

    def __init__(
        self,
        topic: str,
        *,
        new_client: Callable[[], Client],
        new_state: Callable[[], S],
        decode: Callable[[Fetched, int], tuple[R, int]],
        apply: Callable[[S, int, R], None],
        name: str,
        check_topic: Callable[[TopicInfo | None], None] = _exists,
        validate: Callable[[S], None] | None = None,
        rejections: tuple[type[Exception], ...] = (),
        on_change: Callable[[], None] = lambda: None,
        read_committed: bool = True,
        partition_fetch_bytes: int = PARTITION_FETCH_BYTES,
        drop_on_reload: bool = False,
        retry_errors: bool = True,
        takes_new_partitions: bool = False,
    ) -> None:
        self.topic = topic
        self.changed = threading.Condition()
        self.state = new_state()
        self.positions: dict[int, int] = {}
        """The next offset to read, by partition. Before `is_current`, that of the state being loaded."""
        self.is_current = False
        self.is_stopping = False
        self.failure: Exception | None = None
        self._new_client, self._new_state, self._decode, self._apply = new_client, new_state, decode, apply
        self._check_topic, self._validate, self._rejections = check_topic, validate, rejections
        self._on_change = on_change
        self._read_committed = read_committed
        self._partition_fetch_bytes = partition_fetch_bytes
        self._drop_on_reload, self._retry_errors = drop_on_reload, retry_errors
        self._takes_new_partitions = takes_new_partitions
        self._topic_id: UUID | None = None
        self._look_at_s = 0.0
        self._loading = self.state
        self._ends: dict[int, int] = {}  # the end offsets that a load must reach
        self._is_missing = False
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Wakes all callers of `wait`. Can be called more than once."""
        with self.changed:
            self.is_stopping = True
            self.changed.notify_all()
            client = self._client
        if client is not None:
            client.abandon()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    # For callers

    def has_read(self, offsets: Mapping[int, int]) -> bool:
        """Whether the state has all records below these offsets. The caller holds `changed`."""
        return self.is_current and all(
            self.positions.get(partition, -1) >= offset for partition, offset in offsets.items()
        )

    def look_soon(self) -> None:
        """Do not wait until `LOOK_S` is over: the topic may have new partitions."""
        self._look_at_s = 0.0

    def wait(self, reached: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until `reached()` is true, and return its last value. Also returns if the table stops or fails."""
        with self.changed:
            self.changed.wait_for(lambda: reached() or self.is_stopping or self.failure is not None, timeout_ms / 1000)
            return reached()

    def pause(self, seconds: float) -> None:
        """Returns early if the table stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopping, seconds)

    # The thread

    def _run(self) -> None:
        try:
            with self._new_client() as client:
                with self.changed:
                    self._client = client
                while not self.is_stopping:
                    self._attempt(client)
        except Exception as error:  # noqa: BLE001 - callers get it
            with self.changed:
                self.state = self._loading = self._new_state()
                self.is_current, self.failure = False, error
                self.changed.notify_all()

    def _attempt(self, client: Client) -> None:
        try:
            if not self._ends:
                self._begin(client)
            elif monotonic_s() >= self._look_at_s:
                self._look(client)
            self._read(client)
        except OffsetOutOfRangeError as error:
            logger.warning("loading topic %s again from its start: %s", self.topic, error)
            self._restart()
            self.pause(RETRY_PAUSE_S)
        except self._rejections as error:
            logger.error("%s", error)
            self._restart()
            self.pause(REJECTED_PAUSE_S)
        except UnknownTopicError:
            if not self._is_missing:
                logger.warning("topic %s does not exist; waiting until it is created", self.topic)
            self._is_missing = True
            self._restart()
            self.pause(RETRY_PAUSE_S)
        except TransientError as error:
            if not self.is_stopping:
                logger.warning("reading %s: %s", self.topic, error)
            self.pause(RETRY_PAUSE_S)
        except Exception:
            if not self._retry_errors:
                raise
            logger.exception("reading %s", self.topic)
            self.pause(ERROR_PAUSE_S)

    def _restart(self) -> None:
        with self.changed:
            self._ends, self.is_current = {}, False
            if self._drop_on_reload:
                self.state, self.positions = self._new_state(), {}
            self.changed.notify_all()

    def _begin(self, client: Client) -> None:
        found = client.metadata([self.topic]).get(self.topic)
        self._check_topic(found)
        assert found is not None  # `check_topic` has raised otherwise
        self._is_missing = False
        self._topic_id, self._look_at_s = found.topic_id, monotonic_s() + LOOK_S
        places = [(self.topic, partition) for partition in range(len(found.partitions))]
        ends = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=self._read_committed)
        starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
        with self.changed:
            self._loading = self._new_state()
            if self._drop_on_reload:
                self.state = self._loading
            self.positions = {partition: starts[topic, partition].offset for topic, partition in places}
            self._ends = {partition: ends[topic, partition].offset for topic, partition in places}
            self.changed.notify_all()

    def _look(self, client: Client) -> None:
        self._look_at_s = monotonic_s() + LOOK_S
        found = client.metadata([self.topic]).get(self.topic)
        if found is None:
            return  # the fetch raises an error
        if found.topic_id != self._topic_id:
            logger.warning("loading topic %s again, because it was created again", self.topic)
            self._restart()
            self._begin(client)
            return
        new = range(len(self.positions), len(found.partitions))
        if new and self._takes_new_partitions:
            starts = client.list_offsets({(self.topic, partition): EARLIEST for partition in new})
            with self.changed:
                for (_, partition), start in starts.items():
                    self.positions[partition] = self._ends[partition] = start.offset

    def _read(self, client: Client) -> None:
        wanted = {(self.topic, partition): offset for partition, offset in self.positions.items()}
        fetched = client.fetch(
            wanted,
            read_committed=self._read_committed,
            max_wait_ms=0 if self._has_reached_ends() and not self.is_current else FETCH_WAIT_MS,
            partition_max_bytes=self._partition_fetch_bytes,
            timeout_ms=FETCH_TIMEOUT_MS,
        )
        parts = {partition: part for (_, partition), part in fetched.items()}
        rows = {
            partition: self._decode(part, self.positions[partition])
            for partition, part in parts.items()
            if len(part.data)
        }
        if not self.is_current and not self._drop_on_reload:  # no caller sees this state, so none has to wait
            self._apply_rows(rows)
        with self.changed:
            if self.is_current or self._drop_on_reload:
                self._apply_rows(rows)
            for partition, (_, following) in rows.items():
                self.positions[partition] = max(self.positions[partition], following)
            if not rows and not self._has_reached_ends():
                self._skip_to_ends(parts)
            is_at_end = all(self.positions[partition] >= self._end(part) for partition, part in parts.items())
            if self._validate is not None and is_at_end and (rows or not self.is_current):
                self._validate(self._loading)
            is_new = not self.is_current and self._has_reached_ends() and (is_at_end or self._validate is None)
            if is_new:
                self.state, self.is_current = self._loading, True
            self.changed.notify_all()
        if is_new or (rows and self.is_current):
            self._on_change()

    def _apply_rows(self, rows: Mapping[int, tuple[R, int]]) -> None:
        for partition, (decoded, _) in rows.items():
            self._apply(self._loading, partition, decoded)

    def _has_reached_ends(self) -> bool:
        return all(self.positions[partition] >= end for partition, end in self._ends.items())

    def _skip_to_ends(self, parts: Mapping[int, Fetched]) -> None:
        """The fetch returned no records below an end offset: compaction has removed them."""
        for partition, part in parts.items():
            end = min(self._ends[partition], self._end(part))
            self.positions[partition] = max(self.positions[partition], end)

    def _end(self, part: Fetched) -> int:
        return part.last_stable_offset if self._read_committed else part.high_watermark


def one_compacted_partition(
    client: Client,
    topic: str,
    *,
    why_one: str,
    rows: str,
    configs: Mapping[str, str] | None = None,
    replication_factor: int = BROKERS_DEFAULT,
) -> TopicInfo:
    """Create the topic with `configs` if it does not exist, and return it.

    Raises `ConfigError` if it has more partitions (`why_one` completes the message) or if `rows` would expire.
    """
    found = client.metadata([topic])
    if topic not in found:
        wanted = {"cleanup.policy": "compact", **(configs or {})}
        client.create_topics([NewTopic(topic, 1, replication_factor, wanted)], exist_ok=True)
        found = client.metadata([topic])
    partitions = len(found[topic].partitions)
    if partitions != 1:
        raise ConfigError(f"topic {topic} has {partitions} partitions; {why_one}")
    require_compacted(client, topic, f"{rows} in it would expire")
    return found[topic]


def require_compacted(client: Client, topic: str, loss: str) -> None:
    """Raises `ConfigError` if records of the topic expire. `loss` completes the message."""
    policy = client.describe_configs([topic])[topic].get("cleanup.policy") or ""
    if "delete" in policy:
        raise ConfigError(
            f"topic {topic} has cleanup.policy={policy}: {loss}. Set it to compact: "
            f"kafka-configs --alter --topic {topic} --add-config cleanup.policy=compact"
        )
