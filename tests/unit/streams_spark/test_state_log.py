"""The state of a task over micro-batches, tasks that fail, and worker processes that remember something else."""

from __future__ import annotations

import random
from types import SimpleNamespace

import pyarrow as pa
import pytest

from suiro.errors import FatalError
from suiro.streams.vectorised.table import TableRows
from suiro.streams_spark import processor, state_log
from suiro.streams_spark.state_log import Directory, StateCache, StateLog


class SparkStore:
    """What Spark keeps for one task: a committed version, and the one a task is changing."""

    def __init__(self) -> None:
        self.directory: bytes | None = None
        self.segments: dict[int, bytes] = {}
        self.calls: list[str] = []
        self.commit()

    def commit(self) -> None:
        self._committed = self.directory, dict(self.segments)

    def roll_back(self) -> None:
        self.directory, self.segments = self._committed[0], dict(self._committed[1])

    def get(self) -> bytes | None:
        self.calls.append("get")
        return self.directory

    def put(self, directory: bytes) -> None:
        self.calls.append("put")
        self.directory = directory

    def get_segment(self, number: int) -> bytes | None:
        self.calls.append("get_segment")
        return self.segments.get(number)

    def put_segment(self, number: int, data: bytes) -> None:
        self.calls.append("put_segment")
        self.segments[number] = data

    def remove_segment(self, number: int) -> None:
        self.calls.append("remove_segment")
        del self.segments[number]


Rows = dict[bytes, bytes | None]


def micro_batch(store: SparkStore, cache: StateCache, rows: Rows, *, name: str = "s") -> None:
    log = StateLog(store, cache, "bucket")
    state = log.load()
    for key, value in rows.items():
        state.map(name).put(key, value)
    log.save()


def loaded(store: SparkStore, cache: StateCache | None = None, *, name: str = "s") -> dict[bytes, bytes]:
    return dict(StateLog(store, cache or StateCache(), "bucket").load().map(name).range())


def test_a_new_bucket_is_empty_and_one_without_changes_writes_nothing() -> None:
    store = SparkStore()
    micro_batch(store, StateCache(), {})
    assert (loaded(store), store.directory, store.calls) == ({}, None, ["get", "get"])


def test_a_micro_batch_costs_three_calls_where_the_cache_is_right() -> None:
    store, cache = SparkStore(), StateCache()
    micro_batch(store, cache, {b"a": b"1"})
    store.calls.clear()
    micro_batch(store, cache, {b"b": b"2"})
    assert store.calls == ["get", "put_segment", "put"]
    assert loaded(store) == {b"a": b"1", b"b": b"2"}


def test_deletes_and_several_maps() -> None:
    store, cache = SparkStore(), StateCache()
    micro_batch(store, cache, {b"a": b"1", b"b": b""})
    micro_batch(store, cache, {b"a": None})
    micro_batch(store, cache, {b"a": b"other"}, name="t")
    assert loaded(store) == {b"b": b""}
    assert loaded(store, name="t") == {b"a": b"other"}


def test_a_cache_that_is_behind_takes_only_what_it_misses() -> None:
    store, here, there = SparkStore(), StateCache(), StateCache()
    micro_batch(store, here, {b"a": b"1"})
    micro_batch(store, there, {b"b": b"2"})  # another worker process went on
    store.calls.clear()
    assert loaded(store, here) == {b"a": b"1", b"b": b"2"}
    assert store.calls == ["get", "get_segment"]


def test_an_opened_store_is_not_kept_over_rows_that_came_from_another_worker() -> None:
    """It would not know of them: what it derived from the rows is from before."""
    store, one, other = SparkStore(), StateCache(), StateCache()
    log = StateLog(store, one, "bucket")
    state = log.load()
    state.map("s").put(b"a", b"1")
    state.stores["s"] = object()
    log.save()
    log = StateLog(store, one, "bucket")
    assert "s" in log.load().stores
    log.save()
    micro_batch(store, other, {b"b": b"2"})
    assert "s" not in StateLog(store, one, "bucket").load().stores


def test_a_task_that_failed_leaves_nothing_in_the_cache() -> None:
    store, cache = SparkStore(), StateCache()
    micro_batch(store, cache, {b"a": b"1"})
    store.commit()
    state = StateLog(store, cache, "bucket").load()
    state.map("s").put(b"a", b"wrong")  # and then it dies, before it saved
    store.roll_back()
    assert loaded(store, cache) == {b"a": b"1"}


def test_a_task_that_succeeded_in_a_micro_batch_that_failed_is_forgotten() -> None:
    store, cache = SparkStore(), StateCache()
    micro_batch(store, cache, {b"a": b"1"})
    store.commit()
    micro_batch(store, cache, {b"a": b"wrong", b"b": b"wrong"})
    store.roll_back()
    assert loaded(store, cache) == {b"a": b"1"}


def test_rows_that_are_all_valid_are_not_written_again() -> None:
    store, cache = SparkStore(), StateCache()
    for number in range(200):
        micro_batch(store, cache, {b"%d" % (number * 10 + index): bytes(1000) for index in range(10)})
    directory = Directory.unpack(store.directory)
    assert directory.base >= 1
    assert len(loaded(store)) == 2000
    # The merged small deltas come on top.
    assert store.calls.count("put_segment") < 200 + 20
    assert 2_000_000 < directory.size < 2_100_000
    assert sum(map(len, store.segments.values())) < directory.size  # they are compressed


def test_bases_take_the_place_of_rows_that_are_no_longer_valid() -> None:
    store, cache = SparkStore(), StateCache()
    chance = random.Random(1)
    rows: Rows = {b"%d" % index: None for index in range(200)}
    for _ in range(100):
        rows |= {b"%d" % chance.randrange(200): chance.randbytes(1000) for _ in range(100)}
        micro_batch(store, cache, rows)
        valid = sum(map(len, filter(None, rows.values())))
        assert Directory.unpack(store.directory).size < 3.2 * valid + 2 * state_log.BASE_BYTES_MIN
    assert loaded(store) == rows
    # Each micro-batch writes all rows, so each other one writes a base, and nothing besides.
    assert store.calls.count("put_segment") == 100


def test_small_rows_of_columns_that_are_no_longer_valid_go_as_early() -> None:
    store, cache = SparkStore(), StateCache()
    keys = pa.array([b"%04d" % number for number in range(5000)], pa.binary())
    rows = pa.array([bytes(12)] * len(keys), pa.binary())
    for count in (5000, *[1000] * 20):
        log = StateLog(store, cache, "bucket")
        log.load({"s": TableRows}).columns["s"].change(keys[:count], rows[:count])
        log.save()
        assert Directory.unpack(store.directory).size < 2.5 * (keys.nbytes + rows.nbytes)


def test_many_small_deltas_become_one() -> None:
    store, cache = SparkStore(), StateCache()
    for number in range(500):
        micro_batch(store, cache, {b"%d" % (number % 7): b"%d" % number})
        assert len(store.segments) <= state_log.DELTAS_MAX + 1
    assert loaded(store) == {b"%d" % (number % 7): b"%d" % number for number in range(493, 500)}


def test_a_large_change_is_several_segments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "SEGMENT_BYTES_MAX", 4000)
    store = SparkStore()
    rows: Rows = {b"%04d" % number: bytes(100) for number in range(1000)}
    micro_batch(store, StateCache(), rows)
    assert len(store.segments) > 10
    assert loaded(store) == rows


def test_large_deltas_are_not_written_again_by_every_micro_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "SEGMENT_BYTES_MAX", 4000)
    monkeypatch.setattr(state_log, "DELTAS_MAX", 8)
    store, cache = SparkStore(), StateCache()
    rows: Rows = {b"%04d" % number: bytes(100) for number in range(2000)}
    micro_batch(store, cache, rows)
    changes: Rows = {b"%04d" % number: bytes(99) for number in range(800)}
    micro_batch(store, cache, changes)
    store.calls.clear()
    for number in range(40):
        micro_batch(store, cache, {b"%04d" % number: b"new"})
        changes[b"%04d" % number] = b"new"
    assert store.calls.count("put_segment") < 40 * 8
    assert loaded(store) == rows | changes


def test_deltas_may_be_more_than_an_array_takes() -> None:
    """Those of a table of more than 2 GiB are, before they outweigh it."""
    keys = pa.array([b"%d" % number for number in range(100)], pa.binary())
    rows = pa.array([bytes(1 << 20)] * 100, pa.binary())
    newest = pa.array([b"%d" % number if number % 3 else None for number in range(100)], pa.binary())
    found = state_log._last_of_each([(keys, rows)] * 22 + [(keys, newest)])
    assert [column.to_pylist() for column in found] == [keys.to_pylist(), newest.to_pylist()]


def test_random_life_against_a_dict() -> None:
    for seed in range(20):
        chance = random.Random(seed)
        store, caches, expected = SparkStore(), [StateCache(), StateCache(2000)], dict[bytes, bytes]()
        for _ in range(120):
            rows: Rows = {
                b"%d" % chance.randrange(60): None if chance.random() < 0.3 else chance.randbytes(chance.randrange(900))
                for _ in range(chance.randrange(12))
            }
            micro_batch(store, chance.choice(caches), rows)
            if chance.random() < 0.2:
                store.roll_back()
                continue
            store.commit()
            for key, value in rows.items():
                if value is None:
                    expected.pop(key, None)
                else:
                    expected[key] = value
        for cache in caches:
            assert loaded(store, cache) == expected, seed


def test_the_cache_lets_go_of_the_oldest() -> None:
    measured = SparkStore()
    micro_batch(measured, StateCache(), {b"k": bytes(10)})
    cache = StateCache(bytes_max=2 * Directory.unpack(measured.directory).size)
    stores = {name: SparkStore() for name in "abc"}
    for name, store in stores.items():
        log = StateLog(store, cache, name)
        log.load().map("s").put(b"k", bytes(10))
        log.save()
    assert [name for name in "abc" if cache.take(name) is not None] == ["b", "c"]


def test_the_cache_keeps_the_last_task_however_large_it_is() -> None:
    store, cache = SparkStore(), StateCache(bytes_max=1)
    micro_batch(store, cache, {b"k": bytes(10)})
    assert cache.take("bucket") is not None


def test_the_cache_lets_go_of_another_large_task_before_it_loads_one() -> None:
    """Both would not fit into the memory at once."""
    first, second, cache = SparkStore(), SparkStore(), StateCache(bytes_max=1)
    micro_batch(second, StateCache(), {b"k": bytes(10)})
    log = StateLog(first, cache, "first")
    log.load().map("s").put(b"k", bytes(10))
    log.save()
    there_while_loading: list[bool] = []

    def get_segment(number: int) -> bytes | None:
        there_while_loading.append(cache.take("first") is not None)
        return second.segments.get(number)

    second.get_segment = get_segment  # type: ignore[method-assign]
    assert loaded(second, cache) == {b"k": bytes(10)}
    assert there_while_loading == [False]


@pytest.mark.parametrize(
    ("master", "bytes_max"),
    [
        ("local[2]", 4 << 30),
        ("local[64]", 1 << 30),
        ("local[*]", 1 << 30),
        (None, 1 << 30),
        ("local[1]", 8 << 30),
    ],
)
def test_the_workers_of_a_machine_share_its_memory(
    monkeypatch: pytest.MonkeyPatch, master: str | None, bytes_max: int
) -> None:
    monkeypatch.setattr(state_log, "memory_bytes", lambda: 64 << 30)
    monkeypatch.setattr("os.cpu_count", lambda: 8)
    context = SimpleNamespace(getLocalProperty={"spark.master": master}.get)
    monkeypatch.setattr("pyspark.TaskContext.get", lambda: context)
    processor._cache.cache_clear()
    try:
        assert processor._cache()._bytes_max == bytes_max
    finally:
        processor._cache.cache_clear()


def test_each_worker_keeps_some_state_on_a_small_machine(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(state_log, "memory_bytes", lambda: 0)
    assert StateCache(workers=64)._bytes_max == 512 << 20


@pytest.mark.parametrize("cut", [0, 9, 100])
def test_damage_is_said(cut: int) -> None:
    store = SparkStore()
    micro_batch(store, StateCache(), {b"a": b"1"})
    ((number, data),) = store.segments.items()
    store.segments[number] = data[:cut] + b"\xff" * 8
    with pytest.raises(FatalError, match=rf"segment {number} of the state of bucket is damaged.*rebuild"):
        loaded(store)
    assert store.directory is not None
    store.directory = store.directory[:-1]
    with pytest.raises(FatalError, match=r"directory of a task's state is damaged.*rebuild"):
        loaded(store)


def test_damaged_lengths_are_said_and_do_not_end_the_process() -> None:
    store = SparkStore()
    micro_batch(store, StateCache(), {b"k" * 77: b"1"})
    ((number, data),) = store.segments.items()
    head, tail = data.rsplit((77).to_bytes(4, "little"), 1)  # where the key ends
    store.segments[number] = head + (1 << 30).to_bytes(4, "little") + tail
    with pytest.raises(FatalError, match=rf"segment {number} of the state of bucket is damaged.*rebuild"):
        loaded(store)


def test_another_format_and_a_missing_segment_are_said() -> None:
    store = SparkStore()
    micro_batch(store, StateCache(), {b"a": b"1"})
    store.segments.clear()
    with pytest.raises(FatalError, match="is not there"):
        loaded(store)
    assert store.directory is not None
    store.directory = b"\x00\x09" + store.directory[2:]
    with pytest.raises(FatalError, match="format 9"):
        loaded(store)
