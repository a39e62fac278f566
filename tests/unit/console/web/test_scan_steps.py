"""A search ends within a step of its reader's going, also where there is nothing to show."""

from __future__ import annotations

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest

from suiro.client import EARLIEST, Fetched, ListedOffset, PartitionInfo, TopicInfo
from suiro.clock import ManualClock
from suiro.console.web import Masks
from suiro.console.web.api import records
from suiro.console.web.api.records import _Scan
from suiro.console.web.endpoint import Call
from suiro.foundation.http import Role
from suiro.protocol.records import control_batch

MARKERS = 100
FETCH_MS = 50


class Markers:
    """A partition of ends of transactions, one a fetch."""

    def __init__(self, clock: ManualClock) -> None:
        self._clock = clock

    def metadata(self, topics: Any = None) -> dict[str, TopicInfo]:
        partitions = (PartitionInfo(partition=0, leader=1, leader_epoch=0),)
        return {"t": TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)}

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else MARKERS, timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        self._clock.advance(FETCH_MS)
        ((place, at),) = offsets.items()
        data = control_batch(
            commit=False, producer_id=7, producer_epoch=0, coordinator_epoch=0, timestamp=1, base_offset=at
        )
        return {
            place: Fetched(
                data=memoryview(data),
                aborted=(),
                high_watermark=MARKERS,
                last_stable_offset=MARKERS,
                log_start_offset=0,
            )
        }


def test_steps_through_what_has_nothing_to_show() -> None:
    clock = ManualClock()

    @contextmanager
    def client() -> Iterator[Any]:
        yield Markers(clock)

    settings = SimpleNamespace(registry=None, masks=Masks())
    console = SimpleNamespace(client=client, clock=clock, settings=settings)
    call: Any = SimpleNamespace(console=console, query={}, role=Role.ADMIN, number=lambda name, *rest: None)
    scan = _Scan(call, "t", limit=10)
    shares = [scan.progress.share for _ in scan.steps()]
    assert len(shares) > 10
    assert shares == sorted(shares)


def test_a_file_has_all_records_where_nobody_said_how_many(monkeypatch: pytest.MonkeyPatch) -> None:
    """It had the first ten million, and did not say that there were more."""
    limits: list[int | None] = []
    monkeypatch.setattr(records, "_Scan", lambda call, topic, *, limit: limits.append(limit))
    for query in ({}, {"limit": "7"}, {"limit": "20000000"}):
        records._export(
            Call(
                console=SimpleNamespace(),  # type: ignore[arg-type]
                path={"topic": "t"},
                query=query,
                body=None,
                user=None,
                role=Role.VIEWER,
                gone=threading.Event(),
            )
        )
    assert limits == [None, 7, 20_000_000]
