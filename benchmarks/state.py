"""What the state of a task costs the worker process that has it: memory of a row, and the time to load all rows.

    python benchmarks/state.py [--rows 1000000] [--bytes 100]

A row is a key of 16 bytes, a timestamp and a value of `--bytes`. The state is loaded as a worker does it that has none
of it: after a start, after another worker had the task, and in every micro-batch if it does not fit into the cache.
"""

from __future__ import annotations

import argparse
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

from tasks import Handle

from suiro.streams_spark.state_log import StateCache, StateLog

MIB = 1024 * 1024


def written(rows: int, size: int) -> Handle:
    store = Handle()
    log = StateLog(store, StateCache(), "task")
    found = log.load().map("store")
    for number in range(rows):
        found.put(b"%016d" % number, bytes(8) + b"%0*d" % (size, number))
    log.save()
    return store


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000)
    parser.add_argument("--bytes", type=int, default=100)
    asked = parser.parse_args()
    with ProcessPoolExecutor(1) as other:  # whose memory is not counted
        store = other.submit(written, asked.rows, asked.bytes).result()
    size = sum(map(len, store.segments.values()))
    before, began = _resident(), time.process_time()
    state = StateLog(store, StateCache(), "task").load()
    seconds = time.process_time() - began
    found = len(state.map("store"))
    per_row = (_resident() - before) / found
    print(
        f"{found:,} rows, {size / MIB:,.0f} MiB of segments: {per_row:.0f} B a row in a worker, "
        f"{seconds:.2f} s of processor time to load"
    )
    return 0


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


if __name__ == "__main__":
    raise SystemExit(main())
