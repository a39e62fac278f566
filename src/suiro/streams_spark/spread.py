"""Distributes tasks evenly over Spark's shuffle partitions. Hashing alone would put three of four into one.

Spark hashes the columns that it groups by. A third one beside sub-topology and task, the salt, is chosen so that the
hash falls where the task should be, for any number of partitions that divides `MODULUS`. A salt depends on nothing
but its task: state is kept by it, over restarts on machines of other sizes too.
"""

from __future__ import annotations

from functools import cache
from itertools import count

MODULUS = 240
_SEED = 42
_MASK = 0xFFFFFFFF


@cache
def salt_of(sub: int, partition: int) -> int:
    """Tasks of one sub-topology follow each other; where they begin differs between sub-topologies."""
    before = murmur3(partition, murmur3(sub, _SEED))
    wanted = (partition + sub) % MODULUS
    return next(salt for salt in count() if _signed(murmur3(salt, before)) % MODULUS == wanted)


def salts_expression(widths: list[int]) -> str:
    """SQL over the columns sub and bucket (the task's partition).

    The names are those of the checkpoint. `widths`: the tasks of each sub-topology; other rows have salt 0."""
    rows = [f"array({','.join(str(salt_of(sub, b)) for b in range(width))})" for sub, width in enumerate(widths)]
    return f"coalesce(get(get(array({','.join(rows)}), sub), bucket), 0)"


def murmur3(number: int, seed: int) -> int:
    """`Murmur3_x86_32.hashInt`, as Spark's `hash` uses it; unsigned."""
    k = (number & _MASK) * 0xCC9E2D51 & _MASK
    k = _rotated(k, 15) * 0x1B873593 & _MASK
    h = (_rotated(seed ^ k, 13) * 5 + 0xE6546B64) & _MASK
    h ^= 4
    h = (h ^ h >> 16) * 0x85EBCA6B & _MASK
    h = (h ^ h >> 13) * 0xC2B2AE35 & _MASK
    return h ^ h >> 16


def _rotated(value: int, bits: int) -> int:
    return (value << bits | value >> 32 - bits) & _MASK


def _signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value
