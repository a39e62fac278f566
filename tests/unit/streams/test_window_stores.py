"""The window store: look-ups, keys that begin with others, the layout of its rows, and what is rebuilt from them."""

from __future__ import annotations

import struct

from suiro.streams import serdes
from suiro.streams.records import Windowed
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.topology.nodes import StoreSpec

SPEC = StoreSpec(name="s", kind="window", key=serdes.string, value=serdes.long, window_size_ms=10)


def test_fetch_of_one_window_and_of_a_time_range() -> None:
    windows = open_store(SPEC, OrderedMap())
    for start in (0, 10, 30):
        windows.put("a", start, start, start + 5)
    assert windows.fetch("a", 10) == 10
    assert windows.fetch("a", 20) is None
    assert list(windows.fetch("a", 0, 10)) == [(0, 0), (10, 10)]
    assert list(windows.fetch("a", -5, 9)) == [(0, 0)]
    assert list(windows.fetch("a", 11, 1 << 62)) == [(30, 30)]
    assert list(windows.fetch("a", 11, 1 << 63)) == [(30, 30)]
    assert list(windows.fetch("a", -10, -1)) == []
    assert list(windows.fetch("b", 0, 100)) == []
    assert windows.get_with_timestamp("a", 30) == (30, 35)


def test_all_by_key_and_fetch_all_by_time() -> None:
    windows = open_store(SPEC, OrderedMap())
    for number, (key, start) in enumerate([("b", 0), ("a", 20), ("a", 0), ("c", 10)]):
        windows.put(key, number, start)
    assert [windowed for windowed, _ in windows.all()] == [
        Windowed("a", 0, 10),
        Windowed("a", 20, 30),
        Windowed("b", 0, 10),
        Windowed("c", 10, 20),
    ]
    assert list(windows.fetch_all(0, 10)) == [
        (Windowed("a", 0, 10), 2),
        (Windowed("b", 0, 10), 0),
        (Windowed("c", 10, 20), 3),
    ]


def test_keys_that_begin_with_another_are_kept_apart() -> None:
    keys = ["", "a", "a\0", "a\0\0\0\0\0\0\0\0", "a\0\0\0\0\0\0\0\n\0\0\0\0", "aa"]
    windows = open_store(SPEC, OrderedMap())
    for number, key in enumerate(keys):
        for start in (0, 10):
            windows.put(key, number, start)
    for number, key in enumerate(keys):
        assert list(windows.fetch(key, 0, 100)) == [(0, number), (10, number)]


def test_a_row_is_laid_out_as_in_a_changelog_of_kafka_streams() -> None:
    rows = OrderedMap()
    open_store(SPEC, rows).put("key", 7, 1_000, 1_234)
    assert rows.take_changes() == {b"key" + struct.pack(">qi", 1_000, 0): struct.pack(">qq", 1_234, 7)}


def test_removal_is_a_change_and_old_windows_are_found_after_a_reload() -> None:
    rows = OrderedMap()
    windows = open_store(SPEC, rows)
    for start in (0, 10, 20, 30):
        windows.put("a", 1, start)
        windows.put("b", 1, start)
    windows.put("a", None, 0)
    rows.take_changes()
    windows = open_store(SPEC, rows)
    windows.remove_before(20)
    assert sorted(rows.take_changes().values(), key=str) == [None] * 3
    assert [windowed.start for windowed, _ in windows.all()] == [20, 30, 20, 30]
    windows.remove_before(20)
    assert rows.take_changes() == {}
    windows.put("a", 1, 5)
    windows.remove_before(6)
    assert windows.fetch("a", 5) is None


def test_a_window_may_be_put_again_after_it_was_deleted() -> None:
    windows = open_store(SPEC, OrderedMap())
    windows.put("a", 1, 10)
    windows.put("a", None, 10)
    windows.put("a", None, 10)
    windows.put("a", 2, 10)
    assert list(windows.fetch_all(0, 100)) == [(Windowed("a", 10, 20), 2)]
    assert windows.approximate_num_entries() == 1
