"""Runs a topology on Spark: one query, one micro-batch at a time, one Kafka transaction for each.

```
source task    fetch, decode; sub-topologies without state run here       source, source_task, input_reader
stream task    one sub-topology and partition: its operators, its state   stream_task, state_log, input_reader
driver         the micro-batch's transaction                              runner
```
Spark plans, shuffles, keeps the state and repeats what failed; the rules are those of `suiro.streams.operators`. A row
that Spark sees holds many records (`shuffle_message`). `plan` says what runs where, `program` brings it to the workers,
`outputs` is the way out of a task. `kafka_streams` is what users start; `serving` shows how it stands (`status`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use

if TYPE_CHECKING:
    from suiro.streams_spark.kafka_streams import KafkaStreams
    from suiro.streams_spark.reported_datasets import lineage_report
    from suiro.streams_spark.serving import ApplicationServer

__all__ = ["ApplicationServer", "KafkaStreams", "lineage_report"]

# A worker has no need of it.
__getattr__ = on_first_use(
    __name__,
    {"kafka_streams": "KafkaStreams", "reported_datasets": "lineage_report", "serving": "ApplicationServer"},
    extras="spark",
)
