"""Dead letters: records that a connector cannot take, as records of another topic.

A topic may take less than the record's own did. How much is learned from what it refuses: the connector restarts, and
letters that are too large then have the beginning of their record only, without its headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from suiro.client import TransactionalBatch, TransactionalProducer
from suiro.connect.connectors import ERROR_PREFIX, Headers
from suiro.connect.task import Outgoing, TaskContext, Topics, batches_of
from suiro.errors import RefusedError, UsageError

LETTER_BYTES = 1_000_000
"""The first limit once the topic has refused a letter. It is halved until the topic accepts letters."""
LEAST_LETTER_BYTES = 256
LIMITED_MS = 3_600_000
"""How long a limit lasts: the topic may be changed."""
_NO_LIMIT = 1 << 62
_LONG_HEADERS = tuple(ERROR_PREFIX + name for name in ("exception.message", "url", "file"))


@dataclass(slots=True)
class LetterLimit:
    """The largest size of a dead letter, learned from refusals. Kept over restarts of the connector for a while."""

    size: int = _NO_LIMIT
    _until_ms: int = 0

    def lower(self, refused: int, now_ms: int) -> bool:
        """Lowers the limit. `refused`: the size of the largest refused batch, which has several letters if there was no
        limit yet. Returns false if the limit cannot be lower."""
        is_first = self.size == _NO_LIMIT
        self.size = min(LETTER_BYTES, refused - 1) if is_first else min(self.size, refused) // 2
        self._until_ms = now_ms + LIMITED_MS
        if self.size >= LEAST_LETTER_BYTES:
            return True
        self.size = _NO_LIMIT
        return False

    def at(self, now_ms: int) -> int:
        if now_ms >= self._until_ms:
            self.size = _NO_LIMIT
        return self.size


class DeadLetters:
    """The dead letters of one run of a connector."""

    def __init__(self, context: TaskContext, topic: str | None, limit: LetterLimit, topics: Topics, codec: int) -> None:
        self._name = context.name
        self._clock = context.clock
        self._topic = topic
        self._limit = limit
        self._topics = topics
        self._codec = codec
        self._turn = 0
        self.waiting: list[tuple[Outgoing, Headers]] = []  # each with those of its headers that tell of the error

    def add(
        self, key: bytes | None, value: bytes | None, headers: Headers, about: Headers, timestamp_ms: int | None = None
    ) -> None:
        """Adds a letter, which the next `produce` writes. `headers`: of the record. `about`: they tell of the error."""
        assert self._topic is not None
        # The topic may refuse a time in the future (message.timestamp.after.max.ms).
        now_ms = self._clock.wall_ms()
        written_ms = now_ms if timestamp_ms is None else min(timestamp_ms, now_ms)
        self.waiting.append((Outgoing(self._topic, key, value, (*headers, *about), written_ms), about))

    def produce(self, producer: TransactionalProducer) -> None:
        """Writes the letters in the open transaction."""
        letters, self.waiting = self.waiting, []
        if not letters:
            return
        self._turn += 1
        now_ms = self._clock.monotonic_ms()
        limit = self._limit.at(now_ms)
        if limit < _NO_LIMIT:
            fitting = [self._fitting(record, about, limit) for record, about in letters]
            batches = [batch for record in fitting for batch in self._batches([record])]
        else:
            batches = self._batches([record for record, _ in letters])
        producer.add_partitions(sorted({(batch.topic, batch.partition) for batch in batches}))
        try:
            producer.produce(batches)
        except RefusedError as error:
            largest = max(len(batch.data) for batch in batches)
            if error.code_name == "MESSAGE_TOO_LARGE" and not self._limit.lower(largest, now_ms):
                raise UsageError(
                    f"{self._name}: topic {batches[0].topic} takes no dead letter, however short it is cut "
                    f"({error}). Raise its max.message.bytes"
                ) from error
            raise

    def _fitting(self, record: Outgoing, about: Headers, limit: int) -> Outgoing:
        """Returns the letter or, if it is too large, its beginning without the headers of the record itself."""
        (batch,) = self._batches([record])
        if len(batch.data) <= limit:
            return record
        short = [
            (name, text if text is None or name not in _LONG_HEADERS else text[: limit // 8]) for name, text in about
        ]
        return record._replace(
            key=None if record.key is None else record.key[: limit // 4],
            value=None if record.value is None else record.value[: limit // 2],
            headers=(*short, (f"{ERROR_PREFIX}cut", b"true")),
        )

    def _batches(self, records: Sequence[Outgoing]) -> list[TransactionalBatch]:
        return batches_of(records, self._topics, turn=self._turn, compression=self._codec)
