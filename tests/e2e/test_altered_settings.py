"""Settings that are altered while a node runs do what they say from then on."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest
import uvloop
from support.admin import ask
from support.waiting import wait_until
from support.wire import Wire

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
        running.call(lambda: running.broker.replace_settings({"log.cleaner.backoff.ms": HOUR_MS}, layer="broker"))
        before = len(looks)
        running.call(lambda: running.broker.replace_settings({"log.retention.ms": "8000"}, layer="broker"))
        assert len(looks) <= before + 1


def test_at_its_lowest_level_the_consumer_protocol_is_off() -> None:
    """As in Kafka. The level was taken, and had no effect."""
    with InProcessNode.start() as node, Wire(node.bootstrap_servers) as wire:

        def answers(level: int, upgrade_type: int) -> tuple[str, str]:
            update = {"feature": "group.version", "max_version_level": level, "upgrade_type": upgrade_type}
            assert ask(wire, "update_features", 2, feature_updates=[update])["error_code"] == "none"
            heartbeat = ask(
                wire,
                "consumer_group_heartbeat",
                1,
                group_id="g",
                member_id="m",
                rebalance_timeout=60_000,
                subscribed_topic_names=[],
                topic_partitions=[],
            )
            (described,) = ask(wire, "consumer_group_describe", 1, group_ids=["g"])["groups"]
            return heartbeat["error_code"], described["error_code"]

        assert answers(0, 2) == ("unsupported_version", "unsupported_version")
        assert answers(1, 1) == ("none", "none")


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
