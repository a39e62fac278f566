"""The options of format "suiro": names, meanings and defaults are those of Spark's own Kafka connector.

Spark hands option names over in lower case. An unknown one is an error that names the nearest known one.
"""

from __future__ import annotations

import difflib
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar

from suiro.errors import ConfigError
from suiro.foundation.types import TopicPartition
from suiro.numerals import whole_number
from suiro.spark.connector import OPTIONS, Fate, client_settings
from suiro.spark.decide import MissingCheckpoint, MissingMarker

E = TypeVar("E", bound=StrEnum)

LATEST = -1
EARLIEST = -2

_SHARED = {"path"}  # Spark adds these by itself
_OF_CONNECTOR = [entry for entry in OPTIONS if not entry.name.startswith("kafka.")]
_NO_EFFECT = {entry.name.lower() for entry in _OF_CONNECTOR if entry.fate is Fate.NO_EFFECT}
_SUPPORTED = [entry for entry in _OF_CONNECTOR if entry.fate is Fate.SUPPORTED]
_SOURCE = [
    *(entry.name for entry in _SUPPORTED if entry.side == "read"),
    "maxBytesPerTrigger",
    "maxFetchBytes",
    "rowsPerBatch",
]
_SINK = [
    *(entry.name for entry in _SUPPORTED if entry.side == "write"),
    "application.id",
    "sink.name",
    "staging.dir",
    "producer.tasks",
    "marker.missing",
    "checkpoint.missing",
    "checkpointLocation",
    "queryName",
]
_SINK_KAFKA = {"compression.type": "none", "batch.size": "900000", "transaction.timeout.ms": "60000"}
_MAX_TRIGGER_DELAY = "15m"  # as Spark's connector
COMPRESSIONS = {"none": 0, "gzip": 1, "snappy": 2, "lz4": 3, "zstd": 4}


@dataclass(frozen=True, slots=True, kw_only=True)
class Subscription:
    """Which partitions: exactly one of the three."""

    topics: tuple[str, ...] = ()
    pattern: str | None = None
    assigned: tuple[TopicPartition, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """Where to begin or end: EARLIEST, LATEST or an offset for each partition; or a timestamp in ms.

    `offsets` and `timestamps` hold what was said partition by partition; the rest takes `default`.
    """

    default: int = LATEST
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamps: Mapping[TopicPartition, int] = field(default_factory=dict)
    timestamp: int | None = None
    none_is_latest: bool = True
    """Of times: where no record is as young, the end; otherwise an error."""

    @property
    def is_of_times(self) -> bool:
        return self.timestamp is not None or bool(self.timestamps)

    def says(self, what: int) -> bool:
        """EARLIEST or LATEST, of any partition."""
        if self.is_of_times:
            return False
        return what in self.offsets.values() if self.offsets else self.default == what


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """`group_id`: where a stream commits its progress, for tools that show lag. Times in ms."""

    bootstrap_servers: str
    client_settings: Mapping[str, str]
    group_id: str | None
    subscription: Subscription
    starting: Bound | None  # None: not given; a stream begins at the latest, a batch at the earliest
    ending: Bound
    max_offsets_per_trigger: int | None
    min_offsets_per_trigger: int | None
    max_bytes_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int | None
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_headers: bool
    read_committed: bool
    max_fetch_bytes: int
    rows_per_batch: int

    @property
    def waiting_limit_ms(self) -> int | None:
        """How long a stream waits for a log that is away. None: for as long as it takes."""
        return _limit(self.client_settings, "default.api.timeout.ms")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SourceOptions:
        """Raises `ConfigError`, which names the option."""
        given, kafka = _split(options, known=_SOURCE, side="source")
        isolation = kafka.pop("isolation.level", "read_committed")
        if isolation not in ("read_committed", "read_uncommitted"):
            raise ConfigError(
                f"option kafka.isolation.level: {isolation!r} is neither read_committed nor read_uncommitted"
            )
        starting = _bound(given, "starting")
        low, high = (_whole(given, f"{word}OffsetsPerTrigger", low=1) for word in ("min", "max"))
        if low is not None and high is not None and low > high:
            raise ConfigError(f"option minOffsetsPerTrigger ({low}) is above maxOffsetsPerTrigger ({high})")
        return cls(
            bootstrap_servers=_required(kafka, "bootstrap.servers"),
            group_id=kafka.pop("group.id", None),
            client_settings=client_settings(kafka),
            subscription=_subscription(given),
            starting=starting,
            ending=_bound(given, "ending") or Bound(default=LATEST),
            max_offsets_per_trigger=high,
            min_offsets_per_trigger=low,
            max_bytes_per_trigger=_whole(given, "maxBytesPerTrigger", low=1),
            max_trigger_delay_ms=_delay(given.get("maxtriggerdelay", _MAX_TRIGGER_DELAY)),
            min_partitions=_whole(given, "minPartitions", low=1),
            max_records_per_partition=_whole(given, "maxRecordsPerPartition", low=1),
            fail_on_data_loss=_truth(given, "failOnDataLoss", default=True),
            include_headers=_truth(given, "includeHeaders", default=False),
            read_committed=isolation == "read_committed",
            max_fetch_bytes=_whole(given, "maxFetchBytes", low=1024) or 8 * 1024 * 1024,
            rows_per_batch=_whole(given, "rowsPerBatch", low=1) or 50_000,
        )

    def for_batch(self) -> SourceOptions:
        """Checks what only a stream may say."""
        for name, limit in (
            ("maxOffsetsPerTrigger", self.max_offsets_per_trigger),
            ("minOffsetsPerTrigger", self.min_offsets_per_trigger),
            ("maxBytesPerTrigger", self.max_bytes_per_trigger),
        ):
            if limit is not None:
                raise ConfigError(f"option {name} is for streams; a batch read has endingOffsets")
        if self.starting is not None and self.starting.says(LATEST):
            raise ConfigError("option startingOffsets: a batch read cannot begin at the latest offset")
        return self


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    bootstrap_servers: str
    client_settings: Mapping[str, str]
    topic: str | None  # None: the rows say
    application_id: str | None
    sink_name: str
    staging_directory: str | None
    producer_tasks: int | None  # None: the driver produces
    missing_marker: MissingMarker
    missing_checkpoint: MissingCheckpoint
    checkpoint_location: str | None
    compression: int
    max_batch_bytes: int
    transaction_timeout_ms: int
    # No option: for who looks at the marker before the query starts, see `decide`.
    begins_after: str | None = None

    @property
    def waiting_limit_ms(self) -> int | None:
        """How long a stream's micro-batch waits for a log that is away. None: for as long as it takes."""
        return _limit(self.client_settings, "delivery.timeout.ms")

    @classmethod
    def parse(cls, options: Mapping[str, str]) -> SinkOptions:
        """Raises `ConfigError`, which names the option."""
        given, kafka = _split(options, known=_SINK, side="sink")
        own = {name: kafka.pop(name, default) for name, default in _SINK_KAFKA.items()}
        for name in ("enable.idempotence", "acks"):  # what Kafka's producers are told for the same purpose
            if kafka.pop(name, "all").lower() not in ("all", "-1", "true"):
                raise ConfigError(f"option kafka.{name}: an exactly-once sink cannot do without it")
        if own["compression.type"] not in COMPRESSIONS:
            raise ConfigError(
                f"option kafka.compression.type: {own['compression.type']!r} is none of {', '.join(COMPRESSIONS)}"
            )
        return cls(
            bootstrap_servers=_required(kafka, "bootstrap.servers"),
            client_settings=client_settings(kafka),
            topic=given.get("topic"),
            application_id=given.get("application.id"),
            sink_name=given.get("sink.name", ""),
            staging_directory=given.get("staging.dir"),
            producer_tasks=_whole(given, "producer.tasks", low=1),
            missing_marker=_chosen(given, "marker.missing", MissingMarker, MissingMarker.FAIL),
            missing_checkpoint=_chosen(given, "checkpoint.missing", MissingCheckpoint, MissingCheckpoint.FAIL),
            checkpoint_location=given.get("checkpointlocation"),
            compression=COMPRESSIONS[own["compression.type"]],
            max_batch_bytes=_number("kafka.batch.size", own["batch.size"], low=1024),
            transaction_timeout_ms=_number("kafka.transaction.timeout.ms", own["transaction.timeout.ms"], low=1),
        )

    def for_format(self) -> SinkOptions:
        """Checks what only `exactly_once(...)` can do, since there it makes the plan."""
        if self.producer_tasks is not None:
            raise ConfigError(
                'option producer.tasks: format "suiro" has no say in how Spark cuts the tasks that write, so its '
                "driver produces. Use foreachBatch with suiro.spark.exactly_once(...), which has, or staging.dir"
            )
        return self

    def for_stream(self) -> SinkOptions:
        """Checks what only a stream needs."""
        if not self.application_id:
            raise ConfigError(
                "option application.id is missing: exactly once needs a name for this application that stays "
                'the same over restarts, as in .option("application.id", "flights")'
            )
        if not self.checkpoint_location:
            raise ConfigError(
                "option checkpointLocation is missing: the sink reads the offsets of each micro-batch there "
                "(the session setting spark.sql.streaming.checkpointLocation is not passed on to sinks)"
            )
        return self


def _split(options: Mapping[str, str], *, known: list[str], side: str) -> tuple[dict[str, str], dict[str, str]]:
    names = {name.lower(): name for name in known}
    given: dict[str, str] = {}
    kafka: dict[str, str] = {}
    for name, value in options.items():
        lower = name.lower()
        if lower.startswith("kafka."):
            kafka[lower.removeprefix("kafka.")] = value
        elif lower in names:
            given[lower] = value
        elif lower not in _SHARED | _NO_EFFECT:
            near = difflib.get_close_matches(lower, names, n=1)
            hint = f"; did you mean {names[near[0]]}?" if near else f"; known are {', '.join(known)} and kafka.*"
            raise ConfigError(f'format "suiro" has no {side} option {name!r}{hint}')
    return given, kafka


def _required(kafka: dict[str, str], name: str) -> str:
    value = kafka.pop(name, "").strip()
    if not value:
        raise ConfigError(f'option kafka.{name} is missing, as in .option("kafka.{name}", "127.0.0.1:9092")')
    return value


def _chosen(given: Mapping[str, str], name: str, choices: type[E], default: E) -> E:
    value = given.get(name, default.value)
    if value not in list(choices):
        raise ConfigError(f"option {name}: {value!r} is none of {', '.join(choices)}")
    return choices(value)


def _subscription(given: Mapping[str, str]) -> Subscription:
    ways = [name for name in ("subscribe", "subscribepattern", "assign") if given.get(name, "").strip()]
    if len(ways) != 1:
        raise ConfigError(
            "give exactly one of the options subscribe (topics with commas), subscribePattern (a regular "
            f"expression) and assign (JSON), not {len(ways)} of them"
        )
    value = given[ways[0]].strip()
    match ways[0]:
        case "subscribe":
            topics = tuple(dict.fromkeys(filter(None, (part.strip() for part in value.split(",")))))
            if not topics:
                raise ConfigError(f"option subscribe names no topic: {value!r}")
            return Subscription(topics=topics)
        case "subscribepattern":
            try:
                re.compile(value)
            except re.error as error:
                raise ConfigError(
                    f"option subscribePattern: {value!r} is not a regular expression of Python's: {error}"
                ) from None
            return Subscription(pattern=value)
        case _:
            parsed = _json("assign", value)
            try:
                pairs = [(topic, int(partition)) for topic, items in parsed.items() for partition in items]
            except (TypeError, ValueError, AttributeError):
                pairs = []
            if not pairs:
                raise ConfigError(f'option assign is not like {{"topic": [0, 1]}}: {value!r}')
            return Subscription(assigned=tuple(sorted(set(pairs))))


def _bound(given: Mapping[str, str], word: str) -> Bound | None:
    by_time, by_topic = f"{word}OffsetsByTimestamp", f"{word}Offsets"
    strategy = given.get(f"{word}offsetsbytimestampstrategy", "error" if word == "starting" else "latest").lower()
    if strategy not in ("error", "latest"):
        raise ConfigError(f"option {by_time}Strategy: {strategy!r} is neither error nor latest")
    latest = strategy == "latest"
    if f"{word}timestamp" in given:
        return Bound(timestamp=_whole(given, f"{word}Timestamp", low=0), none_is_latest=latest)
    if by_time.lower() in given:
        return Bound(timestamps=_positions(by_time, given[by_time.lower()], low=0), none_is_latest=latest)
    if by_topic.lower() not in given:
        return None
    text = given[by_topic.lower()].strip()
    words = {"earliest": EARLIEST, "latest": LATEST}
    if text.lower() in words:
        bound = Bound(default=words[text.lower()])
    else:
        bound = Bound(offsets=_positions(by_topic, text, low=EARLIEST))
    if word == "ending" and bound.says(EARLIEST):
        raise ConfigError(f"option {by_topic}: a read cannot end at the earliest offset: {text!r}")
    return bound


def _positions(name: str, text: str, *, low: int) -> dict[TopicPartition, int]:
    parsed = _json(name, text)
    try:
        found = {
            (topic, whole_number(partition)): whole_number(str(value))
            for topic, items in parsed.items()
            for partition, value in items.items()
        }
    except (TypeError, ValueError, AttributeError):
        found = {}
    if not found or any(value < low for value in found.values()):
        raise ConfigError(
            f'option {name} is neither earliest, latest nor like {{"topic": {{"0": 23, "1": -2}}}}: {text!r}'
        )
    return found


def _json(name: str, text: str) -> Any:
    try:
        value = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"option {name} is not JSON ({error}): {text!r}") from None
    if not isinstance(value, dict):
        raise ConfigError(f"option {name} is not a JSON object: {text!r}")
    return value


def _whole(given: Mapping[str, str], name: str, *, low: int) -> int | None:
    value = given.get(name.lower())
    return None if value is None else _number(name, value, low=low)


def _limit(settings: Mapping[str, str], name: str) -> int | None:
    given = settings.get(name)
    return None if given is None else _number(f"kafka.{name}", given, low=1)


def _number(name: str, value: str, *, low: int) -> int:
    try:
        number = whole_number(value)
    except ValueError:
        raise ConfigError(f"option {name} is not a whole number: {value!r}") from None
    if number < low:
        raise ConfigError(f"option {name} is below {low}: {value!r}")
    return number


_UNITS_MS = {"us": 0.001, "ms": 1, "s": 1_000, "m": 60_000, "min": 60_000, "h": 3_600_000, "d": 86_400_000}


def _delay(value: str) -> int:
    """Spark's own notation: 200ms, 5s, 15m, 1h; a number alone is milliseconds."""
    found = re.fullmatch(r"([0-9]{1,18})\s*([a-z]*)", value.strip().lower())
    if found is None or (found[2] or "ms") not in _UNITS_MS:
        raise ConfigError(f"option maxTriggerDelay is not a time like 200ms, 5s, 15m or 1h: {value!r}")
    return int(int(found[1]) * _UNITS_MS[found[2] or "ms"])


def _truth(given: Mapping[str, str], name: str, *, default: bool) -> bool:
    value = given.get(name.lower(), str(default)).strip().lower()
    if value not in ("true", "false"):
        raise ConfigError(f"option {name} is neither true nor false: {given[name.lower()]!r}")
    return value == "true"
