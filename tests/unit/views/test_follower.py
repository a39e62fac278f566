"""The records that readers of a store see, by the events of its follower."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from support.view_output import spec_of
from support.view_stores import cut

from suiro.views.cuts import Cut
from suiro.views.pipeline.follower import Follower
from suiro.views.store import open_store

A, B = ("a", 0), ("b", 0)
SETTLED = cut(0, inputs={A: 10, B: 10})
BEHIND_IN_A = cut(1, inputs={A: 20, B: 20}, behind=[A])
BEHIND_IN_BOTH = cut(2, inputs={A: 30, B: 30}, behind=[A, B])


@pytest.fixture
def follower(tmp_path: Path) -> Follower:
    return Follower(spec_of("delays"), tmp_path, tmp_path, bootstrap_servers="none")


def test_a_record_that_waits_for_another_partition_is_not_seen(follower: Follower) -> None:
    def at(reached: Cut) -> list[int]:
        """Of each partition, the last offset that is seen."""
        follower._hear({"event": "at", "cut": reached.to_json()})
        return [
            max((at for at in range(50) if follower.reflects({place: at})), default=-1) for place in (A, B)
        ]

    assert not follower.reflects({A: 0})
    assert at(SETTLED) == [9, 9]
    assert at(BEHIND_IN_A) == [19, 9]
    assert at(BEHIND_IN_BOTH) == [19, 9]
    assert not follower.reflects({A: 19, B: 19})
    assert at(cut(3, inputs={A: 40, B: 30})) == [39, 29]
    assert follower.reflects({A: 39, B: 29})


def test_what_the_store_has_at_the_start_is_seen(
    follower: Follower, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with open_store(spec_of("delays"), tmp_path) as store:
        for one in (SETTLED, BEHIND_IN_A, BEHIND_IN_BOTH):
            store.apply(one, [], [])

    def nothing(self: Any) -> None:
        pass

    monkeypatch.setattr(Follower, "_keep", nothing)
    follower.start()
    assert follower.cut == BEHIND_IN_BOTH
    assert follower.reflects({A: 9, B: 9})
    assert not follower.reflects({B: 10})
    follower.stop()
