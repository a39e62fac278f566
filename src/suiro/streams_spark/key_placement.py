"""Warns of a topic whose keys a join cannot find, because its producer chose their partitions in another way.

A join reads partitions of one number together. Java clients and repartitions choose the partition of a key by murmur2.
librdkafka and the clients above it use CRC32 unless they are told otherwise. Kafka Streams checks only the numbers of
partitions, and its join then gives wrong results without a word.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any

from suiro.errors import SuiroError
from suiro.foundation.types import TopicPartition
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import iter_batch
from suiro.streams.dsl.checks import inputs_that_meet
from suiro.streams.topology.nodes import Repartition, Source
from suiro.streams.topology.topology import Topology

if TYPE_CHECKING:
    from suiro.client import Client

SAMPLE_BYTES, SAMPLE_KEYS = 1 << 14, 100
"""Of each partition, from its beginning."""
BATCH_BYTES = 1_100_000
"""Of one partition of a topic whose batches are larger than a sample: a batch that brokers take by default."""
ENOUGH_KEYS = 10
"""Fewer keys may be in the partitions of murmur2 by chance."""
TIMEOUT_MS = 5_000

_log = logging.getLogger(__name__)


def warn_of_misplaced_keys(client: Client, topology: Topology, partition_counts: Mapping[str, int]) -> None:
    """Logs a warning for each topic with misplaced keys that meet keys which are placed by murmur2."""
    meeting: list[tuple[str, list[str], bool]] = []
    for name, inputs in inputs_that_meet(topology):
        topics = [topic for item in inputs if isinstance(item, Source) for topic in item.topics]
        hashed = any(isinstance(item, Repartition) and item.partitioner is None for item in inputs)
        if len(topics) + hashed > 1:
            meeting.append((name, topics, hashed))
    counts = {topic: partition_counts[topic] for _, topics, _ in meeting for topic in topics}
    samples = dict(_samples(client, counts))
    warned: set[str] = set()
    for name, topics, hashed in meeting:
        hashed = hashed or any(samples[topic][0] for topic in topics)
        for topic in topics:
            misplaced = samples[topic][1]
            if hashed and misplaced and topic not in warned:
                warned.add(topic)
                _log.warning(
                    "operator %s will miss records of topic %r: %s. The records that they meet are where murmur2, the "
                    "default of Kafka's Java clients, puts their keys. Write the topic with that partitioner "
                    '(confluent-kafka: "partitioner": "murmur2_random"), or read it as a stream and put '
                    "repartition() behind it",
                    name,
                    topic,
                    misplaced,
                )


def _samples(client: Client, counts: Mapping[str, int]) -> Iterator[tuple[str, tuple[bool, str]]]:
    """Yields for each topic whether the sampled keys are where murmur2 puts them, and the first one that is not, as
    text. Asks the log for all topics together."""
    from suiro.client import EARLIEST

    places = [(topic, partition) for topic, count in counts.items() if count > 1 for partition in range(count)]
    limits: dict[str, Any] = {"timeout_ms": TIMEOUT_MS, "leader_wait_ms": 0}
    fetched: Mapping[TopicPartition, Any] = {}
    try:
        if places:
            listed = client.list_offsets(dict.fromkeys(places, EARLIEST), **limits)
            offsets = {place: item.offset for place, item in listed.items()}
            fetched = client.fetch(offsets, partition_max_bytes=SAMPLE_BYTES, max_wait_ms=0, **limits)
            # A broker sends such a batch whole for the first partition of a request only.
            has_batch = {place[0] for place, part in fetched.items() if not _is_cut(part)}
            cut = {
                place[0]: place
                for place, part in fetched.items()
                if place[0] not in has_batch and part.last_stable_offset > offsets[place]
            }
            if cut:
                again = {place: offsets[place] for place in cut.values()}
                large = client.fetch(again, partition_max_bytes=BATCH_BYTES, max_wait_ms=0, **limits)
                fetched = {**fetched, **large}
    except SuiroError as error:
        # No reason not to start. A micro-batch waits for a partition that is away.
        _log.info("the keys of topics that are joined are not checked: %s", error)
    for topic, count in counts.items():
        of_topic = {place[1]: found for place, found in fetched.items() if place[0] == topic}
        try:
            yield topic, (True, "") if count == 1 else _found(of_topic, count)
        except SuiroError as error:
            # They may have been processed long ago.
            _log.info("the keys of topic %r are not checked: %s", topic, error)
            yield topic, (False, "")


def _found(fetched: Mapping[int, Any], partitions: int) -> tuple[bool, str]:
    seen = set()
    for partition, part in fetched.items():
        for record in islice(_records(part), SAMPLE_KEYS):
            if record.key is None:
                continue
            wanted = partition_for_key(record.key, partitions)
            if wanted != partition:
                at = f"the key {record.key!r} at offset {record.offset}"
                return False, f"{at} is in partition {partition}, not {wanted}"
            seen.add(record.key)
    return len(seen) >= ENOUGH_KEYS, ""


def _is_cut(part: Any) -> bool:
    """Whether there is no whole batch."""
    try:
        return next(iter_headers(part.data), None) is None
    except SuiroError:
        return False  # `_found` says so


def _records(fetched: Any) -> Iterator[Any]:
    # Also those of aborted transactions: their keys are placed in the same way.
    for place, header in iter_headers(fetched.data):
        if not header.is_control:
            yield from iter_batch(fetched.data, place)
