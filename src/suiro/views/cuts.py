"""Cuts: the input offsets that the output of a view's version reflects, written in the transaction of the output.

The last record of each micro-batch's transaction goes to `<view>.v<n>.cuts`. A reader with read_committed therefore
sees a cut exactly if it sees the output of that cut: all records below `outputs`, and none from there on. The topic is
compacted by the key `number % KEYS`, so its size is limited and it always has the newest cuts.

Cuts are numbered 0, 1, 2... without a gap. Each is, in every partition, at or beyond the one before. There is one
exception: while the lost state of a join is rebuilt, records that had waited for others are read again.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from suiro.client import EARLIEST, LATEST, Client
from suiro.clock import SystemClock
from suiro.errors import FatalError, UnknownTopicError
from suiro.foundation.types import TopicPartition
from suiro.protocol.records import Record, encode_batch
from suiro.spark import PlannedOffsets, TrailingRecord
from suiro.topic_table import Pair, decode_pairs, slices_from_the_end

KEYS = 100_000
FORMAT_VERSION = 1
LOOK_BACK = 64  # offsets, of the first look for the last cut


@dataclass(frozen=True, slots=True, kw_only=True)
class Cut:
    """`inputs`: the next offset of each input partition. `outputs`: the next offset of each output partition.

    `behind`: input partitions that had more records when a limit ended the micro-batch. Records of other partitions may
    have been read, and wait for them to be processed in the order of time. A cut with nothing behind is settled: its
    rows reflect all records below `inputs`.
    """

    number: int
    inputs: Mapping[TopicPartition, int]
    outputs: Mapping[int, int]
    time_ms: int
    behind: frozenset[TopicPartition] = frozenset()

    @property
    def is_settled(self) -> bool:
        return not self.behind

    @property
    def topics(self) -> frozenset[str]:
        """The input topics."""
        return frozenset(topic for topic, _ in self.inputs)

    def reflected(self, joined: Mapping[str, Collection[str]] | None = None) -> dict[TopicPartition, int]:
        """Returns the input offsets below which the rows reflect every record. If the cut is behind in a partition, the
        records of others that were read may wait. `joined`: for each topic, those whose partition of the same number is
        processed by the same task; None: any partition may wait for any other."""

        def may_wait(place: TopicPartition) -> bool:
            others = self.behind - {place}
            if joined is None or not others:
                return bool(others)
            topic, partition = place
            return any((other, partition) in others for other in joined[topic])

        return {place: offset for place, offset in self.inputs.items() if not may_wait(place)}

    def offsets_of(self, topics: Collection[str]) -> frozenset[tuple[TopicPartition, int]]:
        """The input offsets of these topics. A partition at offset 0 is left out: an older cut may not have it yet."""
        return frozenset((place, offset) for place, offset in self.inputs.items() if place[0] in topics and offset)

    def covers(self, other: Cut) -> bool:
        """This cut reflects everything that the other reflects of the topics that this one reads."""
        topics = self.topics
        return all(self.inputs.get(place, 0) >= offset for place, offset in other.inputs.items() if place[0] in topics)

    def meets(self, other: Cut) -> bool:
        """Both reflect the same records of the topics that both read, of which there is at least one."""
        topics = self.topics & other.topics
        return (
            self.is_settled
            and other.is_settled
            and bool(topics)
            and self.offsets_of(topics) == other.offsets_of(topics)
        )

    @property
    def key(self) -> bytes:
        return str(self.number % KEYS).encode()

    def inputs_to_json(self) -> dict[str, dict[str, int]]:
        """The input offsets by topic and partition."""
        found: dict[str, dict[str, int]] = {}
        for (topic, partition), offset in sorted(self.inputs.items()):
            found.setdefault(topic, {})[str(partition)] = offset
        return found

    def to_json(self) -> dict[str, Any]:
        value: dict[str, Any] = {
            "v": FORMAT_VERSION,
            "number": self.number,
            "inputs": self.inputs_to_json(),
            "outputs": {str(partition): offset for partition, offset in sorted(self.outputs.items())},
            "time_ms": self.time_ms,
        }
        if self.behind:
            value["behind"] = [list(place) for place in sorted(self.behind)]
        return value

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> Cut:
        if value.get("v") != FORMAT_VERSION:
            raise FatalError(
                f"a cut has version {value.get('v')}, this version of suiro reads {FORMAT_VERSION}: use the one that "
                "wrote it"
            )
        return cls(
            number=int(value["number"]),
            inputs={
                (topic, int(partition)): int(offset)
                for topic, items in value["inputs"].items()
                for partition, offset in items.items()
            },
            outputs={int(partition): int(offset) for partition, offset in value["outputs"].items()},
            time_ms=int(value["time_ms"]),
            behind=frozenset((topic, int(partition)) for topic, partition in value.get("behind", ())),
        )

    def to_bytes(self) -> bytes:
        return json.dumps(self.to_json(), separators=(",", ":")).encode()


class CutLog:
    """The committed cuts of one version, in order. Not thread-safe, because its client is not."""

    def __init__(self, client: Client, topic: str) -> None:
        self._client = client
        self._topic = topic
        self._position: int | None = None

    def poll(self, *, max_wait_ms: int = 0) -> list[Cut]:
        """Returns all new cuts by number. Waits up to `max_wait_ms` for the first. Raises `UnknownTopicError` if the
        topic does not exist: before the version's first start, and after it was retired."""
        found: list[Cut] = []
        place = (self._topic, 0)
        if self._position is None:
            require_topic(self._client, self._topic)
            self._position = self._client.list_offsets({place: EARLIEST})[place].offset
        while True:
            before, wait_ms = self._position, 0 if found else max_wait_ms
            try:
                fetched = self._client.fetch({place: before}, read_committed=True, max_wait_ms=wait_ms)[place]
            except UnknownTopicError:
                self._position = None  # so the next call first checks that the topic exists
                raise
            pairs, following = decode_pairs(fetched, before, fetched.last_stable_offset)
            found += _parsed(pairs)
            self._position = max(before, following)
            if self._position >= fetched.last_stable_offset or self._position == before:
                break
        return found


class CutWriter:
    """Makes the trailing record of each micro-batch: `suiro.spark.TrailingRecordOf`, called on the driver.

    It asks the brokers for the end of the output once they have all of it, so it keeps no state of its own. The number
    is one more than that of the last committed cut. A micro-batch that only rebuilds state has no cut: the output of
    its records was written before.
    """

    def __init__(self, client: Client, *, output_topic: str, cuts_topic: str) -> None:
        """`client`: used by one thread at a time, the one that commits."""
        self._client = client
        self._output_topic = output_topic
        self.cuts_topic = cuts_topic
        self._clock = SystemClock()
        self._last: tuple[int, int] | None = None  # number, time: of the last cut that this object made
        self._partitions = 0

    def __call__(self, planned: PlannedOffsets) -> TrailingRecord | None:
        positions = planned.positions
        if any(item.replayed for item in positions):
            return None
        inputs = {place: offset for item in positions for place, offset in item.offsets.items()}
        return _CutRecord(self, inputs, frozenset(place for item in positions for place in item.behind))

    def made(self, inputs: Mapping[TopicPartition, int], behind: frozenset[TopicPartition], *, is_fresh: bool) -> Cut:
        if is_fresh or self._last is None:
            last = last_cut(self._client, self.cuts_topic)
            self._last = (-1, 0) if last is None else (last.number, last.time_ms)
            self._partitions = len(self._client.metadata([self._output_topic])[self._output_topic].partitions)
        number, time_ms = self._last[0] + 1, max(self._clock.wall_ms(), self._last[1])
        places = {(self._output_topic, partition): LATEST for partition in range(self._partitions)}
        ends = self._client.list_offsets(places)
        self._last = (number, time_ms)  # after a failed attempt, the next one is fresh
        return Cut(
            number=number,
            inputs=inputs,
            outputs={partition: item.offset for (_, partition), item in ends.items()},
            time_ms=time_ms,
            behind=behind,
        )


@dataclass(frozen=True, slots=True)
class _CutRecord:
    writer: CutWriter
    inputs: Mapping[TopicPartition, int]
    behind: frozenset[TopicPartition]

    @property
    def partition(self) -> TopicPartition:
        return self.writer.cuts_topic, 0

    def batch(self, *, is_fresh: bool) -> tuple[str, int, bytes, int]:
        cut = self.writer.made(self.inputs, self.behind, is_fresh=is_fresh)
        record = Record(offset=0, timestamp=cut.time_ms, key=cut.key, value=cut.to_bytes())
        return self.writer.cuts_topic, 0, encode_batch([record]), 1


def last_cut(client: Client, topic: str) -> Cut | None:
    """Returns the newest committed cut, and reads the topic from its end."""
    for part in slices_from_the_end(client, (topic, 0), LOOK_BACK):
        if cuts := _parsed(part):
            return max(cuts, key=lambda cut: cut.number)
    return None


def _parsed(found: Iterable[Pair]) -> list[Cut]:
    return [Cut.from_json(json.loads(value)) for _, value in found if value is not None]


def require_topic(client: Client, topic: str) -> None:
    if topic not in client.metadata([topic]):
        raise UnknownTopicError(
            f"topic {topic!r} does not exist: the version has not started yet, or was retired",
            "UNKNOWN_TOPIC_OR_PARTITION",
        )
