"""Writes records to Kafka. Everything between two commits is one Kafka transaction, and the position is part of it.

The records of a Postgres transaction and the position after it become visible together or not at all. `fence` aborts
what the predecessor left open and excludes it; the position is read afterwards. After an error the outcome of the
transaction is unknown: the capture starts again with `fence`, and the position shows the outcome.

Large parts of a transaction, and commits of a backlog, are sent on a separate thread while the next records are
encoded, at most one request at a time. The next call raises an error of that thread, so nothing is sent after a failed
request.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import numpy as np
import pyarrow as pa

from suiro.client import Client, NewTopic, ProducerIdentity, TransactionalBatch
from suiro.clock import SystemClock
from suiro.connect.positions import (
    POSITIONS_TOPIC,
    create_positions_topic,
    part_record,
    position_partition,
    position_record,
    read_parts,
    read_position,
    transactional_id,
)
from suiro.connect.postgres.encoding.encoded_rows import binary_column
from suiro.connect.postgres.encoding.records import Pair, batch_of, encode
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.spans import TransactionSpans
from suiro.errors import RefusedError, SuiroError, UsageError
from suiro.foundation.types import TopicPartition
from suiro.protocol.compression import codec_id
from suiro.telemetry import Span, Traces

logger = logging.getLogger(__name__)

POSITION_BATCH_BYTES = 256 << 10
SEND_BYTES = 2 << 20  # in one request, while the next one is filled


class Delivery:
    """Writes the records of one capture to Kafka. Not thread-safe."""

    def __init__(
        self,
        client: Client,
        options: CaptureOptions,
        before: Delivery | None = None,
        *,
        traces: Traces | None = None,
    ) -> None:
        """`before`: of an earlier session of this process. If another capture has fenced it, that one goes on."""
        self._identity: ProducerIdentity | None = None if before is None else before._identity
        # `before` could not abort its transaction; the coordinator's timeout or `fence` does.
        self._left_open: bool = before is not None and before._left_open
        self.has_aborted = False  # `close` has aborted the transaction, so no other capture has taken over
        self._client = client
        self._name = options.name
        self._partitions = options.partitions
        # A client must be used by one thread at a time.
        self._sending_client = Client(options.bootstrap_servers, settings=options.kafka_settings)
        self._sender = ThreadPoolExecutor(1, thread_name_prefix="suiro-delivery")
        self._sent: Future[None] | None = None
        self._transactions = self._sending_client.transaction(
            transactional_id(options.name), timeout_ms=options.transaction_timeout_ms
        )
        self._compression = codec_id(options.compression)
        self._partition_counts: dict[str, int] = {}
        self._topic_ids: dict[str, str] = {}
        self._position_partition = 0
        self._added_partitions: set[TopicPartition] = set()
        self._waiting: list[TransactionalBatch] = []
        self._waiting_bytes = 0
        self.records = 0
        self.spans = (
            None if traces is None or not traces.ratio else TransactionSpans(traces, options.name, SystemClock())
        )

    def fence(self) -> tuple[dict[str, Any] | None, dict[str, Any]]:
        """Fences the predecessor. Returns the position and its parts as the last committed transaction left them."""
        create_positions_topic(self._client)
        if self._identity is None:
            self._identity = self._transactions.init()
        else:
            self._identity = self._transactions.resume(self._identity, left_open=self._left_open)
        self._left_open = False
        self._position_partition = position_partition(self._client, self._name)
        return read_position(self._client, self._name), read_parts(self._client, self._name)

    def create_topics(self, names: Sequence[str]) -> None:
        """Creates topics that do not exist, with log compaction."""
        wanted = [name for name in names if name not in self._partition_counts]
        if not wanted:
            return
        there = self._client.metadata(wanted)
        if there:
            self._warn_of_expiry(list(there))
        missing = [name for name in wanted if name not in there]
        if missing:
            self._client.create_topics(
                [NewTopic(name, self._partitions, configs={"cleanup.policy": "compact"}) for name in missing],
                exist_ok=True,
            )
            there |= self._client.metadata(missing)
        for name in wanted:
            self._partition_counts[name] = len(there[name].partitions)
            self._topic_ids[name] = str(there[name].topic_id or "")

    def _warn_of_expiry(self, topics: Sequence[str]) -> None:
        """A broker may have created a topic for the first reader that asked for it, with its own defaults."""
        try:
            found = self._client.describe_configs(topics)
        except RefusedError:
            return  # a role that may write to the topic need not be allowed to describe it
        expiring = [
            topic
            for topic, settings in found.items()
            if "delete" in (settings.get("cleanup.policy") or "")
            and (settings.get("retention.ms"), settings.get("retention.bytes")) != ("-1", "-1")
        ]
        if expiring:
            logger.warning(
                "rows that do not change expire in topic %s%s, which has cleanup.policy=delete. Set it to compact: "
                "kafka-configs --alter --topic %s --add-config cleanup.policy=compact",
                expiring[0],
                f" and {len(expiring) - 1} others" if len(expiring) > 1 else "",
                expiring[0],
            )

    def partition_count(self, topic: str) -> int:
        return self._partition_counts[topic]

    def topic_id(self, topic: str) -> str:
        """Returns the topic's id when this session last looked. It changes when the topic is deleted and created again.
        Empty if the brokers are too old for ids, or the topic is not known yet."""
        return self._topic_ids.get(topic, "")

    def topic_id_now(self, topic: str) -> str:
        """Returns the topic's current id. Creates the topic again if it was deleted meanwhile."""
        found = self._client.metadata([topic]).get(topic)
        if found is None or str(found.topic_id or "") != self.topic_id(topic):
            self._partition_counts.pop(topic, None)
            self.create_topics([topic])
        return self.topic_id(topic)

    def add(self, topic: str, *, keys: pa.Array, values: pa.Array, timestamps: Any, headers: pa.Array) -> None:
        """Adds records in order. They are sent with `commit` at the latest."""
        batches = encode(
            topic,
            keys=keys,
            values=values,
            timestamps=timestamps,
            headers=headers,
            partitions=self._partition_counts[topic],
            compression=self._compression,
        )
        self.records += len(keys)
        for batch in batches:
            self._wait(batch)
        if self._waiting_bytes >= SEND_BYTES:
            self._send_in_background(ends=False)

    def add_tombstones(self, topic: str, keys: Sequence[bytes], *, timestamp_ms: int, headers: pa.Array) -> None:
        self.add(
            topic,
            keys=binary_column(keys),
            values=pa.nulls(len(keys), pa.binary()),
            timestamps=np.full(len(keys), timestamp_ms, np.int64),
            headers=headers,
        )

    def flush(self) -> None:
        """Sends all added records to Kafka. They become visible with `commit`."""
        self.wait_for_send()
        self._send(self._take_pending(), ends=False)

    def commit(self, position: Mapping[str, Any], parts: Mapping[str, Any] | None = None, *, wait: bool = True) -> None:
        """Commits everything that was added, the position and the changed parts. Readers see them when this returns or,
        without `wait`, when `wait_for_send` returns."""
        records = [part_record(self._name, part, value) for part, value in (parts or {}).items()]
        records.append(position_record(self._name, dict(position)))
        now_ms = SystemClock().wall_ms()
        for pairs in _chunks(records):
            self._wait(batch_of(POSITIONS_TOPIC, pairs, partition=self._position_partition, timestamp_ms=now_ms))
        if wait:
            self.wait_for_send()
            self._send(self._take_pending(), ends=True, spans=self._take_spans())
        else:
            self._send_in_background(ends=True)

    def wait_for_send(self) -> None:
        """Waits for the request on the sending thread, and raises its error."""
        if self._sent is not None:
            sent, self._sent = self._sent, None
            sent.result()

    def _send_in_background(self, *, ends: bool) -> None:
        self.wait_for_send()
        spans = self._take_spans() if ends else ()
        self._sent = self._sender.submit(self._send, self._take_pending(), ends=ends, spans=spans)

    def _take_spans(self) -> Sequence[tuple[Span, int]]:
        return () if self.spans is None else self.spans.take()

    def _take_pending(self) -> list[TransactionalBatch]:
        taken = self._waiting
        self._waiting, self._waiting_bytes = [], 0
        return taken

    def _send(self, batches: list[TransactionalBatch], *, ends: bool, spans: Sequence[tuple[Span, int]] = ()) -> None:
        """Called on either thread, never on both at once."""
        if batches:
            new = {(batch.topic, batch.partition) for batch in batches} - self._added_partitions
            if new:
                self._transactions.add_partitions(sorted(new))
                self._added_partitions |= new
            self._produce(batches)
        if ends:
            self._transactions.end(commit=True)
            if self.spans is not None and spans:
                self.spans.export(spans)
            self._added_partitions.clear()
            self._identity = self._transactions.renew()

    def _produce(self, batches: list[TransactionalBatch]) -> None:
        try:
            self._transactions.produce(batches)
        except RefusedError as error:
            if error.code_name != "MESSAGE_TOO_LARGE":
                raise
            size = max(memoryview(one.data).nbytes for one in batches)
            raise UsageError(
                f"a row is larger than its topic takes: {error}. Raise the limit of that topic and start the capture "
                f"again, it continues with this row: kafka-configs --alter --topic TOPIC --add-config "
                f"max.message.bytes={2 * size}"
            ) from error

    def close(self) -> None:
        """Ends the session and aborts the open transaction; otherwise readers would wait for its timeout."""
        try:
            try:
                self.wait_for_send()
            except SuiroError as error:
                logger.info("what was under way: %s", error)
            self._abort()
        finally:
            self._sender.shutdown()
            self._sending_client.close()

    def _abort(self) -> None:
        if self._added_partitions:
            self._added_partitions.clear()
            self._left_open = self._transactions.is_open
            try:
                self._identity = self._transactions.abort()
                self._left_open, self.has_aborted = False, True
            except SuiroError as error:
                logger.info("the open transaction is left to its timeout, or to the next start: %s", error)

    def _wait(self, batch: TransactionalBatch) -> None:
        self._waiting.append(batch)
        self._waiting_bytes += len(batch.data)


def _chunks(pairs: list[Pair]) -> Iterator[list[Pair]]:
    first = size = 0
    for at, (key, value) in enumerate(pairs):
        size += len(key or b"") + len(value or b"")
        if size >= POSITION_BATCH_BYTES:
            yield pairs[first : at + 1]
            first, size = at + 1, 0
    if first < len(pairs):
        yield pairs[first:]
