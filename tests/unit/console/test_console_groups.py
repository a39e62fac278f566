"""How long a record has waited, where it cannot be read."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from support.batches import batch_of

from suiro.client import Client, Fetched, ListedOffset
from suiro.console.groups import first_waits_since
from suiro.errors import OffsetOutOfRangeError

PLACE = ("t", 0)


def told(fetch: Any) -> Client:
    listed = {PLACE: ListedOffset(offset=0, timestamp=-1, leader_epoch=-1)}
    return SimpleNamespace(list_offsets=lambda wanted: listed, fetch=fetch)  # type: ignore[return-value]


def fetched(data: bytes) -> Fetched:
    return Fetched(
        data=memoryview(data), aborted=(), high_watermark=1, last_stable_offset=1, log_start_offset=0
    )


def gone(*arguments: Any, **more: Any) -> Any:
    raise OffsetOutOfRangeError(*PLACE, 0, 5, 9)


@pytest.mark.parametrize(
    "client",
    [
        told(lambda offsets, **more: {PLACE: fetched(batch_of("a")[:-1] + b"\1")}),
        told(gone),
    ],
    ids=["damaged", "gone by now"],
)
def test_a_record_that_cannot_be_read_has_no_time(client: Client) -> None:
    """A group whose next record is damaged must not take the list of all groups with it."""
    assert first_waits_since(client, PLACE, 0) is None
