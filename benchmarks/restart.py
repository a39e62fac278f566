"""How long a node takes to start on a large folder: many partitions and segments, or one crash with 1 GB to read.

    python benchmarks/restart.py clean [--partitions 10000] [--gigabytes 100]
    python benchmarks/restart.py crash [--gigabytes 1]

`clean` makes a folder as a clean stop leaves it, its segments sparse behind a few real batches; `crash` writes one
partition's active segment through the log's own code and leaves out the stop. Prints one JSON line: seconds from
starting `suiro node` to its answer, its memory and its descriptors.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import tempfile
import time
import uuid
from pathlib import Path

from suiro.clock import SystemClock
from suiro.log import DataDirectory, LogConfig
from suiro.log.checkpoints import id_text
from suiro.node import NodeProcess
from suiro.protocol.record_batch import HEADER_SIZE, patch_offset
from suiro.protocol.records import Record, encode_batch

SEGMENT_BYTES = 1 << 30


def batch(records: int, size: int) -> bytes:
    now = SystemClock().wall_ms()
    return encode_batch(
        [Record(offset=i, timestamp=now, key=b"%08d" % i, value=os.urandom(size)) for i in range(records)]
    )


def make_clean(folder: Path, partitions: int, gigabytes: int) -> int:
    """A folder of a clean stop; every tenth topic is compacted. How many segments it has."""
    DataDirectory.open(folder).close()
    topics, recovery = [], []
    data = bytearray(batch(20, 100))
    sealed = max(gigabytes * (1 << 30) // SEGMENT_BYTES - 1, 0)
    per_topic = 10
    segments = 0
    for number in range(partitions // per_topic):
        topic_id = uuid.uuid4()
        configs = {"cleanup.policy": "compact"} if number % 10 == 0 else {}
        topics.append(
            {"name": f"topic-{number}", "id": str(topic_id), "partitions": per_topic, "configs": configs}
        )
        for index in range(per_topic):
            directory = folder / f"topic-{number}-{index}"
            directory.mkdir()
            (directory / "partition.metadata").write_text(f"version: 0\ntopic_id: {id_text(topic_id)}")
            (directory / "leader-epoch-checkpoint").write_text("0\n1\n0 0\n")
            base, here = (
                0,
                1
                + sealed * (number * per_topic + index + 1) // partitions
                - (sealed * (number * per_topic + index) // partitions),
            )
            for left in range(here, 0, -1):
                stem = directory / f"{base:020d}"
                patch_offset(data, 0, base, 0)
                with open(f"{stem}.log", "wb") as file:
                    file.write(data)
                    if left > 1:
                        file.truncate(SEGMENT_BYTES)  # a hole: never read by a clean start
                Path(f"{stem}.index").touch()
                Path(f"{stem}.timeindex").write_bytes(
                    (SystemClock().wall_ms()).to_bytes(8, "big") + (19).to_bytes(4, "big")
                    if left > 1
                    else b""
                )
                base += 20
                segments += 1
            shutil.copy(_empty_snapshot(folder), directory / f"{base:020d}.snapshot")
            recovery.append(f"topic-{number} {index} {base}")
    (folder / "topics.json").write_text(json.dumps({"version": 1, "topics": topics, "deleting": []}))
    (folder / "recovery-point-offset-checkpoint").write_text(
        "\n".join(["0", str(len(recovery)), *recovery, ""])
    )
    return segments


def _empty_snapshot(folder: Path) -> Path:
    from suiro.log import producer_snapshot

    path = folder / "empty"
    if not path.exists():
        path.write_bytes(producer_snapshot.encode([]))
    return path


def make_crashed(folder: Path, gigabytes: float) -> int:
    directory = DataDirectory.open(folder)
    log = directory.open_partition(
        "large", 0, topic_id=uuid.uuid4(), config=LogConfig(segment_bytes=(1 << 31) - 1), clock=SystemClock()
    )
    data = batch(150, 100)  # 16 KB, as a busy producer's
    while log.size < gigabytes * (1 << 30):
        log.append(data)
    size = log.size
    directory.abandon()
    return size // (len(data) or HEADER_SIZE)


def measure(folder: Path) -> dict[str, object]:
    began = time.monotonic()
    node = NodeProcess.start(data=folder, listen="127.0.0.1:0")
    took = time.monotonic() - began
    try:
        status = Path(f"/proc/{node.pid}/status").read_text()
        memory = next(line.split()[1] for line in status.splitlines() if line.startswith("VmRSS"))
        descriptors = len(os.listdir(f"/proc/{node.pid}/fd"))
        began = time.monotonic()
        node.stop()
        stopped = time.monotonic() - began
    finally:
        node.kill()
    return {
        "start_s": round(took, 2),
        "stop_s": round(stopped, 2),
        "memory_mb": int(memory) // 1024,
        "descriptors": descriptors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("kind", choices=["clean", "crash"])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=None)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="suiro-restart-") as name:
        folder = Path(name)
        if options.kind == "clean":
            gigabytes = int(options.gigabytes or 100)
            made: dict[str, object] = {"segments": make_clean(folder, options.partitions, gigabytes)}
        else:
            made = {"batches": make_crashed(folder, options.gigabytes or 1.0)}
        print(json.dumps({"kind": options.kind, **made, "first": measure(folder), "second": measure(folder)}))


if __name__ == "__main__":
    main()
