"""What a view may be, what its version's spec holds, and how rows come out of bytes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.errors import ConfigError, UsageError
from suiro.streams import Materialized, SessionWindows, StreamsBuilder, TimeWindows, Windowed, col, serdes
from suiro.streams.errors import TopologyError
from suiro.streams.topology.nodes import Sink
from suiro.views import Cut, RowCodec, VersionSpec, topology_of, view
from suiro.views.definition import ViewDefinition

Build = Callable[[StreamsBuilder], Any]


def defined(build: Build, key: str | tuple[str, ...] = ("carrier",), **said: Any) -> ViewDefinition:
    found: ViewDefinition = view("delays", key=key, **said)(build).definition  # type: ignore[attr-defined]
    return found


def flights(builder: StreamsBuilder) -> Any:
    return builder.stream("flights", key=serdes.string, value=serdes.json)


def codec_of(build: Build, key: str | tuple[str, ...] = ("carrier",)) -> tuple[RowCodec, Sink]:
    topology = topology_of(defined(build, key), "delays.v1")
    sink = topology.node("view-output").operator
    assert isinstance(sink, Sink)
    return RowCodec(topology, (key,) if isinstance(key, str) else key), sink


def decoded(build: Build, key: str | tuple[str, ...], rows: list[tuple[Any, Any]]) -> list[tuple[Any, Any]]:
    codec, sink = codec_of(build, key)
    assert sink.key is not None
    assert sink.value is not None
    keys = [sink.key.serialize("t", key) for key, _ in rows]
    values = [None if value is None else sink.value.serialize("t", value) for _, value in rows]
    columns, texts = codec.decode(keys, values)
    return [(key, None if text is None else json.loads(text)) for key, text in zip(columns, texts, strict=True)]


# -- saying it ---------------------------------------------------------------------------------------------------


def test_the_function_stays_what_it_was() -> None:
    @view("delays", key="carrier", serve="postgres", search="name", history="2 days")
    def build(builder: StreamsBuilder) -> str:
        return "as ever"

    assert build(StreamsBuilder()) == "as ever"
    found = build.definition  # type: ignore[attr-defined]
    assert (found.name, found.key, found.serve) == ("delays", ("carrier",), "postgres")
    assert (found.search, found.history_ms) == (("name",), 2 * 86_400_000)


@pytest.mark.parametrize(
    ("name", "said", "told"),
    [
        ("Delays", {}, "small letters"),
        ("a-b", {}, "small letters"),
        ("delays", {"key": ()}, "no key columns"),
        ("delays", {"key": ("a", "A")}, "twice"),
        ("delays", {"key": "a b"}, "'a b'"),
        ("delays", {"serve": "mysql"}, "sqlite, postgres"),
        ("delays", {"history": "a while"}, "the history of view 'delays'"),
        ("delays", {"search": "a;b"}, "search of view"),
    ],
)
def test_what_cannot_be_is_said(name: str, said: dict[str, Any], told: str) -> None:
    with pytest.raises(UsageError, match=told):
        view(name, **{"key": "carrier"} | said)


# -- its topology ------------------------------------------------------------------------------------------------


def test_a_view_returns_its_table_and_writes_nothing_else() -> None:
    with pytest.raises(TopologyError, match=r"returned nothing; it must return its table"):
        topology_of(defined(lambda builder: None), "delays.v1")
    with pytest.raises(TopologyError, match="a KStream"):
        topology_of(defined(flights), "delays.v1")

    def leaks(builder: StreamsBuilder) -> Any:
        stream = flights(builder)
        stream.to("elsewhere")
        return stream.group_by_key().count()

    with pytest.raises(TopologyError, match="both would write there"):
        topology_of(defined(leaks), "delays.v1")
    with pytest.raises(TopologyError, match="values of view 'delays' are plain bytes"):
        topology_of(defined(lambda builder: builder.table("t", key=serdes.string)), "delays.v1")


def test_a_registry_that_is_missing_is_said_at_once() -> None:
    def build(builder: StreamsBuilder) -> Any:
        return builder.table("t", key=serdes.string, value=serdes.avro)

    with pytest.raises(ConfigError, match="has no registry"):
        VersionSpec.of(defined(build), 1, code="c", entry="a.py:b")


# -- its rows ----------------------------------------------------------------------------------------------------


def test_keys_of_one_column_objects_and_lists() -> None:
    def by(mapper: Any, **how: Any) -> Build:
        return lambda builder: flights(builder).group_by(mapper, **how).count()

    assert decoded(by(col("carrier"), key=serdes.string), "carrier", [("UA", 3), ("HA", None)]) == [
        (("UA",), {"value": 3}),
        (("HA",), None),
    ]
    pair = by(lambda key, row: (row["carrier"], row["day"]))
    assert decoded(pair, ("carrier", "day"), [(["UA", 5], 1)]) == [(("UA", 5), {"value": 1})]
    named = by(lambda key, row: {"day": row["day"], "carrier": row["carrier"]})
    assert decoded(named, ("carrier", "day"), [({"day": 5, "carrier": None}, 1)]) == [((None, 5), {"value": 1})]
    with pytest.raises(UsageError, match="2 items, and the view says"):
        decoded(pair, "carrier", [(["UA", 5], 1)])
    with pytest.raises(UsageError, match="the fields day"):
        decoded(named, ("carrier", "day"), [({"day": 5}, 1)])
    with pytest.raises(UsageError, match="one value, 'UA'"):
        decoded(by(col("carrier"), key=serdes.string), ("carrier", "day"), [("UA", 1)])


@pytest.mark.parametrize("key", ["carrier", ("carrier", "window_start", "window_end")])
def test_windowed_keys_have_the_windows_columns_whether_named_or_not(key: Any) -> None:
    def build(builder: StreamsBuilder) -> Any:
        grouped = flights(builder).group_by(col("carrier"))
        return grouped.windowed_by(TimeWindows.of_size("1 day")).count()

    assert codec_of(build, key)[0].key == ("carrier", "window_start", "window_end")
    row = (Windowed("UA", 86_400_000, 0), 3)
    assert decoded(build, key, [row]) == [(("UA", 86_400_000, 172_800_000), {"value": 3})]

    def sessions(builder: StreamsBuilder) -> Any:
        grouped = flights(builder).group_by(col("carrier"), key=serdes.string)
        return grouped.windowed_by(SessionWindows.of_gap("1 hour")).count()

    assert decoded(sessions, key, [(Windowed("UA", 5, 9), 3)]) == [(("UA", 5, 9), {"value": 3})]


def test_json_rows_are_taken_as_they_are() -> None:
    def build(builder: StreamsBuilder) -> Any:
        return builder.table("t", key=serdes.string, value=serdes.json)

    codec, _ = codec_of(build)
    texts = ['{"b":1,"a":{"x":[1,2.50]}}', "[1,2]", '"text"', "5"]
    assert codec.decode([b"k"] * 4, [text.encode() for text in texts])[1] == [
        texts[0],
        '{"value":[1,2]}',
        '{"value":"text"}',
        '{"value":5}',
    ]


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=8,
    )
)
def test_any_aggregate_comes_out_as_json(value: Any) -> None:
    def build(builder: StreamsBuilder) -> Any:
        grouped = flights(builder).group_by(col("carrier"), key=serdes.string)
        return grouped.aggregate(dict, lambda key, row, total: total, materialized=Materialized.as_("totals"))

    expected = value if isinstance(value, dict) else {"value": value}
    assert value is None or decoded(build, "carrier", [("UA", value)]) == [(("UA",), expected)]


# -- its spec ----------------------------------------------------------------------------------------------------


def counted(builder: StreamsBuilder) -> Any:
    return flights(builder).group_by(col("carrier"), key=serdes.string).count()


def test_a_spec_goes_through_json_unchanged() -> None:
    one = VersionSpec.of(defined(counted), 1, code="c", entry="a.py:b", settings={"trigger": "1 second"})
    two = VersionSpec.of(defined(counted), 2, code="d", entry="a.py:b", leader=one)
    for spec in (one, two):
        assert VersionSpec.from_json(json.loads(json.dumps(spec.to_json()))) == spec
    assert (one.application_id, one.output_topic, one.cuts_topic) == (
        "delays-v1",
        "delays.v1",
        "delays.v1.cuts",
    )
    assert (one.inputs, one.leader_cuts_topic, two.leader_cuts_topic) == (
        ("flights",),
        None,
        "delays.v1.cuts",
    )
    with pytest.raises(UsageError, match="format 99"):
        VersionSpec.from_json(one.to_json() | {"v": 99})
    with pytest.raises(UsageError, match=r"format 1 with later, .* use the one that wrote it"):
        VersionSpec.from_json(one.to_json() | {"later": 1})


def test_the_fingerprint_is_of_the_code_and_what_was_said() -> None:
    def fingerprint(code: str = "c", definition: ViewDefinition | None = None, **said: Any) -> str:
        definition = definition or defined(counted)
        return VersionSpec.of(definition, 1, code=code, entry="a.py:b", **said).fingerprint

    assert fingerprint() == fingerprint()
    others = [
        fingerprint("d"),
        fingerprint(settings={"trigger": "1 second"}),
        fingerprint(definition=defined(counted, serve="postgres")),
        fingerprint(definition=defined(counted, key="airline")),
    ]
    assert len({fingerprint(), *others}) == 5


def test_cuts_go_through_json_and_meet_on_the_topics_that_both_read() -> None:
    cut = Cut(
        number=123_456, inputs={("a", 0): 5, ("a", 1): 0}, outputs={0: 7, 1: 0}, time_ms=9, behind=frozenset([("a", 0)])
    )  # fmt: skip
    assert Cut.from_json(json.loads(cut.to_bytes())) == cut
    assert cut.key == b"23456"

    def at(inputs: dict[tuple[str, int], int]) -> Cut:
        return Cut(number=0, inputs=inputs, outputs={}, time_ms=0)

    assert not cut.is_settled
    assert not cut.meets(cut), "records may wait in one and not in the other"
    settled = dataclasses.replace(cut, behind=frozenset())
    assert at({("a", 0): 5}).meets(settled), "a partition without a record makes no difference"
    assert at({("a", 0): 5, ("b", 0): 3}).meets(settled), "a topic of its own neither"
    assert not at({("a", 0): 4}).meets(settled)
    assert not at({("b", 0): 5}).meets(settled)
