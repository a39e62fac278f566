"""What can be set for a version beside what its code says: names to texts, as they stand in the version's spec.

| name | is |
|---|---|
| `trigger` | the time between two micro-batches, "500 milliseconds" |
| `max.offsets.per.trigger` | records in one micro-batch, about; unless said 1,000,000, or more (`stride`) |
| `on.processing.error`, `on.deserialization.error` | "fail", "skip" or "dead-letter:TOPIC" |
| `output.partitions` | of the output topic; as many as the widest input unless said |
| `jvm` | "shared" with the host's other versions, or "own"; a version that sets what is a JVM's has its own anyway |
| `spark.*` | Spark's own; `spark.master` "local[2]" unless said |
| all others | those of `KafkaStreams(settings=...)`: `startingOffsets`, `kafka.*`, ... |
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from suiro.errors import ConfigError

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TRIGGER = "500 milliseconds"
JVMS = ("shared", "own")
SESSION_SETTINGS = "spark.sql."
"""How Spark's settings begin that may differ from session to session. Not all of these may (`spark.shared_session`)."""
LIMIT = "max.offsets.per.trigger"
MAX_OFFSETS_PER_TRIGGER = 1_000_000


@dataclass(frozen=True, slots=True, kw_only=True)
class RunSettings:
    """`takes_more`: of a long backlog, since nobody said how many records a micro-batch may have. `reading`: for
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
        """Raises `ConfigError` for a value that cannot be."""
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
    if not text.isdecimal() or int(text) < 1:
        raise ConfigError(f"setting {name} is {text!r}; give a number from 1 on")
    return int(text)
