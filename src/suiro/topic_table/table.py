"""`TopicTable`: a topic, read from its start into a state and then followed, by a thread.

Always true:

- The state that callers see holds all that the topic had at some moment after the reading began, until `is_current`
  none of it. Where the topic has to be read again (it was deleted and made again, or its start moved past the reader),
  the state before is served until the new one has caught up, unless the table `forgets`.
- A caller that has written can wait until its own record was read (`has_read`, `wait`): write, then read back.
- What cannot be read is never skipped: the table stays where it is and tries again, or ends with its `failure`.

The state and everything beside it belong to the lock `changed`, which is notified whenever one of them changes. The
memory for records on their way is that of one fetch.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from typing import Generic, TypeVar

from suiro.client import EARLIEST, LATEST, Client, Fetched, TopicInfo
from suiro.errors import OffsetOutOfRangeError, TransientError, UnknownTopicError

__all__ = ["TopicTable"]

FETCH_WAIT_MS = 500
FETCH_TIMEOUT_MS = 5_000
PARTITION_FETCH_BYTES = 4 * 1024 * 1024
RETRY_PAUSE_S = 0.2
"""After what may pass; the client has already tried again for its own time, with its own backoff."""
ERROR_PAUSE_S = 1.0
REFUSED_PAUSE_S = 10.0
STOP_TIMEOUT_S = 10.0

S = TypeVar("S")
R = TypeVar("R")

logger = logging.getLogger(__name__)


def _exists(topic: TopicInfo | None) -> None:
    if topic is None:
        raise UnknownTopicError("the topic does not exist", "UNKNOWN_TOPIC_OR_PARTITION")


class TopicTable(Generic[S, R]):
    """`start` begins to read. `empty` makes a state, `decode` gives a fetch's rows and the offset to go on at, and
    `apply` puts the rows of a partition into a state.

    `check` sees the topic before it is read from the start; it raises where that must not be read. `whole` is called
    whenever all was read that was there at the moment; it raises where the state must not be believed. After one of
    these `refusals` the topic is read again from its start, `REFUSED_PAUSE_S` later. `taken` is called, without the
    lock, after rows that callers see were applied.

    `forgets`: the state is given up before the topic is read again, because two of them would be too large.
    `retries`: also what is neither transient nor a refusal; otherwise that is the `failure`, and the table ends.
    """

    def __init__(
        self,
        topic: str,
        *,
        connect: Callable[[], Client],
        empty: Callable[[], S],
        decode: Callable[[Fetched, int], tuple[R, int]],
        apply: Callable[[S, int, R], None],
        name: str,
        check: Callable[[TopicInfo | None], None] = _exists,
        whole: Callable[[S], None] | None = None,
        refusals: tuple[type[Exception], ...] = (),
        taken: Callable[[], None] = lambda: None,
        read_committed: bool = True,
        partition_fetch_bytes: int = PARTITION_FETCH_BYTES,
        forgets: bool = False,
        retries: bool = True,
    ) -> None:
        self.topic = topic
        self.changed = threading.Condition()
        self.state = empty()
        self.positions: dict[int, int] = {}
        """Of each partition the next offset to read, into a state that callers see only if `is_current`."""
        self.is_current = False
        self.is_stopping = False
        self.failure: Exception | None = None
        self._connect, self._empty, self._decode, self._apply = connect, empty, decode, apply
        self._check, self._whole, self._refusals, self._taken = check, whole, refusals, taken
        self._read_committed = read_committed
        self._partition_fetch_bytes = partition_fetch_bytes
        self._forgets, self._retries = forgets, retries
        self._read_into = self.state
        self._ends: dict[int, int] = {}  # what a state has to reach before callers see it
        self._is_missed = False
        self._client: Client | None = None
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        """Whoever waits is woken. Safe to call again."""
        with self.changed:
            self.is_stopping = True
            self.changed.notify_all()
            client = self._client
        if client is not None:
            client.abandon()
        if self._thread.ident is not None and self._thread is not threading.current_thread():
            self._thread.join(STOP_TIMEOUT_S)

    # -- for callers -------------------------------------------------------------------------------------------

    def has_read(self, offsets: Mapping[int, int]) -> bool:
        """Whether the state has all that is below these offsets. Under the lock."""
        return self.is_current and all(
            self.positions.get(partition, -1) >= offset for partition, offset in offsets.items()
        )

    def wait(self, reached: Callable[[], bool], timeout_ms: int) -> bool:
        """Whether `reached`, which is asked under the lock; also returns when the table ends."""
        with self.changed:
            self.changed.wait_for(
                lambda: reached() or self.is_stopping or self.failure is not None, timeout_ms / 1000
            )
            return reached()

    def pause(self, seconds: float) -> None:
        """Ends early when the table stops."""
        with self.changed:
            self.changed.wait_for(lambda: self.is_stopping, seconds)

    # -- the thread --------------------------------------------------------------------------------------------

    def _run(self) -> None:
        try:
            with self._connect() as client:
                with self.changed:
                    self._client = client
                while not self.is_stopping:
                    self._attempt(client)
        except Exception as error:  # told to whoever waits or asks
            with self.changed:
                self.state = self._read_into = self._empty()
                self.is_current, self.failure = False, error
                self.changed.notify_all()

    def _attempt(self, client: Client) -> None:
        try:
            if not self._ends:
                self._begin(client)
            self._read(client)
        except OffsetOutOfRangeError as error:
            logger.warning("topic %s is read again from its start: %s", self.topic, error)
            self._restart()
        except self._refusals as error:
            logger.error("%s", error)
            self._restart()
            self.pause(REFUSED_PAUSE_S)
        except UnknownTopicError:
            if not self._is_missed:
                logger.warning("topic %s does not exist; waiting for it", self.topic)
            self._is_missed = True
            self._restart()
            self.pause(RETRY_PAUSE_S)
        except TransientError as error:
            if not self.is_stopping:
                logger.warning("reading %s: %s", self.topic, error)
            self.pause(RETRY_PAUSE_S)
        except Exception:
            if not self._retries:
                raise
            logger.exception("reading %s", self.topic)
            self.pause(ERROR_PAUSE_S)

    def _restart(self) -> None:
        with self.changed:
            self._ends, self.is_current = {}, False
            if self._forgets:
                self.state, self.positions = self._empty(), {}
            self.changed.notify_all()

    def _begin(self, client: Client) -> None:
        found = client.metadata([self.topic]).get(self.topic)
        self._check(found)
        assert found is not None  # or the check has raised
        self._is_missed = False
        places = [(self.topic, partition) for partition in range(len(found.partitions))]
        ends = client.list_offsets(dict.fromkeys(places, LATEST), read_committed=self._read_committed)
        starts = client.list_offsets(dict.fromkeys(places, EARLIEST))
        with self.changed:
            self._read_into = self._empty()
            if self._forgets:
                self.state = self._read_into
            self.positions = {partition: starts[topic, partition].offset for topic, partition in places}
            self._ends = {partition: ends[topic, partition].offset for topic, partition in places}
            self.changed.notify_all()

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
        if not self.is_current and not self._forgets:  # nobody else sees the state, so nobody has to wait
            self._put(rows)
        with self.changed:
            if self.is_current or self._forgets:
                self._put(rows)
            for partition, (_, following) in rows.items():
                self.positions[partition] = max(self.positions[partition], following)
            if not rows and not self._has_reached_ends():
                self._pass_over(parts)
            is_at_end = all(self.positions[partition] >= self._end(part) for partition, part in parts.items())
            if self._whole is not None and is_at_end and (rows or not self.is_current):
                self._whole(self._read_into)
            is_new = not self.is_current and self._has_reached_ends() and (is_at_end or self._whole is None)
            if is_new:
                self.state, self.is_current = self._read_into, True
            self.changed.notify_all()
        if is_new or (rows and self.is_current):
            self._taken()

    def _put(self, rows: Mapping[int, tuple[R, int]]) -> None:
        for partition, (decoded, _) in rows.items():
            self._apply(self._read_into, partition, decoded)

    def _has_reached_ends(self) -> bool:
        return all(self.positions[partition] >= end for partition, end in self._ends.items())

    def _pass_over(self, parts: Mapping[int, Fetched]) -> None:
        """Below an end that the topic had before there is nothing left: compaction has removed it."""
        for partition, part in parts.items():
            end = min(self._ends[partition], self._end(part))
            self.positions[partition] = max(self.positions[partition], end)

    def _end(self, part: Fetched) -> int:
        return part.last_stable_offset if self._read_committed else part.high_watermark
