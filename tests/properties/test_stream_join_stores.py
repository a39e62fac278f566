"""The versioned store and the store of stream joins against all that was ever put, opened again at any time."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suiro.streams import serdes
from suiro.streams.stores import OrderedMap
from suiro.streams.stores.stream_join import StreamJoinStore
from suiro.streams.stores.versioned import VersionedStore
from suiro.streams.topology.nodes import StoreSpec

_KEYS = [b"a", b"a" + bytes(8), b"a" + bytes(12), b"b"]
_HISTORY = 10

puts = st.lists(
    st.tuples(
        st.sampled_from(_KEYS),
        st.one_of(st.none(), st.integers(0, 99)),
        st.integers(0, 40),
        st.booleans(),  # whether the store is opened again after it
    ),
    max_size=60,
)


@given(puts)
def test_versioned_store(steps: list[tuple[bytes, int | None, int, bool]]) -> None:
    spec = StoreSpec(name="s", kind="versioned", key=serdes.bytes, value=serdes.long, retention_ms=_HISTORY)
    store = VersionedStore(spec, rows := OrderedMap())
    everything: dict[bytes, dict[int, int | None]] = {key: {} for key in _KEYS}
    time = -1
    for key, value, timestamp, reopens in steps:
        latest = store.put(key, value, timestamp)
        assert (latest is None) == (timestamp < time - _HISTORY)
        if latest is not None:
            time = max(time, timestamp)
            everything[key][timestamp] = value
            assert latest == (timestamp == max(everything[key]))
        if reopens:
            store = VersionedStore(spec, rows := OrderedMap(rows.range()))
        for key, versions in everything.items():
            newest = max(versions, default=None)
            current = None if newest is None or versions[newest] is None else (versions[newest], newest)
            assert store.get_with_timestamp(key) == current
            for moment in range(max(0, time - _HISTORY), 42):
                valid = max((t for t in versions if t <= moment), default=None)
                wanted = None if valid is None or versions[valid] is None else (versions[valid], valid)
                assert store.get_as_of(key, moment) == wanted
    # A key keeps one version from before the history; more than that would never be removed.
    horizon = time - _HISTORY
    assert len(rows) <= sum(1 + len([t for t in v if t > horizon]) for v in everything.values())


@given(st.lists(st.tuples(st.sampled_from(_KEYS), st.integers(0, 20), st.integers(0, 30), st.booleans()), max_size=40))
def test_stream_join_store(steps: list[tuple[bytes, int, int, bool]]) -> None:
    spec = StoreSpec(name="s", kind="stream-join", key=serdes.bytes, value=serdes.long, retention_ms=1)
    store = StreamJoinStore(spec, rows := OrderedMap())
    everything: list[tuple[bytes, int, int]] = []
    for number, (key, timestamp, before, reopens) in enumerate(steps):
        store.put_at(key, store.data_of(number), timestamp)
        everything.append((key, timestamp, number))
        time = max(t for _, t, _ in everything)
        assert store.time == time
        if reopens:
            store.expire(before)
            everything = [item for item in everything if item[1] >= min(before, time)]
            store = StreamJoinStore(spec, rows := OrderedMap(rows.range()))
        for wanted in _KEYS:
            for first, last in ((-5, 50), (before, before + 3), (5, 4), (-5, -1)):
                assert store.fetch_at(wanted, first, last) == [
                    (t, n) for t, n in sorted((t, n) for k, t, n in everything if k == wanted) if first <= t <= last
                ]
    assert len(rows) == len(everything)
