"""Where a group or a transactional id lives, as Apache Kafka 4.3.1 computes it."""

from __future__ import annotations

import pytest

from suiro.broker import system_log


@pytest.mark.parametrize(
    ("key", "partition"),
    [
        ("group", 47),
        ("a-transactional-id", 27),  # its hash is negative, as the next two are
        ("my-consumer-group-1", 7),
        ("polygenelubricants", 0),  # the least int there is
        ("naïve", 25),
        ("水路", 35),
        ("😀", 49),  # two chars in Java
        ("", 0),
    ],
)
def test_the_partition_is_kafkas(key: str, partition: int) -> None:
    assert system_log.partition_for(key, 50) == partition
