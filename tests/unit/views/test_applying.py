"""From the topics of a version into its store: whole cuts, none twice, none that was aborted, and what is old."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
from support.view_output import Output, spec_of

from suiro.client import Client
from suiro.clock import ManualClock, SystemClock
from suiro.errors import TransientError, UsageError
from suiro.testing import node
from suiro.views.definition import VersionSpec
from suiro.views.pipeline import applying
from suiro.views.pipeline.applying import Applier, Stopped
from suiro.views.store import open_store
from suiro.views.store.rows import NoCutError, StoreFullError
from suiro.views.store.tables import Store

UA, DL, AA = ("UA", "1"), ("DL", "1"), ("AA", "1")
HOUR_MS = 3_600_000


@pytest.fixture(scope="module")
def client() -> Iterator[Client]:
    with node() as log, Client(log.bootstrap_servers) as made:
        yield made


@pytest.fixture
def spec(unique: str) -> VersionSpec:
    return spec_of(unique.replace("-", "_"))


@pytest.fixture
def store(spec: VersionSpec, tmp_path: Path) -> Iterator[Store]:
    with open_store(spec, tmp_path) as made:
        yield made


class Json:
    """Keys are JSON objects; a codec that fails as long as it is told to."""

    def __init__(self) -> None:
        self.failure: Exception | None = None
        self.calls = 0

    def decode(self, keys: Sequence[bytes], values: Sequence[bytes | None]) -> Any:
        self.calls += 1
        if self.failure is not None:
            raise self.failure
        found = [tuple(json.loads(key).values()) for key in keys]
        return found, [None if value is None else value.decode() for value in values]


def until(applier: Applier, number: int) -> list[int]:
    """Steps to this cut; the numbers of all cuts that were applied."""
    applied: list[int] = []
    for _ in range(200):
        cut = applier.step()
        if cut is not None:
            applied.append(cut.number)
        if applied and applied[-1] >= number:
            return applied
    raise AssertionError(f"cut {number} was not reached: {applied}")


def shown(store: Store, as_of: int | None = None) -> dict[str, Any]:
    return {row.key[0]: json.loads(row.value) for row in store.rows(as_of=as_of).rows}


def test_each_cut_is_applied_with_its_own_rows(client: Client, spec: VersionSpec, store: Store) -> None:
    applier = Applier(spec, store, Json(), client, stopping=threading.Event())
    assert applier.step() is None  # no topic yet
    output = Output(client, spec, min_compaction_lag_ms=str(HOUR_MS))
    output.write({UA: {"n": 0}, DL: {"n": 0}})
    output.write({UA: {"n": -1}, AA: {"n": -1}}, commit=False)
    output.write({UA: {"n": 1}, DL: None})
    output.write({})
    assert until(applier, 2) == [0, 1, 2]
    assert shown(store, 0) == {"UA": {"n": 0}, "DL": {"n": 0}}
    assert shown(store, 1) == shown(store, 2) == {"UA": {"n": 1}}
    assert list(store.newest_cuts()) == output.cuts[::-1]
    output.write({AA: {"n": 3}})
    assert until(applier, 3) == [3]
    assert shown(store) == {"UA": {"n": 1}, "AA": {"n": 3}}


def test_it_goes_on_at_the_cut_of_the_store(client: Client, spec: VersionSpec, store: Store) -> None:
    output = Output(client, spec, min_compaction_lag_ms=str(HOUR_MS))
    output.write({UA: {"n": 0}})
    until(Applier(spec, store, Json(), client, stopping=threading.Event()), 0)
    output.write({DL: {"n": 1}})
    codec = Json()
    assert until(Applier(spec, store, codec, client, stopping=threading.Event()), 1) == [1]
    assert codec.calls == 1  # what was applied is not read again
    assert shown(store) == {"UA": {"n": 0}, "DL": {"n": 1}}


def test_a_cut_is_told_although_old_ones_cannot_be_deleted(
    client: Client, spec: VersionSpec, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The host did not hear of it: readers who waited for the cut got no answer, and the version seemed to lag."""
    failures: list[int] = []

    def fail(now_ms: int) -> int:
        failures.append(now_ms)
        raise StoreFullError("no room for the store")

    monkeypatch.setattr(store, "prune", fail)
    monkeypatch.setattr(applying, "PRUNE_EVERY_MS", 0)
    output = Output(client, spec, min_compaction_lag_ms=str(HOUR_MS))
    for number in range(3):
        output.write({UA: {"n": number}})
    assert until(Applier(spec, store, Json(), client, stopping=threading.Event()), 2) == [0, 1, 2]
    assert len(failures) >= 3


def test_old_cuts_are_taken_together_because_their_rows_may_be_compacted(
    client: Client, spec: VersionSpec, store: Store
) -> None:
    now_ms = SystemClock().wall_ms()
    output = Output(client, spec, min_compaction_lag_ms=str(2 * HOUR_MS))
    for age_h in (9, 5, 3):
        output.write({UA: {"age": age_h}, (str(age_h), ""): {}}, time_ms=now_ms - age_h * HOUR_MS)
    output.write({UA: {"age": 0}}, time_ms=now_ms)
    output.write({DL: {"age": 0}}, time_ms=now_ms)
    assert until(Applier(spec, store, Json(), client, stopping=threading.Event()), 4) == [3, 4]
    assert shown(store, 3) == {"UA": {"age": 0}, "9": {}, "5": {}, "3": {}}


def test_a_store_that_may_have_missed_deletions_is_made_anew(client: Client, spec: VersionSpec, store: Store) -> None:
    output = Output(client, spec, min_compaction_lag_ms=str(HOUR_MS), delete_retention_ms=str(2 * HOUR_MS))
    output.write({UA: {"n": 0}, DL: {"n": 0}})
    # AA as if its deletion had been compacted away while nobody followed.
    store.apply(output.cuts[0], [UA, DL, AA], [json.dumps({"n": 0})] * 3)
    output.write({}, time_ms=SystemClock().wall_ms() - 2 * HOUR_MS)
    output.write({UA: {"n": 2}})
    assert until(Applier(spec, store, Json(), client, stopping=threading.Event()), 2) == [2]
    assert shown(store) == {"UA": {"n": 2}, "DL": {"n": 0}}  # what the topic has, and nothing else


def test_a_cut_that_fails_is_not_there_and_is_tried_again(client: Client, spec: VersionSpec, store: Store) -> None:
    output = Output(client, spec)
    output.write({UA: {"n": 0}})
    codec = Json()
    applier = Applier(spec, store, codec, client, stopping=threading.Event())
    codec.failure = UsageError("a key of another shape")
    with pytest.raises(UsageError, match="another shape"):
        applier.step()
    with pytest.raises(NoCutError):
        store.newest()
    codec.failure = None
    assert until(applier, 0) == [0]


def test_a_full_store_serves_the_cut_before_and_goes_on_once_there_is_room(
    client: Client, spec: VersionSpec, store: Store
) -> None:
    output = Output(client, spec)
    output.write({UA: {"n": 0}})
    applier = Applier(spec, store, Json(), client, stopping=threading.Event())
    until(applier, 0)
    connection = store._writer  # type: ignore[attr-defined]
    pages = connection.execute("PRAGMA page_count").fetchone()[0]
    connection.execute(f"PRAGMA max_page_count = {pages}")
    output.write({(f"k{number}", ""): {"n": "x" * 500} for number in range(500)})
    with pytest.raises(StoreFullError, match="no room for the store"):
        applier.step()
    assert isinstance(StoreFullError(""), TransientError)
    assert shown(store) == {"UA": {"n": 0}}
    assert store.newest().number == 0
    connection.execute("PRAGMA max_page_count = 1000000")
    assert until(applier, 1) == [1]
    assert len(store.rows(limit=1_000).rows) == 501


def test_what_is_older_than_the_history_is_forgotten(client: Client, unique: str, tmp_path: Path) -> None:
    spec = spec_of(unique.replace("-", "_"), history_ms=10_000)
    now_ms = SystemClock().wall_ms()
    clock = ManualClock(wall_ms=now_ms)
    output = Output(client, spec, min_compaction_lag_ms=str(HOUR_MS))
    with open_store(spec, tmp_path) as store:
        for number in range(3):
            output.write({UA: {"n": number}}, time_ms=now_ms + number * 1_000)
        applier = Applier(spec, store, Json(), client, stopping=threading.Event(), clock=clock)
        until(applier, 2)
        clock.advance(12_500)  # the window begins behind cut 2, which is its first state
        assert applier.step() is None
        assert [cut.number for cut in store.newest_cuts()] == [2]


def test_stopped_in_the_middle_of_a_cut_nothing_of_it_is_written(
    client: Client, spec: VersionSpec, store: Store
) -> None:
    output = Output(client, spec)
    output.write({(f"k{number}", ""): {} for number in range(20)})
    stopping = threading.Event()
    stopping.set()
    applier = Applier(spec, store, Json(), client, stopping=stopping)
    with pytest.raises(Stopped):
        until(applier, 0)
    assert store.cut is None
