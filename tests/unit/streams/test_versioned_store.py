"""The versioned store: look-ups as of a time, late and refused puts, what it removes, and opening it again."""

from __future__ import annotations

import pytest

from suiro.streams import serdes
from suiro.streams.serdes import SerializationError
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.stores.versioned import VersionedStore
from suiro.streams.topology.nodes import StoreSpec

_SPEC = StoreSpec(name="prices", kind="versioned", key=serdes.string, value=serdes.string, retention_ms=10)


def _opened(rows: OrderedMap) -> VersionedStore:
    store = open_store(_SPEC, rows)
    assert isinstance(store, VersionedStore)
    return store


def _store() -> tuple[VersionedStore, OrderedMap]:
    rows = OrderedMap()
    return _opened(rows), rows


def test_a_version_is_valid_until_the_next() -> None:
    store, _ = _store()
    assert store.put("k", "a", 5) is True
    assert store.put("k", "b", 8) is True
    assert store.get_as_of("k", 4) is None
    assert store.get_as_of("k", 5) == ("a", 5)
    assert store.get_as_of("k", 7) == ("a", 5)
    assert store.get_as_of("k", 8) == ("b", 8)
    assert store.get("k") == "b"
    assert store.get_with_timestamp("k") == ("b", 8)


def test_a_late_version_fills_the_history_and_is_not_the_latest() -> None:
    store, _ = _store()
    store.put("k", "b", 8)
    assert store.put("k", "a", 5) is False
    assert store.get_as_of("k", 6) == ("a", 5)
    assert store.get("k") == "b"


def test_the_same_time_again_replaces_the_version() -> None:
    store, rows = _store()
    store.put("k", "a", 5)
    assert store.put("k", "b", 5) is True
    assert store.get("k") == "b"
    assert len(rows) == 1


def test_a_put_older_than_the_history_is_refused() -> None:
    store, rows = _store()
    store.put("other", "x", 20)
    assert store.put("k", "a", 9) is None
    assert store.get("k") is None
    assert store.put("k", "a", 10) is True
    assert len(rows) == 2


def test_a_tombstone_hides_what_came_before_it() -> None:
    store, _ = _store()
    store.put("k", "a", 5)
    assert store.put("k", None, 7) is True
    assert store.get("k") is None
    assert store.get_as_of("k", 6) == ("a", 5)
    assert store.get_as_of("k", 7) is None
    assert store.put("k", "b", 6) is False


def test_a_tombstone_in_its_versions_place_is_remembered() -> None:
    # Kafka Streams forgets it if there is no older version, and gives c here.
    store, _ = _store()
    store.put("k", "a", 5)
    store.put("k", None, 5)
    assert store.put("k", "c", 3) is False
    assert store.get_as_of("k", 6) is None
    assert store.get_as_of("k", 4) == ("c", 3)


def test_before_the_history_only_a_latest_version_is_seen() -> None:
    store, _ = _store()
    store.put("old", "a", 5)
    store.put("both", "a", 5)
    store.put("both", "b", 12)
    store.put("clock", "x", 30)
    assert store.get_as_of("old", 6) == ("a", 5)
    assert store.get_as_of("both", 6) is None
    assert store.get_as_of("both", 19) == ("b", 12)


def test_what_no_look_up_can_see_is_removed() -> None:
    store, rows = _store()
    for time in range(100):
        store.put("k", f"v{time}", time)
        store.put(f"gone{time}", "x", time)
        store.put(f"gone{time}", None, time)
    assert len(rows) == 11 + 11
    assert store.get_as_of("k", 89) == ("v89", 89)


def test_keys_that_begin_alike_do_not_meet() -> None:
    rows = OrderedMap()
    store = VersionedStore(
        StoreSpec(name="s", kind="versioned", key=serdes.bytes, value=serdes.string, retention_ms=10), rows
    )
    store.put(b"k", "short", 3)
    store.put(b"k" + bytes(8), "long", 4)
    store.put(b"k" + bytes(7) + b"\x03", "longer", 5)
    assert [store.get(key) for key, _ in store.all()] == ["short", "long", "longer"]
    assert store.get_as_of(b"k", 9) == ("short", 3)


def test_opened_again_it_goes_on() -> None:
    store, rows = _store()
    store.put("k", "a", 5)
    store.put("k", None, 7)
    store.put("k", "c", 9)
    store.put("gone", None, 9)
    again = _opened(OrderedMap(rows.range()))
    assert again.get_as_of("k", 6) == ("a", 5)
    assert again.get_as_of("k", 8) is None
    again.put("clock", "x", 20)
    assert again.put("k", "late", 9) is None
    assert again.get("k") == "c"
    assert len(again._rows) == 2  # the last of k, and the clock


def test_no_history_keeps_the_latest_version_only() -> None:
    rows = OrderedMap()
    spec = StoreSpec(name="s", kind="versioned", key=serdes.string, value=serdes.string, retention_ms=0)
    store = VersionedStore(spec, rows)
    store.put("k", "a", 5)
    store.put("k", "b", 6)
    assert len(rows) == 1
    store.put("k", None, 7)
    assert VersionedStore(spec, OrderedMap(rows.range())).put("k", "late", 6) is None


def test_delete_gives_what_was_valid() -> None:
    store, _ = _store()
    store.put("k", "a", 5)
    assert store.delete("k", 7) == ("a", 5)
    assert store.get("k") is None


def test_a_delete_that_is_refused_gives_nothing() -> None:
    """The look-up alone would find the key's latest version, which stays."""
    store, _ = _store()
    store.put("k", "a", 5)
    store.put("other", "b", 50)
    assert store.delete("k", 7) is None
    assert store.get("k") == "a"


def test_a_value_that_cannot_be_written_does_not_move_time() -> None:
    """Opened again, the store would not know of it: which puts are too old must not depend on that."""
    store, rows = _store()
    store.put("k", "a", 5)
    with pytest.raises(SerializationError):
        store.put("k", 7, 500)
    for opened in (store, _opened(rows)):
        assert opened.put("l", "b", 6) is True
