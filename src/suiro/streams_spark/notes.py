"""The times that a task keeps between micro-batches, beside its stores: the map `$notes`, of numbers (`streams.times`).

A key is a kind, a zero byte and names. Kinds: `lane` (a repartition's name: the time this task reached at it), `tick`
and `reached` (a queue, see `record_queue`), `partition` (source, topic, partition: the partition time of its timestamp
extractor), and `told` (no names), which `stream_task` writes.
"""

from __future__ import annotations

NOTES = "$notes"

INPUT_TIME = b"lane\0"
PARTITION_TIME = b"partition\0"
REACHED = b"reached\0"
TICK = b"tick\0"
TOLD = b"told\0"


def partition_time_key(source: str, topic: str, partition: int | str) -> bytes:
    return PARTITION_TIME + f"{source}\0{topic}\0{partition}".encode()
