"""Kafka's murmur2, by which the Java clients choose the partition of a key. librdkafka has CRC32 as its default.

This is the plain version, one key at a time; `columnar.partitions_of` is the compiled one.
"""

from __future__ import annotations

_SEED = 0x9747B28C
_M = 0x5BD1E995
_MASK = 0xFFFFFFFF


def murmur2(key: bytes) -> int:
    """The hash as a signed 32-bit int (`org.apache.kafka.common.utils.Utils.murmur2`)."""
    length = len(key)
    h = _SEED ^ length
    whole = length & ~3
    for at in range(0, whole, 4):
        k = (int.from_bytes(key[at : at + 4], "little") * _M) & _MASK
        k ^= k >> 24
        h = ((h * _M) ^ (k * _M)) & _MASK
    if length & 3:
        h = ((h ^ int.from_bytes(key[whole:], "little")) * _M) & _MASK
    h ^= h >> 13
    h = (h * _M) & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h & (1 << 31) else h


def partition_for_key(key: bytes, num_partitions: int) -> int:
    """The partition that Kafka's default partitioner gives a key that is not null."""
    return (murmur2(key) & 0x7FFFFFFF) % num_partitions
