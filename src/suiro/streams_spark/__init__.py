"""Runs a topology on Spark: one query, one micro-batch at a time, one Kafka transaction for each.

```
source task    fetch, decode; sub-topologies without state run here       source, input_partitions
stream task    one sub-topology and partition: its operators, its state   stream_task, state_log
driver         the micro-batch's transaction                              runner
```
Spark plans, shuffles, keeps the state and repeats what failed; the rules are those of `suiro.streams.operators`. A row
that Spark sees holds many records (`shuffle_message`). `plan` says what runs where, `program` brings it to the workers,
`outputs` is the way out of a task. `kafka_streams` is what users start; `serving` shows how it stands (`status`).
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from suiro.extras import require

if TYPE_CHECKING:
    from suiro.streams_spark.kafka_streams import KafkaStreams
    from suiro.streams_spark.reported_datasets import lineage_report
    from suiro.streams_spark.serving import ApplicationServer

__all__ = ["ApplicationServer", "KafkaStreams", "lineage_report"]

# Loaded when it is used: a worker has no need of it.
_MODULES = {
    "ApplicationServer": "serving",
    "KafkaStreams": "kafka_streams",
    "lineage_report": "reported_datasets",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    require("spark")
    return getattr(import_module(f"{__name__}.{_MODULES[name]}"), name)
