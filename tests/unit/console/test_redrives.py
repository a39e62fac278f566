"""The targets of dead letters: which source records were sent already."""

from __future__ import annotations

import tracemalloc
from collections.abc import Collection, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.console import redrives
from suiro.console.dead_letters import DeadLetter, Origin
from suiro.console.records import LogRecord

DONE = 30_000


def record(offset: int, topic: str = "source") -> LogRecord:
    return LogRecord(topic=topic, partition=0, offset=offset, timestamp=offset, key=b"k", value=b"v", headers=())


def of_operator(number: int) -> DeadLetter:
    return DeadLetter(
        record=record(number, "dead"),
        exception="",
        reason="",
        origin=Origin("source", 0, number),
        origin_timestamp=str(number),
        of_operator=True,
        refusal=None,
    )


def test_of_many_sent_records_few_bytes_are_held(monkeypatch: pytest.MonkeyPatch) -> None:
    """Millions took more than a gigabyte of memory."""

    def records_at(client: Any, topic: str, partition: int, offsets: Collection[int]) -> Iterator[Any]:
        return ((offset, record(offset)) for offset in offsets)

    monkeypatch.setattr(redrives, "records_at", records_at)
    info = SimpleNamespace(internal=False, partitions=(None,))
    client: Any = SimpleNamespace(metadata=lambda names: dict.fromkeys(names, info))
    letters: Any = ((of_operator(number), True) for number in range(DONE))
    targets = redrives._Targets(client, letters, by_key=False)
    chosen = ((of_operator(number), None) for number in (DONE - 1, DONE, DONE, 0))
    tracemalloc.start()
    try:
        found = [target for _, _, target in targets.of_each(chosen)]
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()
    place = ("source", 0)
    assert found == [(place, None), (place, record(DONE)), (place, None), (place, None)]
