"""Tasks are spread evenly over any usual number of shuffle partitions."""

from __future__ import annotations

from collections import Counter

import pytest

from suiro.streams_spark.spread import murmur3, salt_of, salts_expression


def signed(value: int) -> int:
    return value - (1 << 32) if value >> 31 else value


@pytest.mark.parametrize(("number", "hashed"), [(0, 933211791), (1, -559580957), (2, 1765031574), (-1, -1604776387)])
def test_the_hash_is_sparks(number: int, hashed: int) -> None:
    assert signed(murmur3(number, 42)) == hashed


@pytest.mark.parametrize("partitions", [1, 2, 3, 4, 5, 6, 8, 12, 16])
def test_no_partition_has_more_than_its_share(partitions: int) -> None:
    for sub in range(3):
        found = Counter(
            signed(murmur3(salt_of(sub, partition), murmur3(partition, murmur3(sub, 42)))) % partitions
            for partition in range(24)
        )
        assert max(found.values()) == -(-24 // partitions), (sub, found)


def test_the_expression_names_every_bucket() -> None:
    expression = salts_expression([2, 1])
    assert expression == (
        f"coalesce(get(get(array(array({salt_of(0, 0)},{salt_of(0, 1)}),array({salt_of(1, 0)})), sub), bucket), 0)"
    )
