"""How fast a log is compacted: one partition of small records, cleaned in this process as the node's child does it.

    python benchmarks/compaction.py [--megabytes 1000] [--keys 500000] [--codec none|gzip|snappy|lz4|zstd]

Prints one JSON line. `megabytes_per_s` is dirty log per second of both passes, `records_per_s` likewise.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import resource
import tempfile
import time
import uuid
from pathlib import Path

from suiro.clock import SystemClock
from suiro.log import Cleaned, CleanerSettings, LogConfig, PartitionLog, dirtiness
from suiro.protocol.compression import codec_id
from suiro.protocol.records import Record, encode_batch

RECORDS_A_BATCH = 150  # of 100 bytes: 16 KB, Kafka's batch.size


def written(folder: Path, megabytes: int, keys: int, codec: str) -> tuple[PartitionLog, int]:
    clock = SystemClock()
    log = PartitionLog.open(
        folder,
        topic="table",
        partition=0,
        topic_id=uuid.uuid4(),
        config=LogConfig(cleanup_policy=("compact",), segment_bytes=256 << 20),
        clock=clock,
        clean_shutdown=True,
    )
    chance = random.Random(1)
    now = clock.wall_ms()
    batches = [
        encode_batch(
            [
                Record(offset=i, timestamp=now, key=b"%016d" % chance.randrange(keys), value=os.urandom(75))
                for i in range(RECORDS_A_BATCH)
            ],
            compression=codec_id(codec),
        )
        for _ in range(4 * keys // RECORDS_A_BATCH // 10 + 1)
    ]
    records = 0
    while records * 100 < megabytes * 1_000_000:
        log.append(chance.choice(batches))
        records += RECORDS_A_BATCH
    log.roll()
    return log, records


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--megabytes", type=int, default=1000, help="of records, 100 bytes each")
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--codec", default="none")
    options = parser.parse_args()
    from suiro.log.cleaning import clean

    with tempfile.TemporaryDirectory(prefix="suiro-compaction-") as name:
        log, records = written(Path(name) / "table-0", options.megabytes, options.keys, options.codec)
        size = log.size
        began = time.monotonic()
        todo = dirtiness(log.compaction_facts(), log.config, checkpoint=None, now_ms=SystemClock().wall_ms())
        done = None
        for done in clean(log.begin_cleaning(todo, CleanerSettings())):
            if not isinstance(done, Cleaned):
                log.replace_segments(done.bases)
        took = time.monotonic() - began
        assert isinstance(done, Cleaned)
        print(
            json.dumps(
                {
                    "codec": options.codec,
                    "records": records,
                    "log_mb": round(size / 1e6),
                    "seconds": round(took, 2),
                    "megabytes_per_s": round(size / 1e6 / took),
                    "records_per_s": round(records / took),
                    "records_kept": done.records_kept,
                    "left_mb": round(log.size / 1e6),
                    "peak_memory_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024,
                }
            )
        )


if __name__ == "__main__":
    main()
