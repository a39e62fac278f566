"""Records per second of the columnar codec on one core, with the plain one beside it.

    python benchmarks/codec.py [--records 1000000]

Encode: key + value columns into batches for four partitions. Decode: such batches back into columns, CRC
unchecked as the source does it. Best of five.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable

import load
import numpy as np
import pyarrow as pa

from suiro.protocol import columnar, compression, record_batch, records


def best(work: Callable[[], object], *, times: int = 5) -> float:
    """CPU seconds of the fastest run: the work is one thread, and other processes may hold the core."""
    fastest = float("inf")
    for _ in range(times):
        start = time.process_time()
        work()
        fastest = min(fastest, time.process_time() - start)
    return fastest


def in_log(batches: list[columnar.EncodedBatch], partition: int) -> bytes:
    """One partition's batches with the offsets that a log would give them."""
    log = bytearray()
    offset = 0
    for batch in batches:
        if batch.partition == partition:
            placed = bytearray(batch.data)
            record_batch.patch_offset(placed, 0, offset, 0)
            offset += batch.count
            log += placed
    return bytes(log)


def measure(count: int, value_size: int, codec: int) -> None:
    noise = np.random.default_rng(1).integers(97, 123, count * value_size, dtype=np.uint8)
    offsets = np.arange(0, count * value_size + 1, value_size, dtype=np.int32)
    values = pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(offsets), pa.py_buffer(noise)])
    keys = pa.array([b"key-%08d" % number for number in range(count)], pa.binary())
    timestamps = np.arange(count, dtype=np.int64) + 1_700_000_000_000

    def encode() -> list[columnar.EncodedBatch]:
        partitions = columnar.partitions_of(keys, 4)
        return columnar.encode(
            keys=keys,
            values=values,
            timestamps=timestamps,
            partitions=partitions,
            num_partitions=4,
            compression=codec,
        )

    logs = [in_log(encode(), partition) for partition in range(4)]

    def decode() -> int:
        return sum(columnar.decode(log, start_offset=0, end_offset=1 << 62).batch.num_rows for log in logs)

    assert decode() == count
    few = min(count, 20_000)
    plain = [
        records.Record(offset=at, timestamp=int(timestamps[at]), key=keys[at].as_py(), value=values[at].as_py())
        for at in range(few)
    ]
    plain_batch = records.encode_batch(plain, compression=codec)
    name = compression.codec_name(codec)
    for direction, work, slow in (
        ("encode", encode, lambda: records.encode_batch(plain, compression=codec)),
        ("decode", decode, lambda: records.decode_batch(plain_batch)),
    ):
        rate = count / best(work)
        plain_rate = few / best(slow, times=2)
        print(
            f"{direction}  {value_size:5d} B  {name:7s} {rate / 1e6:7.2f} M rec/s"
            f"  {rate * value_size / 1e9:6.2f} GB/s   plain Python {plain_rate / 1e3:6.0f} k rec/s"
            f"  ({rate / plain_rate:.0f} x)"
        )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--records", type=int, default=1_000_000)
    count = parser.parse_args().records
    for value_size, records_of_size in ((100, count), (1024, count // 5)):
        for codec in (compression.NONE, compression.LZ4, compression.ZSTD):
            measure(records_of_size, value_size, codec)


if __name__ == "__main__":
    sys.exit(load.run(main))
