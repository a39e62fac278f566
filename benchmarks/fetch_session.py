"""A consumer of 1,000 partitions: what a fetch costs in an incremental fetch session.

    python benchmarks/fetch_session.py [--rounds 3] [--partitions 1000] [--fetches 2000] [--only suiro|kafka]

The first fetch names all partitions and begins the session. Then nothing has happened between two fetches, or one
partition has got a batch. Printed are the median time of a fetch, and the broker's CPU for the quiet ones.
"""

from __future__ import annotations

import argparse
import random
import sys
import time
from datetime import timedelta
from statistics import median
from typing import Any

import load
from peers import cost
from sides import (
    KAFKA,
    Raw,
    Side,
    batch,
    create_topic,
    framed,
    interleaved,
    ours_and_theirs,
    produce_frame,
    recent,
)
from table import Row, show

from suiro.protocol.messages import API_KEYS, nested, request_class

TOPIC = "many"
WARM_UP = 500
RECORDS = 10
_CODE = slice(9, 11)  # behind correlation id, tags and throttle time
_SESSION = slice(11, 15)


def fetch_frame(session: int, epoch: int, offsets: dict[int, int]) -> bytes:
    """The partitions that the request names, and where it reads each from."""
    kind = request_class(API_KEYS["fetch"], 12)
    part = nested(kind, "FetchPartition")
    topics: tuple[Any, ...] = ()
    if offsets:
        partitions = tuple(
            part(
                partition=index,
                current_leader_epoch=-1,
                fetch_offset=offset,
                last_fetched_epoch=-1,
                log_start_offset=-1,
                partition_max_bytes=1 << 20,
            )
            for index, offset in offsets.items()
        )
        topics = (nested(kind, "FetchTopic")(topic=TOPIC, partitions=partitions),)
    return framed(
        kind(
            replica_id=-1,
            max_wait=timedelta(0),
            min_bytes=1,
            max_bytes=50 << 20,
            isolation_level=0,
            session_id=session,
            session_epoch=epoch,
            topics=topics,
            forgotten_topics_data=(),
            rack_id="",
        )
    )


def timed(raw: Raw, frame: bytes) -> tuple[float, bytes]:
    began = time.perf_counter()
    answer = raw.ask(frame)
    took = time.perf_counter() - began
    if answer[_CODE] != b"\0\0":
        raise RuntimeError(f"the fetch was refused with code {int.from_bytes(answer[_CODE], 'big')}")
    return took * 1e6, answer


def measure(side: Side, *, partitions: int, fetches: int) -> dict[str, float]:
    producer, consumer = Raw(side.bootstrap_servers), Raw(side.bootstrap_servers)
    create_topic(producer, TOPIC, partitions, {})
    data = batch(RECORDS, 100)
    ends = dict.fromkeys(range(partitions), 0)

    begun: list[float] = []
    for _ in range(20):
        took, answer = timed(consumer, fetch_frame(0, 0, ends))
        begun.append(took)
    session, epoch = int.from_bytes(answer[_SESSION], "big"), 0

    def next_fetch(named: dict[int, int]) -> float:
        nonlocal epoch
        epoch += 1
        return timed(consumer, fetch_frame(session, epoch, named))[0]

    for _ in range(WARM_UP):
        next_fetch({})
    before = cost(side.pid).cpu_seconds
    quiet = [next_fetch({}) for _ in range(fetches)]
    cpu = (cost(side.pid).cpu_seconds - before) / fetches * 1e6

    chance = random.Random(1)
    grown: list[float] = []
    named: dict[int, int] = {}
    for _ in range(WARM_UP + fetches):
        index = chance.randrange(partitions)
        producer.ask(produce_frame(TOPIC, index, data))
        grown.append(next_fetch(named))
        ends[index] += RECORDS
        named = {index: ends[index]}
    producer.close()
    consumer.close()
    return {
        f"first fetch of {partitions:,}": median(recent(begun, 10)),
        "fetch, nothing new": median(quiet),
        "fetch, one has grown": median(recent(grown, fetches)),
        "CPU of a fetch, nothing new": cpu,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=1000)
    parser.add_argument("--fetches", type=int, default=2000)
    parser.add_argument("--only", choices=("suiro", "kafka"))
    options = parser.parse_args()
    figures = interleaved(
        lambda side: measure(side, partitions=options.partitions, fetches=options.fetches),
        rounds=options.rounds,
        settings={},
        only=options.only,
    )
    rows = []
    for work in figures:
        ours, theirs = ours_and_theirs(figures, work)
        target = 0.7 if work.startswith("CPU") else 1.0
        rows.append(Row(work=work, unit="us", peer=KAFKA, ours=ours, theirs=theirs, target=target, less_is_better=True))
    show(f"{options.partitions:,} partitions in one fetch session, {options.rounds} rounds", rows)


if __name__ == "__main__":
    sys.exit(load.run(main))
