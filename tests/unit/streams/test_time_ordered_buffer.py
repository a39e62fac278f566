"""The buffer in the order of time: one entry for a key or several, what leaves first, its size, and reloading."""

from __future__ import annotations

from suiro.streams import serdes
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.stores.buffer import TimeOrderedBuffer
from suiro.streams.topology.nodes import StoreSpec

SPEC = StoreSpec(name="s", kind="buffer", key=serdes.bytes, value=serdes.bytes)


def opened(rows: OrderedMap | None = None) -> TimeOrderedBuffer:
    found: TimeOrderedBuffer = open_store(SPEC, OrderedMap() if rows is None else rows)
    return found


def test_entries_leave_by_time_and_key() -> None:
    buffer = opened()
    for time, key in ((5, b"b"), (5, b"a"), (-3, b"z"), (7, b""), (0, b"q")):
        buffer.put(time, key, key * 2)
    assert buffer.min_time == -3
    assert [entry[:2] for entry in buffer.entries()] == [
        (-3, b"z"),
        (0, b"q"),
        (5, b"a"),
        (5, b"b"),
        (7, b""),
    ]
    assert list(buffer.evict_before(5)) == [(-3, b"z", b"zz"), (0, b"q", b"qq")]
    assert list(buffer.evict_while(lambda: len(buffer) > 1)) == [(5, b"a", b"aa"), (5, b"b", b"bb")]
    assert buffer.min_time == 7


def test_put_replaces_the_entry_in_its_place() -> None:
    buffer = opened()
    buffer.put(1, b"a", b"first")
    buffer.put(2, b"b", b"")
    buffer.put(9, b"a", b"second")
    assert list(buffer.evict_before(100)) == [(1, b"a", b"second"), (2, b"b", b"")]
    buffer.put(9, b"a", b"third")
    assert buffer.min_time == 9


def test_delete_and_put_again() -> None:
    buffer = opened()
    buffer.put(1, b"a", b"x")
    buffer.delete(b"a")
    buffer.delete(b"a")
    assert (buffer.min_time, len(buffer), buffer.size_in_bytes) == (None, 0, 0)
    buffer.put(1, b"a", b"y")
    assert buffer.get(b"a") == b"y"
    assert list(buffer.evict_before(2)) == [(1, b"a", b"y")]
    assert list(buffer.evict_before(2)) == []


def test_several_entries_of_a_key_leave_as_they_came() -> None:
    rows = OrderedMap()
    buffer = opened(rows)
    for payload in (b"x", b"y"):
        buffer.add(5, b"k", payload)
    buffer = opened(rows)
    buffer.add(5, b"k", b"z")
    buffer.add(4, b"k", b"w")
    buffer.add(5, b"k\0\0\0\0", b"longer")
    assert [payload for _, key, payload in buffer.entries() if key == b"k"] == [b"w", b"x", b"y", b"z"]
    buffer.remove(5, b"k")
    buffer.remove(5, b"k")
    assert list(buffer.evict_before(6)) == [(4, b"k", b"w"), (5, b"k\0\0\0\0", b"longer")]


def test_size_and_order_are_rebuilt_from_the_rows() -> None:
    rows = OrderedMap()
    buffer = opened(rows)
    for number in range(300):
        buffer.put(number * 37 % 101, b"%d" % (number % 90), b"x" * (number % 7))
        if number % 3 == 0:
            buffer.delete(b"%d" % (number * 11 % 90))
    again = opened(rows)
    assert again.size_in_bytes == buffer.size_in_bytes == sum(len(k) + len(v) for k, v in rows.range())
    wanted = [entry for entry in buffer.entries() if entry[0] < 50]
    assert len(wanted) > 10
    assert list(again.evict_before(50)) == wanted
    assert again.min_time == next(buffer.entries())[0] >= 50
