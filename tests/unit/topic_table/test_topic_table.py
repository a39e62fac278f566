"""A topic folded into a state: when callers see it, and what happens when the topic cannot be read."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from typing import Any, cast
from uuid import UUID

import pytest

from suiro.client import EARLIEST, Client, Fetched, ListedOffset, PartitionInfo, TopicInfo
from suiro.errors import CorruptRecordError, DeadlineExceededError, OffsetOutOfRangeError
from suiro.topic_table import TopicTable
from suiro.topic_table import table as module

TOPIC = "table"
SOON_MS = 20_000

Rows = dict[str, str]


class Log:
    """A topic of one partition in memory: lines `key=value`, or None where compaction has removed one."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.lines: list[str | None] = []
        self.start = 0
        self.given = 1 << 30  # up to which offset a fetch answers
        self.error: Exception | None = None
        self.exists = True
        self.topic_id = UUID(int=1)
        self.is_abandoned = False
        self.fetched_from: list[int] = []

    def write(self, *lines: str | None) -> int:
        with self.changed:
            self.lines += lines
            self.changed.notify_all()
            return len(self.lines)

    def set(self, **values: Any) -> None:
        with self.changed:
            for name, value in values.items():
                setattr(self, name, value)
            self.changed.notify_all()

    # -- what a table asks of a `Client` ----------------------------------------------------------------------

    def __enter__(self) -> Client:
        return cast("Client", self)

    def __exit__(self, *exc_info: object) -> None:
        pass

    def abandon(self) -> None:
        self.set(is_abandoned=True)

    def metadata(self, topics: list[str]) -> dict[str, TopicInfo]:
        partitions = (PartitionInfo(partition=0, leader=0, leader_epoch=0),)
        info = TopicInfo(name=TOPIC, topic_id=self.topic_id, internal=False, partitions=partitions)
        return {TOPIC: info} if self.exists else {}

    def list_offsets(self, wanted: Mapping[tuple[str, int], int], **_: Any) -> dict[Any, ListedOffset]:
        ((place, at),) = wanted.items()
        offset = self.start if at == EARLIEST else len(self.lines)
        return {place: ListedOffset(offset=offset, timestamp=-1, leader_epoch=-1)}

    def fetch(self, wanted: Mapping[tuple[str, int], int], **_: Any) -> dict[Any, Fetched]:
        ((place, at),) = wanted.items()
        with self.changed:
            self.fetched_from.append(at)
            self.changed.notify_all()
            self.changed.wait_for(
                lambda: min(self.given, len(self.lines)) != at or self.is_abandoned or self.error,
                timeout=0.05,
            )
            if self.is_abandoned:
                raise DeadlineExceededError("abandoned")
            if self.error is not None:
                raise self.error
            if not self.start <= at <= len(self.lines):
                raise OffsetOutOfRangeError(TOPIC, 0, at, self.start, len(self.lines))
            part = self.lines[at : max(at, self.given)]
            text = "".join(f"{at + n}:{line}\n" for n, line in enumerate(part) if line is not None)
            end = len(self.lines)
            data = memoryview(text.encode())
        return {
            place: Fetched(
                data=data, aborted=(), high_watermark=end, last_stable_offset=end, log_start_offset=self.start
            )
        }


def decode(fetched: Fetched, position: int) -> tuple[list[str], int]:
    numbered = [line.split(":", 1) for line in bytes(fetched.data).decode().splitlines()]
    return [line for _, line in numbered], int(numbered[-1][0]) + 1


def apply(rows: Rows, partition: int, lines: list[str]) -> None:
    for line in lines:
        if line == "damaged":
            raise CorruptRecordError("a line is damaged")
        key, value = line.split("=")
        rows[key] = value


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def follow(log: Log) -> Iterator[Callable[..., TopicTable[Rows, list[str]]]]:
    tables: list[TopicTable[Rows, list[str]]] = []

    def start(**options: Any) -> TopicTable[Rows, list[str]]:
        table = TopicTable(
            TOPIC,
            new_client=lambda: cast("Client", log),
            new_state=dict,
            decode=decode,
            apply=apply,
            name="table",
            **options,
        )
        tables.append(table)
        table.start()
        return table

    yield start
    for table in tables:
        table.stop()


Follow = Callable[..., TopicTable[Rows, list[str]]]


def test_nothing_is_seen_before_the_end_is_reached(log: Log, follow: Follow) -> None:
    end = log.write("a=1", "b=1", "a=2")
    log.set(given=2)
    table = follow()
    assert table.wait(lambda: table.positions == {0: 2}, SOON_MS)
    assert not table.is_current
    assert table.state == {}
    assert not table.wait(lambda: table.has_read({0: 2}), 1)
    log.set(given=1 << 30)
    assert table.wait(lambda: table.has_read({0: end}), SOON_MS)
    assert table.state == {"a": "2", "b": "1"}


def test_what_is_written_later_is_read(log: Log, follow: Follow) -> None:
    told: list[int] = []
    table = follow(on_change=lambda: told.append(1))
    assert table.wait(lambda: table.is_current, SOON_MS)
    end = log.write("a=1")
    assert table.wait(lambda: table.has_read({0: end}) and len(told) == 2, SOON_MS)
    assert table.state == {"a": "1"}


def test_an_end_that_compaction_has_emptied_is_reached(log: Log, follow: Follow) -> None:
    end = log.write("a=1", None, None)
    table = follow()
    assert table.wait(lambda: table.has_read({0: end}), SOON_MS)


@pytest.mark.parametrize("drops", [False, True])
def test_a_topic_that_was_made_again(log: Log, follow: Follow, drops: bool) -> None:
    log.write("a=1", "b=1")
    table = follow(drop_on_reload=drops)
    assert table.wait(lambda: table.has_read({0: 2}), SOON_MS)
    log.set(exists=False, lines=[])
    assert table.wait(lambda: not table.is_current, SOON_MS)
    assert table.state == ({} if drops else {"a": "1", "b": "1"})
    log.set(exists=True)
    end = log.write("c=1")
    assert table.wait(lambda: table.has_read({0: end}), SOON_MS)
    assert table.state == {"c": "1"}


@pytest.mark.parametrize("drops", [False, True])
def test_a_topic_that_was_made_again_and_is_longer_at_once(
    log: Log, follow: Follow, monkeypatch: pytest.MonkeyPatch, drops: bool
) -> None:
    """No offset is out of range."""
    monkeypatch.setattr(module, "LOOK_S", 0.0)
    log.write("a=1", "b=1")
    table = follow(drop_on_reload=drops)
    assert table.wait(lambda: table.has_read({0: 2}), SOON_MS)
    log.set(topic_id=UUID(int=2), lines=["c=1", "d=1", "e=1"])
    assert table.wait(lambda: table.has_read({0: 3}) and "a" not in table.state, SOON_MS)
    assert table.state == {"c": "1", "d": "1", "e": "1"}


def test_a_transient_error_is_passed(log: Log, follow: Follow) -> None:
    log.write("a=1")
    log.set(error=DeadlineExceededError("no broker"))
    table = follow()
    with log.changed:
        assert log.changed.wait_for(lambda: len(log.fetched_from) >= 2, SOON_MS / 1000)
    log.set(error=None)
    assert table.wait(lambda: table.has_read({0: 1}), SOON_MS)
    assert log.fetched_from[0] == log.fetched_from[1] == 0


def test_a_damaged_record_is_not_passed_over(log: Log, follow: Follow) -> None:
    log.write("a=1", "damaged", "b=1")
    table = follow()
    with log.changed:
        assert log.changed.wait_for(lambda: len(log.fetched_from) >= 2, SOON_MS / 1000)
    assert not table.is_current
    assert set(log.fetched_from) == {0}


def test_a_table_that_does_not_retry_ends_with_its_failure(log: Log, follow: Follow) -> None:
    log.write("a=1")
    table = follow(retry_errors=False)
    assert table.wait(lambda: table.has_read({0: 1}), SOON_MS)
    log.write("damaged")
    assert not table.wait(lambda: table.has_read({0: 2}), SOON_MS)
    assert isinstance(table.failure, CorruptRecordError)
    assert table.state == {}
    assert not table.is_current


def test_a_state_that_is_refused_is_not_seen(log: Log, follow: Follow) -> None:
    judged: list[Rows] = []

    def validate(rows: Rows) -> None:
        judged.append(dict(rows))
        if "forged" in rows:
            raise ValueError("forged")

    log.write("a=1")
    table = follow(validate=validate, rejections=(ValueError,))
    assert table.wait(lambda: table.has_read({0: 1}), SOON_MS)
    log.set(start=2, lines=[None, None, "forged=1", "b=1"])  # its start has moved past the reader
    assert table.wait(lambda: len(judged) == 2, SOON_MS)
    assert not table.wait(lambda: table.is_current, 1)
    assert table.state == {"a": "1"}


def test_whoever_waits_is_woken_by_stop(log: Log, follow: Follow) -> None:
    table = follow()
    assert table.wait(lambda: table.is_current, SOON_MS)
    stopper = threading.Thread(target=table.stop)
    stopper.start()
    assert not table.wait(lambda: table.has_read({0: 1}), SOON_MS)
    stopper.join()
