"""Java's hash codes: the partition of a coordinator's record, and the order in which Java walks through a hash map.

Kafka's assignors walk through hash maps of member ids and topic ids, so who gets the first partition depends on
Java's hash codes. An assignment that is equal to Kafka's has to go the same way round.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import TypeVar
from uuid import UUID

T = TypeVar("T")

_MASK = 0xFFFFFFFF
_SMALLEST_TABLE = 16


def string_hash(text: str) -> int:
    """Java's `String.hashCode`, unsigned."""
    value = 0
    encoded = text.encode("utf-16-be", "surrogatepass")
    for high, low in zip(encoded[::2], encoded[1::2], strict=True):
        value = (31 * value + (high << 8 | low)) & _MASK
    return value


def partition_for(key: str, count: int) -> int:
    """The coordinator partition that Kafka chooses for a key: the absolute value of its hash code modulo the count."""
    value = string_hash(key)
    if value == 0x80000000:  # the least of Java's ints, whose absolute value is no int: Kafka takes 0
        return 0
    return min(value, 0x1_0000_0000 - value) % count


def uuid_hash(value: UUID) -> int:
    """The hash code of Kafka's `Uuid`."""
    mixed = (value.int >> 64) ^ (value.int & (2**64 - 1))
    return (mixed >> 32 ^ mixed) & _MASK


def uuid_order(value: UUID) -> tuple[int, int]:
    """Sorts as Kafka's `Uuid` does: by its two halves as signed numbers."""
    return _signed(value.int >> 64), _signed(value.int & (2**64 - 1))


def _signed(half: int) -> int:
    return half - 2**64 if half >= 2**63 else half


def hash_order(keys: Iterable[T], hash_of: Callable[[T], int]) -> list[T]:
    """The keys as a `HashMap` that they were put into one by one gives them."""
    listed = list(keys)
    size = _SMALLEST_TABLE
    while len(listed) > size * 3 // 4:
        size *= 2
    return _by_bucket(listed, hash_of, size)


def copied_hash_order(keys: Collection[T], hash_of: Callable[[T], int]) -> list[T]:
    """The keys as a `HashSet` that was made of a collection gives them: its table may be larger."""
    wanted = max(int(len(keys) / 0.75) + 1, _SMALLEST_TABLE)
    return _by_bucket(list(keys), hash_of, 1 << (wanted - 1).bit_length())


def _by_bucket(keys: list[T], hash_of: Callable[[T], int], size: int) -> list[T]:
    def bucket(key: T) -> int:
        value = hash_of(key)
        return (value ^ value >> 16) & (size - 1)

    return sorted(keys, key=bucket)
