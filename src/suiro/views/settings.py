"""The settings of a version: names and texts in the version's spec.

| name | meaning |
|---|---|
| `trigger` | the time between two micro-batches; default "500 milliseconds" |
| `max.offsets.per.trigger` | about how many records a micro-batch has; default 1,000,000, or more (`pace`) |
| `on.processing.error`, `on.deserialization.error` | "fail", "skip" or "dead-letter:TOPIC" |
| `output.partitions` | the partitions of the output topic; default: as many as the widest input |
| `jvm` | "shared" with the host's other versions, or "own"; a version with settings of a JVM always has its own |
| `spark.*` | Spark's settings; default of `spark.master`: "local[2]" |
| all others | those of `KafkaStreams(settings=...)`: `startingOffsets`, `kafka.*`, ... |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suiro.errors import ConfigError
from suiro.numerals import whole_number

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER = "500 milliseconds"
JVMS = ("shared", "own")
SESSION_SETTINGS = "spark.sql."
"""The prefix of Spark's settings that may differ by session. Some of them may not (`spark.shared_session`)."""
LIMIT = "max.offsets.per.trigger"
MAX_OFFSETS_PER_TRIGGER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """`takes_more`: micro-batches of a long backlog may be larger, because no limit was set. `reading`: for
    `KafkaStreams`. `spark`: for the session."""

    trigger: str
    max_offsets_per_trigger: int
    takes_more: bool
    on_processing_error: str
    on_deserialization_error: str
    output_partitions: int | None
    shares_jvm: bool
    master: str
    spark: Mapping[str, str]
    reading: Mapping[str, str]

    @classmethod
    def parse(cls, settings: Mapping[str, str]) -> RunSettings:
        """Raises `ConfigError` for an invalid value."""
        left = dict(settings)
        partitions = left.pop("output.partitions", None)
        jvm = left.pop("jvm", JVMS[0])
        if jvm not in JVMS:
            raise ConfigError(f"setting jvm is {jvm!r}; give one of {', '.join(JVMS)}")
        of_spark = [name for name in left if name.startswith("spark.")]
        return cls(
            trigger=left.pop("trigger", TRIGGER),
            takes_more=LIMIT not in left,
            max_offsets_per_trigger=_number(LIMIT, left.pop(LIMIT, str(MAX_OFFSETS_PER_TRIGGER))),
            on_processing_error=left.pop("on.processing.error", "fail"),
            on_deserialization_error=left.pop("on.deserialization.error", "fail"),
            output_partitions=None if partitions is None else _number("output.partitions", partitions),
            shares_jvm=jvm == "shared" and all(name.startswith(SESSION_SETTINGS) for name in of_spark),
            master=left.pop("spark.master", "local[2]"),
            spark={name: value for name, value in left.items() if name.startswith("spark.")},
            reading={name: value for name, value in left.items() if not name.startswith("spark.")},
        )

    def session(self, name: str) -> SparkSession:
        from suiro.spark import spark_session

        return spark_session(name, master=self.master, settings=self.spark, topologies_only=True)


def _number(name: str, text: str) -> int:
    try:
        found = whole_number(text)
    except ValueError:
        found = 0
    if found < 1:
        raise ConfigError(f"setting {name} is {text!r}; give a number from 1 on")
    return found
