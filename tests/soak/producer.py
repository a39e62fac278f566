"""Writes the records, so many a second, until standard input closes: `python -m tests.soak.producer BOOTSTRAP RATE`.

A JSON line a second says how many were sent and acknowledged, the last one how many of each key. It is idempotent and
never gives up: a record that is refused is a failure of the soak.
"""

from __future__ import annotations

import json
import sys
import threading
import time
from itertools import cycle
from typing import Any

from confluent_kafka import KafkaException, Producer

from tests.soak.records import KEYS, SOURCE, partition_of, value_of

TICK_S = 0.05


class Writing:
    def __init__(self, bootstrap: str) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "enable.idempotence": True,
                "linger.ms": 20,
                "message.timeout.ms": 0,
                "reconnect.backoff.max.ms": 1000,
            }
        )
        self.sent = dict.fromkeys(KEYS, 0)
        self.acknowledged = 0
        self.refused = ""

    def write(self, key: str) -> None:
        number = self.sent[key]
        while True:
            try:
                self._producer.produce(
                    SOURCE,
                    key=key,
                    value=value_of(key, number),
                    partition=partition_of(key),
                    callback=self._told,
                )
                break
            except BufferError:
                self._producer.poll(TICK_S)
            except KafkaException as error:  # an idempotent producer that can no longer be
                self.refused = str(error)
                return
        self.sent[key] = number + 1

    def _told(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged += 1
        else:
            self.refused = f"{message.key()!r} in {message.topic()}-{message.partition()}: {error}"

    def poll(self, seconds: float) -> None:
        self._producer.poll(seconds)

    def flush(self) -> None:
        while self._producer.flush(1.0) and not self.refused:
            continue


def main(bootstrap: str, rate: str) -> int:
    told_to_stop = threading.Event()

    def listen() -> None:
        sys.stdin.read()
        told_to_stop.set()

    threading.Thread(target=listen, daemon=True).start()
    writing = Writing(bootstrap)
    keys = cycle(KEYS)
    at = said = time.monotonic()
    due = 0.0
    while not told_to_stop.wait(TICK_S) and not writing.refused:
        now = time.monotonic()
        due = min(due + (now - at) * int(rate), int(rate))  # what was missed for long is not made up for
        at = now
        while due >= 1:
            writing.write(next(keys))
            due -= 1
        writing.poll(0)
        if now - said >= 1:
            said = now
            say(sent=sum(writing.sent.values()), acknowledged=writing.acknowledged)
    writing.flush()
    if writing.refused:
        say(refused=writing.refused)
        return 1
    say(final=writing.sent)
    return 0


def say(**event: object) -> None:
    print(json.dumps(event), flush=True)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
