"""How long a start takes on a large folder: many partitions and segments, or one crash with 1 GB to read.

    python benchmarks/restart.py clean [--partitions 10000] [--gigabytes 100]
    python benchmarks/restart.py crash [--gigabytes 1] [--rounds 3] [--only suiro|kafka]

`clean` makes a folder as a clean stop leaves it, its segments sparse behind a few real batches, and prints one JSON
line: seconds from starting `suiro node` to its answer and of a processor, its memory and its descriptors. `crash` fills
the active segment of one partition through the broker, kills it with -9, and measures from the new start until the
partition answers with its end, for the node and for Apache Kafka.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
import tempfile
import time
import uuid
from pathlib import Path

import load
from sides import (
    KAFKA,
    Raw,
    Side,
    Subject,
    batch,
    create_topic,
    end_offset,
    fill,
    interleaved,
    ours_and_theirs,
    until,
)
from table import Row, show

from suiro.clock import SystemClock
from suiro.log import DataDirectory
from suiro.log.checkpoints import id_text
from suiro.node import NodeProcess
from suiro.protocol.record_batch import patch_offset

SEGMENT_BYTES = 1 << 30


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
        topics.append({"name": f"topic-{number}", "id": str(topic_id), "partitions": per_topic, "configs": configs})
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
                    (SystemClock().wall_ms()).to_bytes(8, "big") + (19).to_bytes(4, "big") if left > 1 else b""
                )
                base += 20
                segments += 1
            shutil.copy(_empty_snapshot(folder), directory / f"{base:020d}.snapshot")
            recovery.append(f"topic-{number} {index} {base}")
    (folder / "topics.json").write_text(json.dumps({"version": 1, "topics": topics, "deleting": []}))
    (folder / "recovery-point-offset-checkpoint").write_text("\n".join(["0", str(len(recovery)), *recovery, ""]))
    return segments


def _empty_snapshot(folder: Path) -> Path:
    from suiro.log import producer_snapshot

    path = folder / "empty"
    if not path.exists():
        path.write_bytes(producer_snapshot.encode([]))
    return path


def killed(side: Side, *, megabytes: float) -> dict[str, float]:
    """Seconds from the start after a kill -9 until the partition answers with its end."""
    raw = Raw(side.bootstrap_servers)
    create_topic(raw, "large", 1, {"segment.bytes": str((1 << 31) - 1)})
    fill(raw, "large", [batch(150, 100)], megabytes=megabytes)  # 16 KB, as a busy producer's
    end = end_offset(raw, "large", 0)
    raw.close()
    side.kill()
    began = time.monotonic()
    side.restart()
    until(lambda: _knows(side, end), within_s=300)
    return {"start after kill -9": time.monotonic() - began}


def _knows(side: Side, end: int) -> bool:
    try:
        raw = Raw(side.bootstrap_servers)
    except OSError:
        return False
    try:
        return end_offset(raw, "large", 0) == end
    except OSError:
        return False
    finally:
        raw.close()


def measure(folder: Path) -> dict[str, object]:
    began = time.monotonic()
    node = NodeProcess.start(data=folder, listen="127.0.0.1:0")
    took = time.monotonic() - began
    try:
        ticks = Path(f"/proc/{node.pid}/stat").read_text().rpartition(")")[2].split()[11:13]
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
        "start_cpu_s": sum(map(int, ticks)) / os.sysconf("SC_CLK_TCK"),
        "stop_s": round(stopped, 2),
        "memory_mb": int(memory) // 1024,
        "descriptors": descriptors,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=["clean", "crash"])
    parser.add_argument("--partitions", type=int, default=10_000)
    parser.add_argument("--gigabytes", type=float, default=None)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--only", choices=("suiro", "kafka"))
    options = parser.parse_args()
    if options.kind == "crash":
        crash(options.gigabytes or 1.0, rounds=options.rounds, only=options.only)
        return
    with tempfile.TemporaryDirectory(prefix="suiro-restart-") as name:
        folder = Path(name)
        gigabytes = int(options.gigabytes or 100)
        segments = make_clean(folder, options.partitions, gigabytes)
        first, second = measure(folder), measure(folder)
        print(json.dumps({"kind": "clean", "segments": segments, "first": first, "second": second}))


def crash(gigabytes: float, *, rounds: int, only: Subject | None) -> None:
    figures = interleaved(lambda side: killed(side, megabytes=gigabytes * 1000), rounds=rounds, settings={}, only=only)
    rows = []
    for work in figures:
        ours, theirs = ours_and_theirs(figures, work)
        rows.append(Row(work=work, unit="s", peer=KAFKA, ours=ours, theirs=theirs, target=1.0, less_is_better=True))
    show(f"{gigabytes:g} GB in the active segment, {rounds} rounds", rows)


if __name__ == "__main__":
    sys.exit(load.run(main))
