"""The session store: look-ups by key and time, the layout of its rows, and what is rebuilt from them."""

from __future__ import annotations

import struct

from suiro.streams import serdes
from suiro.streams.records import Windowed
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.topology.nodes import StoreSpec

SPEC = StoreSpec(name="s", kind="session", key=serdes.string, value=serdes.long)


def test_sessions_are_found_by_end_and_start() -> None:
    sessions = open_store(SPEC, OrderedMap())
    for start, end in ((0, 5), (10, 10), (20, 40)):
        sessions.put("a", end, start, end)
    sessions.put("b", 99, 0, 100)

    def found(earliest_end: int, latest_start: int) -> list[int]:
        return [value for _, value in sessions.find_sessions("a", earliest_end, latest_start)]

    assert found(5, 20) == [5, 10, 40]
    assert found(6, 19) == [10]
    assert found(11, 20) == [40]
    assert found(-10, 0) == [5]
    assert found(41, 100) == []
    assert [session for session, _ in sessions.fetch("a")] == [
        Windowed("a", 0, 5),
        Windowed("a", 10, 10),
        Windowed("a", 20, 40),
    ]
    assert sessions.fetch_session("a", 20, 40) == 40
    assert sessions.fetch_session("a", 20, 41) is None


def test_keys_that_begin_with_another_are_kept_apart() -> None:
    keys = ["", "a", "a" + "\0" * 8, "a" + "\0" * 16, "aa"]
    sessions = open_store(SPEC, OrderedMap())
    for number, key in enumerate(keys):
        sessions.put(key, number, 3, 7)
    for number, key in enumerate(keys):
        assert list(sessions.fetch(key)) == [(Windowed(key, 3, 7), number)]


def test_a_row_is_laid_out_as_in_a_changelog_of_kafka_streams() -> None:
    rows = OrderedMap()
    open_store(SPEC, rows).put("key", 7, 1_000, 2_000)
    assert rows.take_changes() == {b"key" + struct.pack(">qq", 2_000, 1_000): struct.pack(">q", 7)}


def test_sessions_that_end_in_a_range_by_end_start_and_key() -> None:
    sessions = open_store(SPEC, OrderedMap())
    for key, start, end in (("b", 5, 9), ("a", 5, 9), ("z", 1, 9), ("a", 0, 3), ("a", 10, 10)):
        sessions.put(key, 1, start, end)
    assert [session for session, _ in sessions.ending_between(3, 9)] == [
        Windowed("a", 0, 3),
        Windowed("z", 1, 9),
        Windowed("a", 5, 9),
        Windowed("b", 5, 9),
    ]


def test_removal_is_a_change_and_old_sessions_are_found_after_a_reload() -> None:
    rows = OrderedMap()
    sessions = open_store(SPEC, rows)
    for start, end in ((0, 5), (10, 15), (20, 25)):
        sessions.put("a", 1, start, end)
    sessions.remove("a", 0, 5)
    sessions.remove("a", 0, 6)
    rows.take_changes()
    sessions = open_store(SPEC, rows)
    sessions.remove_before(16)
    assert list(rows.take_changes().values()) == [None]
    assert [session.end for session, _ in sessions.all()] == [25]
