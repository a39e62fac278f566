"""Runs one source: records and the position after them, in one Kafka transaction after another.

Three rules make it exactly once: fence first (InitProducerId), then read the position; write records and position in
the same transaction; use one producer epoch per transaction (see `suiro.client.transaction`). Any error ends the task;
a new one fences, reads the committed position, and continues from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from suiro.client import Client, TransactionalBatch, TransactionalProducer
from suiro.connect.connectors import (
    ERROR_PREFIX,
    BadRecordError,
    CommitListener,
    DatasetReporter,
    LagReporter,
    MultiPartSource,
    Polled,
    RefusingSource,
    Source,
    SourceRecord,
    short_reason,
)
from suiro.connect.datasets import topics_of
from suiro.connect.dead_letters import DeadLetters, LetterLimit
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
from suiro.connect.spans import SourceSpans
from suiro.connect.task import TRANSACTION_TIMEOUT_MS, Outgoing, TaskContext, Topics, batches_of, one_transaction
from suiro.connect.values import FORMATS_WITHOUT_SCHEMA, SCHEMA_LANGUAGES, Encoder, encoder
from suiro.errors import RefusedError, UsageError
from suiro.foundation.settings import SettingError, require_least, require_one_of
from suiro.protocol import columnar, compression
from suiro.telemetry import Datasets


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceSettings:
    """Settings that every source has in addition to its own."""

    topic: str | None = None
    partitions: int = 1  # of topics that it makes
    format: str = "json"
    key_format: str = "string"
    format_schema: Path | None = None
    dead_letter_topic: str | None = None
    compression: str = "none"
    max_record_bytes: int = 1_000_000  # of key and value, and of a batch; max.message.bytes is a little more

    def __post_init__(self) -> None:
        require_one_of("key_format", self.key_format, FORMATS_WITHOUT_SCHEMA)
        require_one_of("compression", self.compression, compression.CODEC_IDS)
        require_least(self, partitions=1, max_record_bytes=1)


class SourceTask:
    """A source with what every source has. Runs again and again, each time from the committed position."""

    def __init__(self, source: Source, settings: SourceSettings) -> None:
        self.source = source
        self.settings = settings
        self.limit = LetterLimit()

    def datasets(self, context: TaskContext) -> Datasets:
        written = [self.settings.topic] if self.settings.topic else []
        dead = [self.settings.dead_letter_topic] if self.settings.dead_letter_topic else []
        outside = self.source.datasets() if isinstance(self.source, DatasetReporter) else ()
        registry = context.registry if self.settings.format in SCHEMA_LANGUAGES else None
        topics = topics_of(context.bootstrap_servers, registry, written)
        return Datasets(inputs=tuple(outside), outputs=(*topics, *topics_of(context.bootstrap_servers, None, dead)))

    def run(self, context: TaskContext) -> None:
        with context.client() as client:
            try:
                _Running(self, context, client).loop()
            finally:
                self.source.close()


class _Running:
    def __init__(self, task: SourceTask, context: TaskContext, client: Client) -> None:
        self._source = task.source
        self._settings = settings = task.settings
        self._context = context
        self._client = client
        self._topics = Topics(client, partitions=settings.partitions)
        self._encoders: dict[str, Encoder] = {}
        self._key_encoder = encoder("key_format", settings.key_format, context.registry, subject="")
        self._codec = compression.codec_id(settings.compression)
        self._letters = DeadLetters(context, settings.dead_letter_topic, task.limit, self._topics, self._codec)
        self._turn = 0
        self._positions = -1

    def loop(self) -> None:
        name, stopping = self._context.name, self._context.stopping
        create_positions_topic(self._client)
        self._positions = position_partition(self._client, name)
        producer = self._client.transaction(transactional_id(name), timeout_ms=TRANSACTION_TIMEOUT_MS)
        producer.init()
        if isinstance(self._source, MultiPartSource):
            self._source.open_parts(read_parts(self._client, name))
        self._source.open(read_position(self._client, name))
        while not stopping.is_set():
            polled = self._source.poll()
            if polled is not None:
                self._transact(producer, polled)
            if isinstance(self._source, LagReporter):
                self._context.progress.lag = self._source.lag()

    def _transact(self, producer: TransactionalProducer, polled: Polled) -> None:
        traces, name = self._context.traces, self._context.name
        spans = None if traces is None else SourceSpans(traces, name, self._context.clock)
        outgoing, rejected = self._encoded(polled, spans)
        if rejected and self._settings.dead_letter_topic is None and isinstance(self._source, RefusingSource):
            self._context.progress.rejected += len(rejected)
            left = self._source.refuse({place: reason for place, (_, reason) in rejected.items()})
            if left is not None:
                self._transact(producer, left)
            return
        unencoded = [
            replace(record, headers=(*record.headers, (f"{ERROR_PREFIX}exception.message", reason.encode())))
            for record, reason in rejected.values()
        ]
        self._add_dead_letters([*polled.rejected, *unencoded])
        letters = self._letters.waiting
        data = len(outgoing) + len(letters)
        outgoing += self._position(polled)
        if not outgoing and not letters:
            return
        batches = batches_of(
            outgoing,
            self._topics,
            turn=self._turn,
            compression=self._codec,
            # A topic that takes no larger record takes no larger batch either.
            max_bytes=min(self._settings.max_record_bytes, columnar.DEFAULT_MAX_BATCH_BYTES),
        )
        self._turn += 1
        with one_transaction(self._context.clock):
            # The dead letters first: if their topic refuses them or cannot be created, no records are left undecided.
            self._letters.produce(producer)
            if batches:
                producer.add_partitions(list(dict.fromkeys((one.topic, one.partition) for one in batches)))
                self._produce(producer, batches)
            self._context.reach("before commit")
            producer.end()
        if spans is not None:
            spans.committed()
        self._context.reach("after commit")
        progress = self._context.progress
        progress.commits += 1
        progress.records += data
        progress.rejected += len(polled.rejected) + len(rejected)
        if isinstance(self._source, CommitListener):
            self._source.committed()
        producer.renew()

    def _produce(self, producer: TransactionalProducer, batches: Sequence[TransactionalBatch]) -> None:
        try:
            producer.produce(batches)
        except RefusedError as error:
            if error.code_name != "MESSAGE_TOO_LARGE":
                raise
            raise UsageError(
                f"{self._context.name}: {error}. Set max_record_bytes to a little less than the topic's "
                "max.message.bytes, or raise that"
            ) from error

    def _encoded(
        self, polled: Polled, spans: SourceSpans | None
    ) -> tuple[list[Outgoing], dict[int, tuple[SourceRecord, str]]]:
        """Returns the encoded records and, by their places, those that cannot be written, with the reason."""
        outgoing: list[Outgoing] = []
        rejected: dict[int, tuple[SourceRecord, str]] = {}
        now = self._context.clock.wall_ms()
        for place, record in enumerate(polled.records):
            topic = record.topic or self._settings.topic
            if topic is None:
                raise SettingError("topic", "is missing, and the source gave a record without a topic")
            try:
                key, value = self._key_encoder(record.key), self._encoder(topic)(record.value)
                size = len(key or b"") + len(value or b"")
                if size > self._settings.max_record_bytes:
                    raise ValueError(
                        f"has {size} bytes, more than max_record_bytes ({self._settings.max_record_bytes})"
                    )
            except (ValueError, TypeError, RecursionError) as error:
                rejected[place] = record, short_reason(error)
                continue
            timestamp_ms = now if record.timestamp_ms is None else record.timestamp_ms
            headers = record.headers if spans is None else spans.headers(topic, record.headers)
            outgoing.append(Outgoing(topic, key, value, headers, timestamp_ms))
        return outgoing, rejected

    def _encoder(self, topic: str) -> Encoder:
        found = self._encoders.get(topic)
        if found is None:
            settings = self._settings
            schema = None if settings.format_schema is None else self._context.folder / settings.format_schema
            found = self._encoders[topic] = encoder(
                "format",
                settings.format,
                self._context.registry,
                subject=f"{topic}-value",
                schema_file=schema,
            )
        return found

    def _add_dead_letters(self, rejected: Sequence[SourceRecord]) -> None:
        if rejected and self._settings.dead_letter_topic is None:
            first = {name: (value or b"").decode(errors="replace") for name, value in rejected[0].headers}
            said = ", ".join(f"{name.removeprefix(ERROR_PREFIX)}: {value}" for name, value in first.items())
            raise BadRecordError(
                f"{self._context.name}: a record cannot be taken ({said}). Fix it, or set dead_letter_topic"
            )
        limit = self._settings.max_record_bytes
        of_connector = (f"{ERROR_PREFIX}connector.name", self._context.name.encode())
        for record in rejected:
            about = tuple(one for one in record.headers if one[0].startswith(ERROR_PREFIX))
            own = tuple(one for one in record.headers if one not in about)
            key, value = _raw(record.key, limit // 4), _raw(record.value, limit // 2)
            self._letters.add(key, value, own, (*about, of_connector))

    def _position(self, polled: Polled) -> list[Outgoing]:
        name, now = self._context.name, self._context.clock.wall_ms()
        records = [part_record(name, part, value) for part, value in polled.parts.items()]
        if polled.position is not None:
            records.append(position_record(name, dict(polled.position)))
        return [Outgoing(POSITIONS_TOPIC, key, value, (), now, self._positions) for key, value in records]


def _raw(value: object, limit: int) -> bytes | None:
    """Returns bytes and text as they are, anything else in a form that people can read. Cuts it off at the limit."""
    if value is None:
        return None
    if not isinstance(value, bytes):
        value = value.encode(errors="backslashreplace") if isinstance(value, str) else _shown(value)
    return value[:limit]


def _shown(value: object) -> bytes:
    try:
        return repr(value).encode()
    except RecursionError:
        return b"(nested too deeply to be shown)"
