"""The `_schemas` topic: read by a thread into a `State`, written by one registry at a time.

**A write is answered after it was read back.** So an acknowledged change is in the log. It survives kill -9 of the
registry, and every failure that the log survives.

**One writer.** Several registries may run on one log. Each write decides (the next id, the compatibility) from all
earlier writes, so two registries that decide at the same time could assign one id twice. Kafka has no
compare-and-append, but it fences producers: a partition rejects a batch whose producer epoch is older than the newest
one that it has seen of the producer id. So:

1. To take the log over, a registry gets the producer id of the transactional id `suiro-registry-TOPIC` with a new
   epoch (InitProducerId), and appends a NOOP record with it. From that offset on, the partition rejects the batches of
   earlier owners.
2. It reads up to its NOOP. Then it knows everything that earlier owners have written or ever will.
3. It decides, and appends with its epoch. If the answer is "fenced", another registry took the log over, nothing was
   written, and it starts again at step 1.

While no other registry takes over, a write is step 3 and a look at the end of the log: a NOOP of another registry
there leads back to step 1. No transaction is ever opened, so every reader, including Confluent's registry, sees only
records that count. A coordinator may assign another producer id (it forgets idle transactional ids after a week, and
a producer id has 32,767 epochs). That would not fence the old one. So the new owner also closes every other producer
id that ever took over, by a NOOP with that id and the last possible epoch.

After a lost response, taking over shows what happened to the write: once the new NOOP is read, the old batch is
either before it, identified by the write's id in a header, or it will never be in the log.

Confluent's registry elects its writer in another way. Never run both on one log at the same time.
"""

from __future__ import annotations

import contextlib
import json
import logging
import random
import threading
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TypeVar

from suiro.client import LATEST, Client, Fetched, ProducerIdentity
from suiro.clock import SystemClock
from suiro.errors import AbortableError, DeadlineExceededError, FencedError, TransientError
from suiro.protocol.record_batch import BatchHeader, iter_headers, verify
from suiro.protocol.records import Record, decode_batch, encode_batch
from suiro.registry.records import NOOP, Key, compact_json
from suiro.registry.state import Change, Decision, State
from suiro.topic_table import BROKERS_DEFAULT, TopicTable, one_compacted_partition

DEFAULT_TOPIC = "_schemas"
DEFAULT_TIMEOUT_MS = 30_000
PARTITION = 0
LAST_EPOCH = 32_767
WRITE_HEADER = "suiro.write"
MAX_IDS_HEADER = "suiro.max.ids"
FIRST_BACKOFF_S = 0.005
LONGEST_BACKOFF_S = 0.5

T = TypeVar("T")

logger = logging.getLogger(__name__)


class StorageError(TransientError):
    """The log could not be read or written in time. Whether a write succeeded is unknown."""


@dataclass(slots=True)
class _Log:
    """The topic, folded."""

    schemas: State = field(default_factory=State)
    owner: tuple[int, int] | None = None  # producer id and epoch of the last NOOP
    open_producers: set[int] = field(default_factory=set)  # ids that took over and were not closed

    def apply_noop(self, producer_id: int, producer_epoch: int, headers: Mapping[str, bytes | None]) -> None:
        if headers.get(MAX_IDS_HEADER):
            self.schemas.note_max_ids(json.loads(headers[MAX_IDS_HEADER] or b"{}"))
        if producer_id < 0:
            return  # Confluent's registry, finding the end of the log
        self.owner = (producer_id, producer_epoch)
        if producer_epoch == LAST_EPOCH:
            self.open_producers.discard(producer_id)
        else:
            self.open_producers.add(producer_id)


class Storage:
    """`start` starts it, and returns after the whole log was read. Thread-safe."""

    def __init__(
        self,
        bootstrap_servers: str,
        *,
        topic: str = DEFAULT_TOPIC,
        replication_factor: int = BROKERS_DEFAULT,
        client_settings: Mapping[str, str | int] | None = None,
        timeout_ms: int = DEFAULT_TIMEOUT_MS,
    ) -> None:
        settings = {"client.id": "suiro-registry", **(client_settings or {})}
        self.topic = topic
        self._replication_factor = replication_factor
        self._timeout_ms = timeout_ms
        self._clock = SystemClock()
        self._bootstrap_servers, self._client_settings = bootstrap_servers, settings
        self._writer = self._new_client()  # under `_write_lock`
        self._asker = self._new_client()  # under `_ask_lock`
        self._write_lock = threading.Lock()
        self._ask_lock = threading.Lock()
        self._table = TopicTable(
            topic,
            new_client=self._new_client,
            new_state=_Log,
            decode=_decode,
            apply=self._apply,
            name="registry-reader",
            read_committed=False,
        )
        # Guards the table's state, and the next two.
        self._changed = self._table.changed
        self._awaited_write = b""
        self._write_seen = False
        self._identity: ProducerIdentity | None = None
        self._sequence = 0

    def _new_client(self) -> Client:
        return Client(self._bootstrap_servers, settings=self._client_settings, clock=self._clock)

    def start(self) -> None:
        """Raises `ConfigError` if a registry cannot use the topic."""
        with self._ask_lock:
            one_compacted_partition(
                self._asker,
                self.topic,
                why_one="a registry's topic has one, because its order counts. Name another topic with --topic",
                rows="schemas",
                replication_factor=self._replication_factor,
            )
        self._table.start()
        self.catch_up()

    def stop(self) -> None:
        """Requests that wait for the log get a `StorageError` at once."""
        for client in (self._writer, self._asker):
            client.abandon()
        self._table.stop()
        for client in (self._writer, self._asker):
            client.close()

    @contextlib.contextmanager
    def state(self) -> Iterator[State]:
        """The state as far as the log was read. It does not change during the `with`."""
        with self._changed:
            yield self._table.state.schemas

    def catch_up(self, timeout_ms: int | None = None) -> None:
        """Returns after everything that is in the log now has been read. Raises `StorageError`."""
        timeout_ms = timeout_ms or self._timeout_ms
        with self._holding(self._ask_lock, timeout_ms):
            end = self._log_end(self._asker, timeout_ms)
        self._wait_until_read(end, timeout_ms)

    @contextlib.contextmanager
    def _holding(self, lock: threading.Lock, timeout_ms: int) -> Iterator[None]:
        if not lock.acquire(timeout=timeout_ms / 1000):
            raise StorageError(f"topic {self.topic}: others wait for it already, {timeout_ms} ms long")
        try:
            yield
        finally:
            lock.release()

    def _log_end(self, client: Client, timeout_ms: int) -> int:
        target = (self.topic, PARTITION)
        try:
            return client.list_offsets({target: LATEST}, timeout_ms=timeout_ms)[target].offset
        except DeadlineExceededError as error:
            raise StorageError(f"the end of topic {self.topic} cannot be asked for: {error}") from error

    def _wait_until_read(self, position: int, timeout_ms: int | None = None) -> None:
        timeout_ms = timeout_ms or self._timeout_ms
        if not self._table.wait(lambda: self._table.has_read({PARTITION: position}), timeout_ms):
            raise StorageError(
                f"topic {self.topic} was read up to offset {self._table.positions.get(PARTITION, 0)}, not {position}, "
                f"within {timeout_ms} ms"
            )

    def _apply(self, log: _Log, partition: int, rows: list[tuple[BatchHeader, Record]]) -> None:
        for header, record in rows:
            key = Key.parse(record.key) if record.key is not None else None
            if key is None:
                logger.warning("offset %d of %s is not a registry's record: skipped", record.offset, self.topic)
                continue
            headers = dict(record.headers)
            if headers.get(WRITE_HEADER) and headers[WRITE_HEADER] == self._awaited_write:
                self._write_seen = True
            try:
                if key.type == NOOP:
                    log.apply_noop(header.producer_id, header.producer_epoch, headers)
                    continue
                value = json.loads(record.value) if record.value else None
                log.schemas.apply(key, value, raw_key=record.key or b"", timestamp=record.timestamp)
            except (ArithmeticError, AttributeError, KeyError, RecursionError, TypeError, ValueError) as error:
                logger.warning(
                    "offset %d of %s cannot be understood and is skipped: %r", record.offset, self.topic, error
                )

    def write(self, decide: Callable[[State], Decision[T]]) -> T:
        """Calls `decide` with all earlier writes, appends its changes, reads them back and returns its result.

        `decide` may be called several times. Its errors are raised to the caller. Raises `StorageError`.
        """
        deadline_ms = self._clock.monotonic_ms() + self._timeout_ms
        backoff_s = FIRST_BACKOFF_S
        write_id = uuid.uuid4().bytes
        sent: Decision[T] | None = None
        with self._holding(self._write_lock, self._timeout_ms):
            with self._changed:
                self._awaited_write, self._write_seen = write_id, False
            while True:
                try:
                    self._wait_until_read(self._log_end(self._writer, self._timeout_ms))
                    if not self._owns():
                        self._take_over()
                        continue
                    with self._changed:
                        if self._write_seen and sent is not None:
                            return sent.result  # the response was lost, but not the write
                        sent = decide(self._table.state.schemas)
                        records = self._records(sent.changes, write_id)
                    if not records:
                        return sent.result
                    self._append(records)
                    return sent.result
                except (FencedError, AbortableError) as error:
                    logger.info("another registry took %s over: %s", self.topic, error)
                    self._identity = None
                except StorageError:
                    self._identity = None
                    raise
                except TransientError as error:
                    logger.warning("writing to %s: %s", self.topic, error)
                    self._identity = None
                if self._clock.monotonic_ms() >= deadline_ms:
                    raise StorageError(f"topic {self.topic} could not be written in {self._timeout_ms} ms")
                self._table.pause(backoff_s * (0.5 + random.random()))
                backoff_s = min(backoff_s * 2, LONGEST_BACKOFF_S)

    def _owns(self) -> bool:
        identity = self._identity
        if identity is None:
            return False
        with self._changed:
            log = self._table.state
            return log.owner == (identity.id, identity.epoch) and log.open_producers == {identity.id}

    def _take_over(self) -> None:
        """Tries once. `_owns` tells whether it worked, after the NOOP is read."""
        producer = self._writer.transaction(f"suiro-registry-{self.topic}")
        identity = producer.init(timeout_ms=self._timeout_ms)
        with self._changed:
            others = self._table.state.open_producers - {identity.id}
        for other in others:
            with contextlib.suppress(FencedError, AbortableError):  # another registry has closed it
                self._produce(self._noop(), other, LAST_EPOCH, 0)
        offset = self._produce(self._noop(), identity.id, identity.epoch, 0)
        self._identity, self._sequence = identity, 1
        self._wait_until_read(offset + 1)

    def _append(self, records: Sequence[Record]) -> None:
        assert self._identity is not None
        offset = self._produce(records, self._identity.id, self._identity.epoch, self._sequence)
        self._sequence += len(records)
        self._wait_until_read(offset + len(records) if offset >= 0 else self._log_end(self._writer, self._timeout_ms))

    def _produce(self, records: Sequence[Record], producer_id: int, producer_epoch: int, sequence: int) -> int:
        batch = encode_batch(records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=sequence)
        target = (self.topic, PARTITION)
        return self._writer.produce({target: batch}, timeout_ms=self._timeout_ms)[target]

    def _records(self, changes: Sequence[Change], write_id: bytes) -> list[Record]:
        timestamp = self._clock.wall_ms()
        records = [
            Record(
                offset=offset,
                timestamp=timestamp,
                key=self._table.state.schemas.raw_key(change.key),
                value=None if change.value is None else compact_json(change.value).encode(),
                headers=((WRITE_HEADER, write_id),),
            )
            for offset, change in enumerate(changes)
        ]
        if any(change.value is None for change in changes):
            # An id is never assigned twice, even after compaction removed the schema with the highest id.
            records += self._noop(offset=len(records))
        return records

    def _noop(self, offset: int = 0) -> list[Record]:
        # It has a value: compaction removes a tombstone after `delete.retention.ms`.
        with self._changed:
            max_ids = compact_json(self._table.state.schemas.max_ids()).encode()
        return [
            Record(
                offset=offset,
                timestamp=self._clock.wall_ms(),
                key=Key.noop().encode(),
                value=b"{}",
                headers=((MAX_IDS_HEADER, max_ids),),
            )
        ]


def _decode(fetched: Fetched, position: int) -> tuple[list[tuple[BatchHeader, Record]], int]:
    """Decodes without columns, because a registry may run without their libraries."""
    rows: list[tuple[BatchHeader, Record]] = []
    for place, header in iter_headers(fetched.data):
        if place + header.size > len(fetched.data):
            break  # the last batch may be incomplete
        if header.next_offset <= position:
            continue
        if not header.is_control:
            verify(fetched.data, place, header)
            records = decode_batch(fetched.data, place)
            rows += [(header, record) for record in records if record.offset >= position]
        position = header.next_offset
    return rows, position
