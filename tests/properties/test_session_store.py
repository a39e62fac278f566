"""What operators read from a session store by bytes is what `find_sessions` gives."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from suiro.streams import serdes
from suiro.streams.stores import OrderedMap, open_store
from suiro.streams.topology.nodes import StoreSpec

SPEC = StoreSpec(name="sessions", kind="session", key=serdes.string, value=serdes.long)
KEYS = st.sampled_from(["a", "ab", "b"])
TIMES = st.integers(0, 12)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS, TIMES, TIMES),
        st.tuples(st.just("remove"), KEYS, TIMES, TIMES),
        st.tuples(st.just("expire"), KEYS, TIMES, TIMES),
        st.tuples(st.just("open"), KEYS, TIMES, TIMES),
        st.tuples(st.just("find"), KEYS, TIMES, TIMES),
    ),
    max_size=40,
)


@given(STEPS, st.booleans())
def test_sessions_by_bytes_are_those_by_key(steps: list[tuple[str, str, int, int]], keeps: bool) -> None:
    rows = OrderedMap()
    store = open_store(SPEC, rows, keeps=keeps)
    for number, (what, key, one, two) in enumerate(steps):
        start, end = sorted((one, two))
        if what == "put":
            store.put(key, number, start, end)
        elif what == "remove":
            store.remove(key, start, end)
        elif what == "expire":
            store.remove_before(one)
        elif what == "open":
            store = open_store(SPEC, rows, keeps=keeps)
        else:
            expected = [(at.start, at.end, value) for at, value in store.find_sessions(key, one, two)]
            assert store.sessions_at(store.key_of(key), one, two) == expected
