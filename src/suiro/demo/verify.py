"""Compares what is in the topics with what must be there; every difference is named.

The topics are read from the start by a read_committed consumer that is not ours (confluent-kafka).
`read` does the I/O; `verify` is a pure rule over what was read, so that tests can show it a wrong record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, TopicPartition

from suiro.clock import Clock, SystemClock
from suiro.demo.expected import Expected
from suiro.demo.names import DELAYS, ENRICHED, RAW, REJECTED, VALIDATED
from suiro.errors import FatalError

__all__ = ["Counts", "Read", "Verdict", "count_uncommitted", "read", "verify"]

READ_TIMEOUT_S = 120
CONSUME_RECORDS = 10_000
NAMED_EXAMPLES = 5
TOLERANCE = 1e-9
NO_HEADERS: Mapping[str, str] = MappingProxyType({})
REASON = "departed, but has no arrival delay"


class Read(NamedTuple):
    """One record as a consumer got it (a tuple, because there are more than a million)."""

    partition: int
    offset: int
    key: str
    value: bytes
    headers: Mapping[str, str]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Records per topic as read, and flight ids that came twice in one."""

    raw: int
    validated: int
    rejected: int
    enriched: int
    carriers: int
    carrier_updates: int
    duplicates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    counts: Counts
    differences: tuple[str, ...]


def read(
    bootstrap_servers: str,
    topics: Sequence[str],
    *,
    progress: Callable[[int], None] | None = None,
    clock: Clock | None = None,
) -> dict[str, list[Read]]:
    """Every committed record of `topics`, from the first to the end of each partition."""
    found: dict[str, list[Read]] = {topic: [] for topic in topics}
    count = 0
    for messages in _messages(bootstrap_servers, topics, "read_committed", clock or SystemClock()):
        for message in messages:
            found[message.topic()].append(_record(message))
        count += len(messages)
        if progress is not None:
            progress(count)
    return found


def count_uncommitted(bootstrap_servers: str, topics: Sequence[str], *, clock: Clock | None = None) -> int:
    """How many records `topics` hold with those of aborted transactions, which `read` never gives."""
    return sum(map(len, _messages(bootstrap_servers, topics, "read_uncommitted", clock or SystemClock())))


def _messages(
    bootstrap_servers: str, topics: Sequence[str], isolation_level: str, clock: Clock
) -> Iterator[list[Any]]:
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap_servers,
            "group.id": "suiro-demo-check",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "isolation.level": isolation_level,
            "auto.offset.reset": "earliest",
            "queued.min.messages": 200_000,
        }
    )
    try:
        known = consumer.list_topics(timeout=READ_TIMEOUT_S).topics
        unread = {(topic, partition) for topic in topics for partition in known[topic].partitions}
        consumer.assign([TopicPartition(topic, partition, 0) for topic, partition in unread])
        deadline_ms = clock.monotonic_ms() + READ_TIMEOUT_S * 1000
        while unread:
            if clock.monotonic_ms() > deadline_ms:
                raise FatalError(f"the end of {sorted(unread)} was not reached within {READ_TIMEOUT_S} s")
            messages = []
            for message in consumer.consume(CONSUME_RECORDS, timeout=0.2):
                error = message.error()
                if error is None:
                    messages.append(message)
                elif error.code() == KafkaError._PARTITION_EOF:
                    unread.discard((message.topic(), message.partition()))
                elif error.fatal() or not error.retriable():
                    raise FatalError(f"reading {message.topic()}: {error.str()}")
            yield messages
    finally:
        consumer.close()


def _record(message: Any) -> Read:
    raw_headers = message.headers()
    headers = {name: (value or b"").decode() for name, value in raw_headers} if raw_headers else NO_HEADERS
    return Read(
        message.partition(),
        message.offset(),
        (message.key() or b"").decode(),
        message.value() or b"",
        headers,
    )


def verify(found: Mapping[str, Sequence[Read]], expected: Expected) -> Verdict:
    """Point by point; no difference means: nothing lost, nothing twice, nothing changed."""
    differences: list[str] = []
    raw, validated, rejected = found[RAW], found[VALIDATED], found[REJECTED]
    enriched, delays = found[ENRICHED], found[DELAYS]

    duplicates = 0
    for topic, records, wanted in (
        (RAW, raw, expected.flights.keys()),
        (VALIDATED, validated, expected.flights.keys() - expected.rejected),
        (REJECTED, rejected, expected.rejected),
        (ENRICHED, enriched, expected.flights.keys() - expected.rejected),
    ):
        duplicates += _check_ids(topic, records, wanted, differences)

    if len(raw) != len(validated) + len(rejected):
        differences.append(
            f"{RAW} has {len(raw)} records, but {len(validated)} were validated and {len(rejected)} rejected"
        )
    if len(enriched) != len(validated):
        differences.append(f"{ENRICHED} has {len(enriched)} records, {VALIDATED} {len(validated)}")

    _check_each(RAW, raw, lambda record: _wrong_raw(record, expected), differences)
    original = {record.key: record for record in raw}
    _check_each(VALIDATED, validated, lambda record: _wrong_bytes(record, original), differences)
    _check_each(REJECTED, rejected, lambda record: _wrong_rejected(record, original), differences)
    _check_each(ENRICHED, enriched, lambda record: _wrong_enriched(record, expected), differences)
    last = _check_delays(delays, expected, differences)
    return Verdict(
        counts=Counts(
            raw=len(raw),
            validated=len(validated),
            rejected=len(rejected),
            enriched=len(enriched),
            carriers=last,
            carrier_updates=len(delays),
            duplicates=duplicates,
        ),
        differences=tuple(differences),
    )


def _check_ids(topic: str, records: Sequence[Read], wanted: Iterable[str], differences: list[str]) -> int:
    """Each wanted id once, and no other. Returns how many records are there once too often."""
    times = Counter(record.key for record in records)
    wanted = set(wanted)
    doubled = sorted(key for key, count in times.items() if count > 1)
    for what, keys in (
        ("missing", sorted(wanted - times.keys())),
        ("there more than once", doubled),
        ("not expected", sorted(times.keys() - wanted)),
    ):
        if keys:
            differences.append(f"{topic}: {len(keys)} flight ids {what}: {_some(keys)}")
    return sum(times[key] - 1 for key in doubled)


def _check_each(
    topic: str, records: Sequence[Read], wrong: Callable[[Read], str | None], differences: list[str]
) -> None:
    named = [
        f"{record.key} (partition {record.partition}, offset {record.offset}): {what}"
        for record in records
        if (what := wrong(record)) is not None
    ]
    if named:
        differences.append(f"{topic}: {len(named)} records differ: {_some(named)}")


def _wrong_raw(record: Read, expected: Expected) -> str | None:
    flight = expected.flights.get(record.key)
    if flight is None or _parsed(record.value) == flight:
        return None  # an unexpected id is named already
    return "is not the flight in the data"


def _wrong_bytes(record: Read, original: Mapping[str, Read]) -> str | None:
    source = original.get(record.key)
    return None if source is not None and source.value == record.value else "bytes differ from the raw record"


def _wrong_rejected(record: Read, original: Mapping[str, Read]) -> str | None:
    source = original.get(record.key)
    if source is None or source.value != record.value:
        return "bytes differ from the raw record"
    wanted = {
        "reason": REASON,
        "topic": RAW,
        "partition": str(source.partition),
        "offset": str(source.offset),
    }
    return None if record.headers == wanted else f"headers are {dict(record.headers)}, expected {wanted}"


def _wrong_enriched(record: Read, expected: Expected) -> str | None:
    flight = expected.flights.get(record.key)
    value = _parsed(record.value)
    if flight is None:
        return None
    if value is None:
        return "is not JSON"
    wanted = {
        **flight,
        "airline": expected.airlines.get(flight["carrier"]),
        "destination": _columns(expected.airports.get(flight["dest"]), ("name", "lat", "lon", "tzone")),
        "plane": _columns(
            expected.planes.get(flight["tailnum"]), ("year", "type", "manufacturer", "model", "seats")
        ),
    }
    if value == wanted:
        return None
    names = [name for name in wanted if value.get(name) != wanted[name]] or sorted(
        value.keys() - wanted.keys()
    )
    return f"{names[0]} is {value.get(names[0])!r}, expected {wanted.get(names[0])!r}"


def _check_delays(delays: Sequence[Read], expected: Expected, differences: list[str]) -> int:
    """The last record per carrier, and that its flights only ever grew. Returns how many carriers there are."""
    last: dict[str, dict[str, Any]] = {}
    place: dict[str, int] = {}
    for record in sorted(delays, key=lambda record: (record.partition, record.offset)):
        value = _parsed(record.value)
        if value is None:
            differences.append(f"{DELAYS}: partition {record.partition}, offset {record.offset} is not JSON")
            continue
        before = last.get(record.key)
        if place.setdefault(record.key, record.partition) != record.partition:
            differences.append(f"{DELAYS}: {record.key} is in two partitions")
        elif before is not None and value["flights"] <= before["flights"]:
            differences.append(
                f"{DELAYS}: {record.key} went from {before['flights']} to {value['flights']} flights "
                f"at offset {record.offset}: an update came twice or out of order"
            )
        last[record.key] = value
    for carrier in sorted(expected.carriers.keys() | last.keys()):
        wanted, got = expected.carriers.get(carrier), last.get(carrier)
        if wanted is None or got is None:
            differences.append(f"{DELAYS}: carrier {carrier} is {'not expected' if got else 'missing'}")
            continue
        for name in ("flights", "cancelled", "mean_dep_delay", "mean_arr_delay"):
            if not _close(got.get(name), getattr(wanted, name)):
                differences.append(
                    f"{DELAYS}: {carrier} {name} is {got.get(name)}, expected {getattr(wanted, name)}"
                )
    return len(last)


def _close(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None:
        return got is wanted
    return abs(got - wanted) <= TOLERANCE


def _columns(row: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in names}


def _parsed(value: bytes) -> dict[str, Any] | None:
    try:
        parsed = json.loads(value)
    except ValueError:
        return None
    return parsed if isinstance(parsed, dict) else None


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_EXAMPLES])
    return shown if len(names) <= NAMED_EXAMPLES else f"{shown}, ..."
