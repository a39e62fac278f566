"""Dead letters: records that a connector cannot take, as records of another topic.

A topic may take less than the record's own did. How much is learned from what it refuses: the connector restarts, and
letters that are too large then have the beginning of their record only, without its headers.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

from suiro.client import TransactionalBatch, TransactionalProducer
from suiro.clock import Clock
from suiro.connect.connectors import ERROR_PREFIX, Headers
from suiro.connect.task import Outgoing, Topics, batches_of
from suiro.errors import RefusedError, UsageError

LETTER_BYTES = 1_000_000
"""The first limit once the topic has refused a letter. It is halved until the topic accepts letters."""
LEAST_LETTER_BYTES = 256
LIMITED_MS = 3_600_000
"""How long a limit lasts: the topic may be changed."""
_NO_LIMIT = 1 << 62
_LONG_HEADERS = tuple(ERROR_PREFIX + name for name in ("exception.message", "url", "file"))


class DeadLetter(NamedTuple):
    """`about`: of the headers of the record to write, those that tell of the error."""

    record: Outgoing
    about: Headers


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


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetters:
    """Writes the dead letters of one connector."""

    connector: str
    limit: LetterLimit
    topics: Topics
    clock: Clock
    codec: int

    def produce(self, producer: TransactionalProducer, letters: Sequence[DeadLetter], *, turn: int) -> None:
        """Writes the letters in the open transaction."""
        now_ms = self.clock.monotonic_ms()
        limit = self.limit.at(now_ms)
        if limit < _NO_LIMIT:
            fitting = [self._fitting(letter, limit, turn) for letter in letters]
            batches = [batch for record in fitting for batch in self._batches([record], turn)]
        else:
            batches = self._batches([letter.record for letter in letters], turn)
        producer.add_partitions(sorted({(batch.topic, batch.partition) for batch in batches}))
        try:
            producer.produce(batches)
        except RefusedError as error:
            largest = max(len(batch.data) for batch in batches)
            if error.code_name == "MESSAGE_TOO_LARGE" and not self.limit.lower(largest, now_ms):
                raise UsageError(
                    f"{self.connector}: topic {batches[0].topic} takes no dead letter, however short it is cut "
                    f"({error}). Raise its max.message.bytes"
                ) from error
            raise

    def _fitting(self, letter: DeadLetter, limit: int, turn: int) -> Outgoing:
        (batch,) = self._batches([letter.record], turn)
        return letter.record if len(batch.data) <= limit else _cut(letter, limit)

    def _batches(self, records: Sequence[Outgoing], turn: int) -> list[TransactionalBatch]:
        return batches_of(records, self.topics, turn=turn, compression=self.codec)


def _cut(letter: DeadLetter, limit: int) -> Outgoing:
    """Returns the beginning of a letter that is too large, without the headers of the record itself."""
    key, value = letter.record.key, letter.record.value
    about = [
        (name, text if text is None or name not in _LONG_HEADERS else text[: limit // 8]) for name, text in letter.about
    ]
    return letter.record._replace(
        key=None if key is None else key[: limit // 4],
        value=None if value is None else value[: limit // 2],
        headers=(*about, (f"{ERROR_PREFIX}cut", b"true")),
    )
