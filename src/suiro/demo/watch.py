"""Counts what the pipeline has committed so far, for the screen and for the moments to kill.

A read_committed consumer on a separate thread; it lives through restarts of the log. The final check does not
trust it: that one reads everything again.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from confluent_kafka import Consumer, TopicPartition

from suiro.demo.names import DELAYS, PARTITIONS, STAGES, WEATHER

__all__ = ["Progress", "Watch"]

CONSUME_RECORDS = 10_000
WATCHED = (*STAGES, WEATHER)


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """Committed records per topic, the last figures per carrier, and how many alerts were delivered."""

    counts: Mapping[str, int] = field(default_factory=lambda: dict.fromkeys(WATCHED, 0))
    carriers: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    delivered: int = 0

    @property
    def aggregated(self) -> int:
        """Flights that are in the carriers' figures."""
        return sum(figures["flights"] for figures in self.carriers.values())


class Watch:
    """Use as a context manager; `progress()` at any time, from any thread."""

    def __init__(self, bootstrap_servers: str, *, delivered: Callable[[], int]) -> None:
        self._delivered = delivered
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap_servers,
                "group.id": "suiro-demo-watch",
                "enable.auto.commit": False,
                "isolation.level": "read_committed",
                "auto.offset.reset": "earliest",
                "reconnect.backoff.max.ms": 500,
                "log_level": 0,  # a killed node is no news here
            }
        )
        self._progress = Progress()
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, name="demo-watch", daemon=True)

    def __enter__(self) -> Watch:
        self._consumer.assign([TopicPartition(topic, p, 0) for topic in WATCHED for p in range(PARTITIONS)])
        self._thread.start()
        return self

    def __exit__(self, *exc_info: object) -> None:
        self._ended.set()
        self._thread.join()
        self._consumer.close()

    def progress(self) -> Progress:
        return self._progress

    def _run(self) -> None:
        counts = dict.fromkeys(WATCHED, 0)
        carriers: dict[str, Mapping[str, Any]] = {}
        while not self._ended.is_set():
            for message in self._consumer.consume(CONSUME_RECORDS, timeout=0.2):
                topic, key, value = message.topic(), message.key(), message.value()
                if message.error() is None and topic is not None:
                    counts[topic] += 1
                    if topic == DELAYS and key is not None and value is not None:
                        carriers[key.decode()] = json.loads(value)
            self._progress = Progress(
                counts=dict(counts), carriers=dict(carriers), delivered=self._delivered()
            )
