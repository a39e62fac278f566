"""How fast a log is compacted, by the node and by Apache Kafka: one partition of small records, one cleaner thread.

    python benchmarks/compaction.py [--rounds 3] [--megabytes 1000] [--keys 500000] [--codec none] [--only suiro|kafka]

The log is written with `cleanup.policy=delete`; then the policy is altered to `compact`, and the time runs until the
cleaner has noted in `cleaner-offset-checkpoint` that it is through. What counts is dirty log per second of both
passes, reading the keys and copying what stays.
"""

from __future__ import annotations

import argparse
import random
import sys

import load
from sides import KAFKA, Raw, Side, batch, create_topic, end_offset, fill, interleaved, ours_and_theirs, until
from table import Row, show

from suiro.protocol.compression import codec_id
from suiro.protocol.messages import API_KEYS, nested, request_class

TOPIC = "table"
RECORD_BYTES = 100
RECORDS_A_BATCH = 150  # 16 KB, Kafka's batch.size
SETTINGS = {"log.cleaner.backoff.ms": "50"}


def compact(raw: Raw) -> None:
    kind = request_class(API_KEYS["incremental_alter_configs"], 1)
    config = nested(kind, "AlterableConfig")(name="cleanup.policy", config_operation=0, value="compact")
    resource = nested(kind, "AlterConfigsResource")(resource_type=2, resource_name=TOPIC, configs=(config,))
    (answer,) = raw.call(kind(resources=(resource,), validate_only=False)).responses
    if answer.error_code != 0:
        raise RuntimeError(f"cannot make {TOPIC} a compacted topic: {answer.error_message}")


def cleaned_up_to(side: Side) -> int:
    try:
        text = (side.data / "cleaner-offset-checkpoint").read_text()
    except FileNotFoundError:
        return 0
    found = [line.split() for line in text.splitlines() if line.startswith(f"{TOPIC} 0 ")]
    return int(found[0][2]) if found else 0


def measure(side: Side, *, megabytes: float, keys: int, codec: str, segment_bytes: int) -> dict[str, float]:
    raw = Raw(side.bootstrap_servers)
    create_topic(
        raw,
        TOPIC,
        1,
        {
            "cleanup.policy": "delete",
            "segment.bytes": str(segment_bytes),
            "min.cleanable.dirty.ratio": "0.01",
        },
    )
    chance = random.Random(1)
    batches = [
        batch(
            RECORDS_A_BATCH,
            RECORD_BYTES,
            keys=[chance.randrange(keys) for _ in range(RECORDS_A_BATCH)],
            compression=codec_id(codec),
        )
        for _ in range(4 * keys // RECORDS_A_BATCH // 10 + 1)
    ]
    fill(raw, TOPIC, batches, megabytes=megabytes)
    logs = sorted((side.data / f"{TOPIC}-0").glob("*.log"))
    active = int(logs[-1].stem)  # is not compacted
    dirty = sum(path.stat().st_size for path in logs[:-1])
    records = end_offset(raw, TOPIC, 0)
    compact(raw)
    took = until(lambda: cleaned_up_to(side) >= active, within_s=600)
    raw.close()
    return {"log": dirty / 1e6 / took, "records": records * dirty / (dirty + logs[-1].stat().st_size) / took}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--megabytes", type=float, default=1000, help="of records, 100 bytes each")
    parser.add_argument("--keys", type=int, default=500_000)
    parser.add_argument("--codec", default="none", choices=("none", "gzip", "snappy", "lz4", "zstd"))
    parser.add_argument("--only", choices=("suiro", "kafka"))
    options = parser.parse_args()
    figures = interleaved(
        lambda side: measure(
            side,
            megabytes=options.megabytes,
            keys=options.keys,
            codec=options.codec,
            segment_bytes=int(options.megabytes * 1_000_000 / 8),
        ),
        rounds=options.rounds,
        settings=SETTINGS,
        only=options.only,
    )
    rows = []
    for work, unit in (("log", "MB/s"), ("records", "records/s")):
        ours, theirs = ours_and_theirs(figures, work)
        rows.append(Row(work=f"compacted {work}", unit=unit, peer=KAFKA, ours=ours, theirs=theirs, target=1.0))
    show(
        f"compaction of {options.megabytes:g} MB, codec {options.codec}, {options.keys:,} keys, "
        f"{options.rounds} rounds",
        rows,
    )


if __name__ == "__main__":
    sys.exit(load.run(main))
