"""One stream for several readers, on threads of their own."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from suiro.console.web.streams import KEPT, SharedStreams

READERS = 8
LAST = 2_000


def test_each_part_is_made_once_and_comes_in_order() -> None:
    streams: SharedStreams[int] = SharedStreams()
    making = threading.Lock()
    made: list[int] = []
    all_here = threading.Barrier(READERS)

    def parts() -> Iterator[int]:
        for number in range(LAST):
            assert making.acquire(blocking=False)  # never by two at once
            made.append(number)
            making.release()
            yield number

    def read() -> list[list[int]]:
        mine = streams.follow("key", parts())
        assert not next(mine)
        all_here.wait(60)
        return list(map(list, mine))

    with ThreadPoolExecutor(READERS) as threads:
        found = [one.result() for one in [threads.submit(read) for _ in range(READERS)]]
    assert made == list(range(LAST))
    for of_reader in found:
        numbers = [number for parts_ in of_reader for number in parts_]
        assert numbers == sorted(set(numbers))
        assert max(map(len, of_reader)) <= KEPT
        assert numbers[-1] == LAST - 1
    assert not streams._streams


def test_parts_are_held_for_readers_that_are_behind() -> None:
    """The last eight were held, each of up to 9 MB, although nobody was."""
    streams: SharedStreams[int] = SharedStreams()
    reader, slow = (streams.follow("key", iter(range(20))) for _ in range(2))
    next(reader)
    assert [next(reader) for _ in range(5)] == [[number] for number in range(5)]
    (stream,) = streams._streams.values()
    assert sum(map(len, stream.waiting.values())) == 0
    next(slow)
    assert [next(reader) for _ in range(10)] == [[number] for number in range(5, 15)]
    assert sum(map(len, stream.waiting.values())) == KEPT
    assert next(slow) == list(range(15 - KEPT, 15))


def test_an_error_reaches_one_reader_and_the_next_begins_anew() -> None:
    streams: SharedStreams[int] = SharedStreams()

    def failing() -> Iterator[int]:
        yield 1
        raise ValueError("broken")

    first, second = streams.follow("key", failing()), streams.follow("key", iter([7]))
    assert not [*next(first), *next(second)]
    assert next(first) == [1]
    assert next(second) == [1]
    with pytest.raises(ValueError, match="broken"):
        next(second)
    assert next(first, None) is None
    assert list(streams.follow("key", iter([7]))) == [(), [7]]
