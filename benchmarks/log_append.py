"""The log alone, without a socket: append, read and recovery of one partition.

    python benchmarks/log_append.py [--directory DIR] [--megabytes 400]

What a produce costs the node below the protocol. Batches of 16 kB and 128 kB of 100-byte records.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
import time
from pathlib import Path
from uuid import uuid4

import load

from suiro.clock import SystemClock
from suiro.log import LogConfig, PartitionLog
from suiro.protocol.records import Record, encode_batch


def main() -> None:
    parser = argparse.ArgumentParser(description="The log alone: append, read, recover.")
    parser.add_argument("--directory", type=Path, help="a disk of your choice (default: the temporary one)")
    parser.add_argument("--megabytes", type=int, default=400)
    arguments = parser.parse_args()
    directory = Path(tempfile.mkdtemp(dir=arguments.directory))
    try:
        for count in (150, 1200):
            measure(directory / f"records-{count}", count, arguments.megabytes * 1_000_000)
    finally:
        shutil.rmtree(directory)


def measure(directory: Path, count: int, total_bytes: int) -> None:
    clock, topic_id = SystemClock(), uuid4()

    def opened() -> PartitionLog:
        return PartitionLog(
            directory,
            topic="records",
            partition=count,
            topic_id=topic_id,
            config=LogConfig(),
            clock=clock,
            clean_shutdown=False,
        )

    now_ms = clock.wall_ms()
    records = [Record(offset=n, timestamp=now_ms, key=None, value=os.urandom(100)) for n in range(count)]
    batch = encode_batch(records)
    appends = total_bytes // len(batch)
    log = opened()
    start = time.perf_counter()
    for _ in range(appends):
        log.append(batch)
    took = time.perf_counter() - start
    rate, volume = appends * count / took / 1e6, appends * len(batch) / took / 1e6
    print(f"{len(batch)} byte batches")
    print(f"  append   {rate:6.1f} M records/s {volume:6.0f} MB/s {took / appends * 1e6:6.1f} us a batch")

    start, offset, reads = time.perf_counter(), 0, 0
    while (result := log.read(offset, max_bytes=1 << 20, read_committed=True)).regions:
        offset += result.size // len(batch) * count
        reads += 1
    print(f"  read     {(time.perf_counter() - start) / reads * 1e6:6.1f} us for a region of 1 MB")

    log.abandon()
    start = time.perf_counter()
    recovered = opened()
    took = time.perf_counter() - start
    assert recovered.log_end_offset == offset
    print(f"  recovery {total_bytes / took / 1e6:6.0f} MB/s after a crash with nothing synced")
    recovered.abandon()


if __name__ == "__main__":
    sys.exit(load.run(main))
