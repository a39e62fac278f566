"""Topologies whose description by Kafka Streams 4.3.1 is in `unit/streams/kafka_streams_descriptions.txt`.

Each function is one of its entries, written with our builder; `KafkaStreamsDescriptions.java` beside this file is the
same for Kafka Streams, and prints that file.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from suiro.streams import (
    Consumed,
    EmitStrategy,
    Grouped,
    Joined,
    JoinWindows,
    KGroupedStream,
    Materialized,
    Named,
    Produced,
    Repartitioned,
    SessionWindows,
    SlidingWindows,
    StreamJoined,
    StreamsBuilder,
    Suppressed,
    TimeWindows,
)

TOPOLOGIES: dict[str, Callable[[StreamsBuilder], None]] = {}


def topology(build: Callable[[StreamsBuilder], None]) -> Callable[[StreamsBuilder], None]:
    TOPOLOGIES[build.__name__] = build
    return build


class Forwarding:
    """A processor that passes records on."""

    def init(self, context: Any) -> None:
        self._context = context

    def process(self, record: Any) -> None:
        self._context.forward(record)


def yes(key: Any, value: Any) -> bool:
    return True


def no(key: Any, value: Any) -> bool:
    return False


def same(value: Any) -> Any:
    return value


def several(value: Any) -> list[Any]:
    return [value]


def pair(key: Any, value: Any) -> tuple[Any, Any]:
    return key, value


def pairs(key: Any, value: Any) -> list[tuple[Any, Any]]:
    return [(key, value)]


def by_value(key: Any, value: Any) -> Any:
    return value


def value_twice(key: Any, value: Any) -> tuple[Any, Any]:
    return value, value


def add(key: Any, value: Any, aggregate: Any) -> Any:
    return aggregate + (value or b"")


def put_together(key: Any, left: Any, right: Any) -> Any:
    return left + right


def joined(left: Any, right: Any) -> Any:
    return f"{left} {right}".encode()


def both_groups(b: StreamsBuilder) -> tuple[KGroupedStream, KGroupedStream]:
    return b.stream("a").group_by_key(), b.stream("b").group_by_key()


MINUTES = TimeWindows.of_size(10)
NEAR = JoinWindows.of_time_difference(10)
as_ = Materialized.as_


@topology
def stateless(b: StreamsBuilder) -> None:
    b.stream("in").filter(yes).filter_not(no).map(pair).map_values(same).flat_map(pairs).flat_map_values(
        several
    ).select_key(by_value).peek(yes).to("out")


@topology
def stateless_named(b: StreamsBuilder) -> None:
    b.stream("in", name="src").filter(yes, name="f").map_values(same, name=Named.as_("mv")).filter(yes).to(
        "out", Produced.as_("snk")
    )


@topology
def two_topics(b: StreamsBuilder) -> None:
    b.stream(["b", "a"]).to("out")


@topology
def merge(b: StreamsBuilder) -> None:
    s = b.stream("a")
    s.merge(b.stream("b")).to("out")


@topology
def wordcount(b: StreamsBuilder) -> None:
    b.stream("in").flat_map_values(several).group_by(by_value).count(materialized=as_("Counts")).to_stream().to("out")


@topology
def count_unnamed(b: StreamsBuilder) -> None:
    b.stream("in").group_by(by_value).count().to_stream().to("out")


@topology
def count_named(b: StreamsBuilder) -> None:
    b.stream("in").group_by(by_value, Grouped.as_("g")).count(name="c", materialized=as_("st")).to_stream(name="ts").to(
        "out"
    )


@topology
def count_named_only(b: StreamsBuilder) -> None:
    b.stream("in").group_by(by_value).count(name="c").to_stream().to("out")


@topology
def count_key(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().count().to_stream().to("out")


@topology
def reduce_aggregate(b: StreamsBuilder) -> None:
    g = b.stream("in").group_by_key()
    g.reduce(joined).to_stream().to("o1")
    g.aggregate(bytes, add).to_stream().to("o2")


@topology
def two_aggs_named_group(b: StreamsBuilder) -> None:
    g = b.stream("in").group_by(by_value, name="g")
    g.reduce(joined)
    g.count()


@topology
def two_aggs_unnamed_group(b: StreamsBuilder) -> None:
    g = b.stream("in").group_by(by_value)
    g.reduce(joined)
    g.count()


@topology
def windowed(b: StreamsBuilder) -> None:
    b.stream("in").group_by(by_value).windowed_by(MINUTES).count().to_stream().to("out")


@topology
def windowed_reduce(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(MINUTES).reduce(joined).to_stream().to("out")


@topology
def windowed_agg(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(MINUTES).aggregate(bytes, add).to_stream().to("out")


@topology
def sliding(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(SlidingWindows.of_difference(5)).count().to_stream().to("out")


@topology
def session(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(SessionWindows.of_gap(5)).count().to_stream().to("out")


@topology
def session_agg(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(SessionWindows.of_gap(5)).aggregate(
        bytes, add, put_together
    ).to_stream().to("out")


@topology
def suppress(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(MINUTES).count().suppress(
        Suppressed.until_window_closes()
    ).to_stream().to("out")


@topology
def suppress_named(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(MINUTES).count().suppress(
        Suppressed.until_window_closes().with_name("sup")
    ).to_stream().to("out")


@topology
def suppress_limit(b: StreamsBuilder) -> None:
    b.table("in").suppress(Suppressed.until_time_limit(5, max_records=2)).to_stream().to("out")


@topology
def emit_final(b: StreamsBuilder) -> None:
    b.stream("in").group_by_key().windowed_by(MINUTES).emit_strategy(
        EmitStrategy.on_window_close()
    ).count().to_stream().to("out")


@topology
def table(b: StreamsBuilder) -> None:
    b.table("in").to_stream().to("out")


@topology
def table_mat(b: StreamsBuilder) -> None:
    b.table("in", materialized=as_("st")).to_stream().to("out")


@topology
def table_named(b: StreamsBuilder) -> None:
    b.table("in", Consumed.as_("t")).to_stream().to("out")


@topology
def table_ops(b: StreamsBuilder) -> None:
    b.table("in").filter(yes).filter_not(no).map_values(same).to_stream(by_value).to("out")


@topology
def table_ops_mat(b: StreamsBuilder) -> None:
    b.table("in").filter(yes, materialized=as_("f")).map_values(same, materialized=as_("m")).filter(
        yes, name="ff"
    ).to_stream().to("out")


@topology
def to_table(b: StreamsBuilder) -> None:
    b.stream("in").to_table().to_stream().to("out")


@topology
def to_table_rekeyed(b: StreamsBuilder) -> None:
    b.stream("in").select_key(by_value).to_table().to_stream().to("out")


@topology
def to_table_rekeyed_named(b: StreamsBuilder) -> None:
    b.stream("in").select_key(by_value).to_table(name="tt", materialized=as_("st")).to_stream().to("out")


@topology
def table_group(b: StreamsBuilder) -> None:
    b.table("in").group_by(value_twice).count().to_stream().to("out")


@topology
def table_group_reduce(b: StreamsBuilder) -> None:
    b.table("in").group_by(value_twice).reduce(joined, joined, materialized=as_("st")).to_stream().to("out")


@topology
def table_group_agg_named(b: StreamsBuilder) -> None:
    b.table("in").group_by(value_twice, Grouped.as_("g")).aggregate(bytes, add, add, name="x").to_stream().to("out")


@topology
def table_filter_group(b: StreamsBuilder) -> None:
    b.table("in").filter(yes).group_by(value_twice).count().to_stream().to("out")


@topology
def tt_join(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.join(b.table("b"), joined).to_stream().to("out")


@topology
def tt_left(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.left_join(b.table("b"), joined).to_stream().to("out")


@topology
def tt_outer_mat(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.outer_join(b.table("b"), joined, materialized=as_("j")).to_stream().to("out")


@topology
def tt_join_named(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.join(b.table("b"), joined, name="jn").to_stream().to("out")


@topology
def tt_join_filtered(b: StreamsBuilder) -> None:
    a = b.table("a").filter(yes)
    a.join(b.table("b").map_values(same), joined).to_stream().to("out")


@topology
def st_join(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.table("b"), joined).to("out")


@topology
def st_left_rekeyed(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value)
    a.left_join(b.table("b"), joined).to("out")


@topology
def st_join_rekeyed_named(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value)
    a.join(b.table("b"), joined, Joined.as_("jn")).to("out")


@topology
def st_grace(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.table("b", materialized=Materialized.versioned("v", history=100)), joined, grace=10, name="jn").to("out")


@topology
def st_grace_unnamed(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.table("b", materialized=Materialized.versioned("v", history=100)), joined, grace=10).to("out")


@topology
def sg_join(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.global_table("b"), by_value, joined).to("out")


@topology
def sg_left_named(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.left_join(b.global_table("b", materialized=as_("gs")), by_value, joined, name="j").to("out")


@topology
def sg_table_first(b: StreamsBuilder) -> None:
    table = b.global_table("b")
    b.stream("a").join(table, by_value, joined).to("out")


@topology
def sg_tables_between(b: StreamsBuilder) -> None:
    a = b.stream("a", Consumed.as_("z-source"))
    table = b.global_table("b", Consumed.as_("m-source"))
    c = b.stream("c", Consumed.as_("b-source"))
    a.join(table, by_value, joined).to("out")
    c.select_key(by_value).group_by_key().count().to_stream().to("counts")
    b.global_table("d")


@topology
def ss_join(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.stream("b"), joined, NEAR).to("out")


@topology
def ss_left(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.left_join(b.stream("b"), joined, NEAR).to("out")


@topology
def ss_outer(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.outer_join(b.stream("b"), joined, NEAR).to("out")


@topology
def ss_join_rekeyed(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value)
    a.join(b.stream("b").map(pair), joined, NEAR).to("out")


@topology
def ss_left_named(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value)
    a.left_join(b.stream("b").select_key(by_value), joined, NEAR, StreamJoined.as_("jn")).to("out")


@topology
def ss_left_named_both(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value)
    a.left_join(b.stream("b").select_key(by_value), joined, NEAR, StreamJoined.as_("js"), name="jn").to("out")


@topology
def ss_left_store_only(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.left_join(b.stream("b"), joined, NEAR, StreamJoined.as_("js")).to("out")


@topology
def ss_name_only(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.outer_join(b.stream("b"), joined, NEAR, name="jn").to("out")


@topology
def ss_self(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(a, joined, NEAR).to("out")


@topology
def fk_join(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.join(b.table("b"), joined, foreign_key=same).to_stream().to("out")


@topology
def fk_left_named(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.left_join(b.table("b"), joined, foreign_key=same, name="jn", materialized=as_("fs")).to_stream().to("out")


@topology
def fk_mat_only(b: StreamsBuilder) -> None:
    a = b.table("a")
    a.left_join(b.table("b"), joined, foreign_key=same, materialized=as_("fs")).to_stream().to("out")


@topology
def repartition(b: StreamsBuilder) -> None:
    b.stream("a").repartition().group_by_key().count().to_stream().to("out")


@topology
def repartition_named(b: StreamsBuilder) -> None:
    b.stream("a").select_key(by_value).repartition(Repartitioned.as_("r")).to("out")


@topology
def branch(b: StreamsBuilder) -> None:
    m = b.stream("a").split().branch(yes).branch(yes).default_branch()
    for i, k in enumerate(sorted(m)):
        m[k].to(f"o{i}")


@topology
def branch_named(b: StreamsBuilder) -> None:
    m = b.stream("a").split(name="sp-").branch(yes, "x").branch(yes, "y").default_branch("z")
    for k in sorted(m):
        m[k].to(f"osp-{k}")


@topology
def branch_half_named(b: StreamsBuilder) -> None:
    m = b.stream("a").split().branch(yes, "x").no_default_branch()
    for k in sorted(m):
        m[k].to(f"oKSTREAM-BRANCH-0000000001{k}")


@topology
def cogroup(b: StreamsBuilder) -> None:
    g, h = both_groups(b)
    g.cogroup(add).cogroup(h, add).aggregate(bytes).to_stream().to("out")


@topology
def cogroup_mat(b: StreamsBuilder) -> None:
    g, h = both_groups(b)
    g.cogroup(add).cogroup(h, add).aggregate(bytes, materialized=as_("st")).to_stream().to("out")


@topology
def cogroup_named(b: StreamsBuilder) -> None:
    g, h = both_groups(b)
    g.cogroup(add).cogroup(h, add).aggregate(bytes, materialized=as_("st"), name="cg").to_stream().to("out")


@topology
def cogroup_rekeyed(b: StreamsBuilder) -> None:
    g = b.stream("a").group_by(by_value, name="g")
    h = b.stream("b").group_by(by_value, name="h")
    g.cogroup(add).cogroup(h, add).aggregate(bytes).to_stream().to("out")


@topology
def cogroup_rekeyed_one(b: StreamsBuilder) -> None:
    g = b.stream("a").group_by(by_value)
    h = b.stream("b").group_by_key()
    g.cogroup(add).cogroup(h, add).aggregate(bytes).to_stream().to("out")


@topology
def cogroup_windowed(b: StreamsBuilder) -> None:
    g, h = both_groups(b)
    g.cogroup(add).cogroup(h, add).windowed_by(MINUTES).aggregate(bytes).to_stream().to("out")


@topology
def process(b: StreamsBuilder) -> None:
    b.add_state_store("ps")
    b.stream("a").process(Forwarding, "ps").to("out")


@topology
def process_values(b: StreamsBuilder) -> None:
    b.stream("a").process_values(Forwarding).to("out")


@topology
def two_subs(b: StreamsBuilder) -> None:
    b.stream("a").to("x")
    b.stream("b").to("y")


@topology
def two_subs_named(b: StreamsBuilder) -> None:
    b.stream("a", name="zz").to("x")
    b.stream("b", name="aa").to("y")


@topology
def flights(b: StreamsBuilder) -> None:
    b.stream("flights").filter(yes).map_values(same).group_by(by_value).windowed_by(MINUTES).count().suppress(
        Suppressed.until_window_closes()
    ).to_stream().to("carrier.daily")


@topology
def tt_windowed_join(b: StreamsBuilder) -> None:
    a = b.stream("a").group_by_key().count()
    a.join(b.stream("b").group_by_key().count(), joined).to_stream().to("out")


@topology
def st_agg(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.join(b.stream("b").group_by_key().count(), joined).to("out")


@topology
def rekeyed_reused(b: StreamsBuilder) -> None:
    s = b.stream("a").select_key(by_value)
    s.group_by_key().count()
    s.join(b.table("t"), joined).to("out")


@topology
def rekeyed_joined_twice(b: StreamsBuilder) -> None:
    s = b.stream("a").select_key(by_value)
    s.join(b.table("t"), joined).to("o1")
    s.left_join(b.table("u"), joined).to("o2")
    s.join(b.stream("b"), joined, NEAR).to("o3")
    s.group_by_key().count()


@topology
def rekeyed_self_join(b: StreamsBuilder) -> None:
    s = b.stream("a").select_key(by_value)
    s.join(s, joined, NEAR).to("o")


@topology
def through_two(b: StreamsBuilder) -> None:
    a = b.stream("a").select_key(by_value).to_table()
    a.join(b.table("t"), joined).group_by(value_twice).count().to_stream().to("out")


@topology
def same_topic_twice(b: StreamsBuilder) -> None:
    b.stream("a").to("x")
    b.stream("a").map_values(same).to("y")


@topology
def rekeyed_mapped_join(b: StreamsBuilder) -> None:
    b.stream("a").select_key(by_value).map_values(same).join(b.table("b"), joined).to("out")


@topology
def named_rekey_join(b: StreamsBuilder) -> None:
    b.stream("a").select_key(by_value, name="rk").join(b.table("b"), joined).to("out")


@topology
def table_stream_rekeyed_count(b: StreamsBuilder) -> None:
    b.table("a").to_stream(by_value).group_by_key(name="g").count().to_stream().to("out")


@topology
def merge_reversed(b: StreamsBuilder) -> None:
    a, other = b.stream("a"), b.stream("b")
    other.select_key(by_value).merge(a).group_by_key().count().to_stream().to("out")


@topology
def tt_chain(b: StreamsBuilder) -> None:
    both = b.table("a").join(b.table("b"), joined)
    both.left_join(b.table("c", materialized=as_("cs")), joined).to_stream().to("out")


@topology
def table_group_named_twice(b: StreamsBuilder) -> None:
    g = b.table("a").group_by(value_twice, name="g")
    g.count()
    g.reduce(joined, joined)


@topology
def table_group_twice(b: StreamsBuilder) -> None:
    g = b.table("a").group_by(value_twice)
    g.count(materialized=as_("x"))
    g.reduce(joined, joined)


@topology
def cogroup_single(b: StreamsBuilder) -> None:
    b.stream("a").group_by_key().cogroup(add).aggregate(bytes).to_stream().to("out")


@topology
def windowed_named_group(b: StreamsBuilder) -> None:
    grouped = b.stream("a").group_by(by_value, name="g").windowed_by(MINUTES)
    grouped.count(name="n", materialized=as_("ws")).to_stream().to("out")


@topology
def session_reduce(b: StreamsBuilder) -> None:
    grouped = b.stream("a").group_by_key().windowed_by(SessionWindows.of_gap(5))
    grouped.reduce(joined, name="r").to_stream().to("out")


@topology
def versioned_join(b: StreamsBuilder) -> None:
    a = b.stream("a")
    a.left_join(b.table("b", materialized=Materialized.versioned("v", history=100)), joined).to("out")


@topology
def st_then_st(b: StreamsBuilder) -> None:
    once = b.stream("a").select_key(by_value).join(b.table("b"), joined)
    once.join(b.table("c"), joined).to("out")


@topology
def ss_then_count(b: StreamsBuilder) -> None:
    both = b.stream("a").join(b.stream("b"), joined, NEAR)
    both.group_by_key().windowed_by(MINUTES).count().to_stream().to("out")


@topology
def fk_then_join(b: StreamsBuilder) -> None:
    both = b.table("a").join(b.table("b"), joined, foreign_key=same)
    both.join(b.table("c"), joined).to_stream().to("out")


@topology
def fk_self(b: StreamsBuilder) -> None:
    table = b.table("a")
    table.join(table, joined, foreign_key=same).to_stream().to("out")


@topology
def tt_self(b: StreamsBuilder) -> None:
    table = b.table("a")
    table.join(table, joined).to_stream().to("out")


@topology
def many_below(b: StreamsBuilder) -> None:
    s = b.stream("a").filter(yes)
    s.to("x")
    s.map_values(same).to("y")
    s.map_values(same).map_values(same).to("z")
