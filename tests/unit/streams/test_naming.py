"""Names are Kafka Streams' own: one counter, and a user's name renames nothing else."""

from __future__ import annotations

import pytest
from support.kafka_streams_topologies import by_value, same, yes

from suiro.streams import JoinWindows, Materialized, Named, StreamsBuilder, TopologyError
from suiro.streams.dsl.named import Names, is_generated, legal_name, moves_with_its_place


def test_one_counter_for_all_prefixes() -> None:
    names = Names()
    assert names.generate("KSTREAM-SOURCE-") == "KSTREAM-SOURCE-0000000000"
    assert names.store("KSTREAM-AGGREGATE-") == "KSTREAM-AGGREGATE-STATE-STORE-0000000001"
    assert names.processor("KSTREAM-FILTER-") == "KSTREAM-FILTER-0000000002"


def test_a_given_name_uses_a_number_up() -> None:
    names = Names()
    assert names.processor("KSTREAM-FILTER-", "late") == "late"
    assert names.processor("KSTREAM-FILTER-", Named.as_("late"), "-source") == "late-source"
    assert names.processor("KSTREAM-FILTER-") == "KSTREAM-FILTER-0000000002"


@pytest.mark.parametrize("name", ["", ".", "..", "a b", "ä", "a/b", "x" * 250])
def test_what_cannot_be_in_a_topic_name(name: str) -> None:
    with pytest.raises(TopologyError, match="cannot be a name"):
        legal_name(name)
    with pytest.raises(TopologyError, match="cannot be a name"):
        StreamsBuilder().stream("in").filter(yes, name=name)


def test_which_names_say_where_they_come_from() -> None:
    assert is_generated("KSTREAM-KEY-SELECT-0000000001")
    assert not is_generated("COGROUPKSTREAM-AGGREGATE-STATE-STORE-0000000003")
    assert not is_generated("late")
    assert moves_with_its_place("COGROUPKSTREAM-AGGREGATE-STATE-STORE-0000000003-repartition")
    assert not moves_with_its_place("late-repartition")


def test_naming_one_operator_renames_no_other() -> None:
    def names(first: str | None) -> list[str]:
        builder = StreamsBuilder()
        stream = builder.stream("in").filter(yes, name=first).select_key(by_value)
        stream.group_by_key().count().to_stream().to("out")
        return [node.name for node in builder.build().nodes]

    unnamed, named = names(None), names("first")
    assert [name for name in named if name not in unnamed] == ["first"]
    assert [name for name in unnamed if name not in named] == ["KSTREAM-FILTER-0000000001"]


def test_internal_topics_have_kafka_streams_names() -> None:
    builder = StreamsBuilder()
    rekeyed = builder.stream("in").select_key(by_value)
    rekeyed.group_by_key(name="group").count(materialized=Materialized.as_("counts"))
    rekeyed.join(
        builder.stream("other").select_key(by_value),
        lambda left, right: left,
        JoinWindows.of_time_difference(5),
        name="both",
    )
    topics = {getattr(node.operator, "topic", None) for node in builder.build().nodes} - {None}
    assert topics == {"group-repartition", "both-left-repartition", "both-right-repartition"}


def test_same_name_twice() -> None:
    stream = StreamsBuilder().stream("in")
    stream.filter(yes, name="it")
    with pytest.raises(TopologyError, match="two operators have the name 'it'"):
        stream.map_values(same, name="it")


def test_same_store_twice() -> None:
    builder = StreamsBuilder()
    builder.table("a", materialized=Materialized.as_("rows"))
    with pytest.raises(TopologyError, match="two stores have the name 'rows'"):
        builder.table("b", materialized=Materialized.as_("rows"))


def test_nodes_say_whether_they_were_named() -> None:
    builder = StreamsBuilder()
    builder.stream("in", name="source").filter(yes).to("out", name="sink")
    assert [(node.name, node.named_by_user) for node in builder.build().nodes] == [
        ("source", True),
        ("KSTREAM-FILTER-0000000001", False),
        ("sink", True),
    ]
