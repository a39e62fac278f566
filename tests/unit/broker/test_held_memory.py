"""Memory that connections hold for their peers: who is read again when, and who must go."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.broker.net.held_memory import LONGEST_WAIT_NS, LoginMemory, RequestMemory, ResponseMemory


class Turns:
    """An event loop of which only `call_soon` is used."""

    def __init__(self) -> None:
        self.due: list[Callable[[], None]] = []

    def call_soon(self, callback: Callable[[], None]) -> None:
        self.due.append(callback)

    def run(self) -> None:
        while self.due:
            self.due.pop(0)()


class Reader:
    """Takes `wants` bytes when it is read again."""

    def __init__(
        self,
        memory: RequestMemory | LoginMemory,
        wants: int = 0,
        log: list[Reader] | None = None,
        *,
        is_whole: bool = False,
    ) -> None:
        self._memory = memory
        self._wants = wants
        self._log = [] if log is None else log
        self._is_whole = is_whole
        self.is_open = True

    def read_again(self) -> None:
        self._log.append(self)
        self._memory.hold(self, self._wants)

    def has_not_begun(self) -> bool:
        return not self._is_whole

    def close_holder(self) -> None:
        self.is_open = False
        self._memory.forget(self)


def memory_of(loop: Any, *, max_bytes: int = 100, max_holders: int = 10) -> RequestMemory:
    return RequestMemory(loop, max_bytes=max_bytes, max_holders=max_holders)


def test_readers_go_on_in_their_order_as_far_as_there_is_memory() -> None:
    turns = Turns()
    log: list[Reader] = []
    memory = memory_of(turns)
    full = Reader(memory)
    memory.hold(full, 120)
    readers = [Reader(memory, 60, log) for _ in range(4)]
    for reader in readers:
        memory.wait(reader, 0)
    memory.forget(readers[1])
    turns.run()
    assert log == []
    memory.hold(full, 0)
    turns.run()
    assert log == [readers[0], readers[2]]
    assert memory.exhausted
    memory.hold(readers[0], 0)
    turns.run()
    assert log[2:] == [readers[3]]


def test_many_readers_go_on_a_few_a_turn() -> None:
    turns = Turns()
    log: list[Reader] = []
    memory = memory_of(turns)
    full = Reader(memory)
    memory.hold(full, 100)
    for _ in range(100):
        memory.wait(Reader(memory, 0, log), 0)
    memory.hold(full, 0)
    turns.due.pop(0)()
    assert 0 < len(log) < 100
    turns.run()
    assert len(log) == 100


def test_requests_behind_others_get_half_of_the_memory_and_only_so_many_connections() -> None:
    memory = memory_of(Turns(), max_holders=2)
    first, second = Reader(memory), Reader(memory)
    memory.hold(first, 49)
    assert memory.may_read_ahead
    memory.hold(first, 50)
    assert not memory.may_read_ahead
    memory.hold(first, 10)
    memory.hold(second, 1)
    assert not memory.may_read_ahead, "two connections hold requests"
    memory.forget(second)
    assert memory.may_read_ahead
    assert memory.used == 10


def test_requests_that_are_never_whole_hold_nobody_up_for_long() -> None:
    """The largest go, and no more of them than is needed; who waits for an answer stays."""
    turns = Turns()
    log: list[Reader] = []
    memory = memory_of(turns)
    small, large = Reader(memory), Reader(memory)
    answered = Reader(memory, is_whole=True)
    for reader, size in ((small, 10), (answered, 50), (large, 40)):
        memory.hold(reader, size)
    new = Reader(memory, 5, log)
    memory.end_standstill(LONGEST_WAIT_NS)
    memory.wait(new, 7)
    memory.end_standstill(6 + LONGEST_WAIT_NS)
    assert large.is_open
    memory.end_standstill(7 + LONGEST_WAIT_NS)
    assert [reader.is_open for reader in (small, answered, large)] == [True, True, False]
    turns.run()
    assert log == [new]
    assert memory.used == 65


def test_of_those_who_have_not_logged_in_the_one_that_holds_the_most_goes() -> None:
    memory = LoginMemory(max_bytes=100)
    half_sent = [Reader(memory) for _ in range(4)]
    for reader, size in zip(half_sent, (30, 40, 20, 10), strict=True):
        memory.hold(reader, size)
    new = Reader(memory)
    memory.hold(new, 15)
    assert [reader.is_open for reader in (*half_sent, new)] == [True, False, True, True, True]
    assert memory.used == 75
    memory.hold(new, 100)
    assert not new.is_open
    for reader in half_sent:
        memory.forget(reader)
    assert memory.used == 0


class Writer:
    def __init__(self, memory: ResponseMemory) -> None:
        self._memory = memory
        self.is_open = True

    def close_slow(self) -> None:
        self.is_open = False
        self._memory.release(self)


def test_who_took_nothing_for_the_longest_goes_first() -> None:
    memory = ResponseMemory(max_bytes=100, are_too_many=lambda files: files > 10)
    first, second, third = (Writer(memory) for _ in range(3))
    memory.hold(first, 40, 0)
    memory.hold(second, 40, 0)
    memory.hold(first, 30, 0)  # it has taken ten
    assert (memory.used, memory.holders) == (70, 2)
    memory.hold(third, 50, 0)
    assert [writer.is_open for writer in (first, second, third)] == [True, False, True]
    assert (memory.used, memory.holders) == (80, 2)


def test_who_holds_nothing_stays() -> None:
    """A slow consumer's records are on the disk: its connection would go, and no memory with it."""
    memory = ResponseMemory(max_bytes=100, are_too_many=lambda files: files > 10)
    consumer, slow, third = (Writer(memory) for _ in range(3))
    memory.hold(consumer, 0, 0)
    memory.hold(slow, 60, 0)
    memory.hold(third, 60, 0)
    assert [writer.is_open for writer in (consumer, slow, third)] == [True, False, True]


def test_an_answer_larger_than_all_memory_costs_everybody_who_is_slow() -> None:
    memory = ResponseMemory(max_bytes=100, are_too_many=lambda files: files > 10)
    slow, large = Writer(memory), Writer(memory)
    memory.hold(slow, 10, 0)
    memory.hold(large, 200, 0)
    assert not slow.is_open
    assert not large.is_open
    assert (memory.used, memory.holders) == (0, 0)
    memory.release(large)
    assert memory.used == 0


def test_files_that_wait_have_a_limit_and_who_took_something_last_stays() -> None:
    """Nobody else could open a file, and nothing could be written."""
    memory = ResponseMemory(max_bytes=100, are_too_many=lambda files: files > 10)
    large, slow, third = (Writer(memory) for _ in range(3))
    memory.hold(large, 0, 12)
    assert large.is_open
    memory.hold(slow, 50, 0)
    memory.hold(third, 0, 5)
    assert [writer.is_open for writer in (large, slow, third)] == [False, True, True]
    assert (memory.used, memory.files) == (50, 5)
    looks: list[int] = []
    memory._are_too_many = lambda files: looks.append(files) or False
    memory.hold(third, 0, 4)  # It has taken some: to look would cost more than this.
    assert not looks
    memory.release(third)
    assert memory.files == 0
