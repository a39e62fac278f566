"""Settings that are altered while a node runs do what they say from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from support.waiting import wait_until

from suiro.broker.storage.cleaner import Cleaner
from suiro.broker.storage.workers import Workers
from suiro.node import InProcessNode

HOUR_MS = "3600000"


def test_a_shorter_wait_of_the_cleaner_holds_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    looks: list[int] = []
    monkeypatch.setattr(Cleaner, "check", lambda self: looks.append(1))
    with InProcessNode.start(settings={"log.cleaner.backoff.ms": HOUR_MS}) as running:
        running.call(lambda: running.broker.replace_settings({"log.retention.ms": "7000"}, layer="broker"))
        assert not looks
        running.call(lambda: running.broker.replace_settings({"log.cleaner.backoff.ms": "0"}, layer="broker"))
        wait_until(lambda: len(looks) > 3)
        running.call(
            lambda: running.broker.replace_settings({"log.cleaner.backoff.ms": HOUR_MS}, layer="broker")
        )
        before = len(looks)
        running.call(lambda: running.broker.replace_settings({"log.retention.ms": "8000"}, layer="broker"))
        assert len(looks) <= before + 1


def test_workers_become_more_and_fewer() -> None:
    """Each call waits until all of its kind run at the same time."""
    loop = uvloop.new_event_loop()
    workers = Workers(loop, name="resized", count=1)

    def at_the_same_time(number: int) -> list[int]:
        together = threading.Barrier(number, timeout=30)
        call: Callable[[], int] = together.wait

        async def run() -> list[Any]:
            tasks = [loop.create_task(workers.run(call)) for _ in range(number)]
            return [await task for task in tasks]

        return sorted(loop.run_until_complete(run()))

    def threads() -> int:
        return sum(thread.name.startswith("resized") for thread in threading.enumerate())

    try:
        assert at_the_same_time(1) == [0]
        workers.resize(3)
        assert at_the_same_time(3) == [0, 1, 2]
        assert threads() == 3
        workers.resize(1)
        wait_until(lambda: threads() == 1)
        assert at_the_same_time(1) == [0]
        workers.resize(2)
        assert at_the_same_time(2) == [0, 1]
    finally:
        workers.close()
        wait_until(lambda: threads() == 0)
        loop.close()
