"""The records of a soak: each is made of its key and its number alone, so everybody knows what must be in it. No I/O.

The n-th record of a key (from 0) goes from `source` to `copied` unchanged, and makes a count of its word in `words` and
one of its key in `keys`. In `joined` it stands beside the last count of its key that was in `keys`.
"""

from __future__ import annotations

from zlib import crc32

PARTITIONS = 3
KEYS = tuple(f"k{number}" for number in range(400))
WORDS = 97
SOURCE, COPIED, WORD_COUNTS, KEY_COUNTS, JOINED = "source", "copied", "words", "keys", "joined"
OUTPUTS = (COPIED, WORD_COUNTS, KEY_COUNTS, JOINED)
TOPICS = (SOURCE, *OUTPUTS)


def value_of(key: str, number: int) -> str:
    """Its number, its word, and a filler of 8 to 96 letters."""
    sum_of_it = crc32(f"{key}:{number}".encode())
    return f"{number}:w{sum_of_it % WORDS}:{f'{sum_of_it:08x}' * (1 + sum_of_it % 12)}"


def number_of(value: str) -> int:
    return int(value.partition(":")[0])


def word_of(value: str) -> str:
    return value.split(":", 2)[1]


def joined(value: str, count: int | None) -> str:
    return f"{number_of(value)}:{count or 0}"


def count_of(joined: str) -> int:
    return int(joined.partition(":")[2])


def partition_of(key: str) -> int:
    """Of the source."""
    return int(key[1:]) % PARTITIONS
