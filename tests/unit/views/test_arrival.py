"""Which views have rows that depend on who came first, and that it is said."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from suiro.streams import Joined, Materialized, StreamsBuilder, serdes
from suiro.streams_spark.plan import plan
from suiro.views import view
from suiro.views.definition import VersionSpec, by_arrival, note_of, topology_of


def streams(builder: StreamsBuilder) -> tuple[Any, Any]:
    return (
        builder.stream("flights", key=serdes.string, value=serdes.json),
        builder.table("carriers", key=serdes.string, value=serdes.json),
    )


def with_table(builder: StreamsBuilder) -> Any:
    flights, carriers = streams(builder)
    joined = flights.join(carriers, lambda flight, carrier: flight | carrier)
    return joined.repartition().group_by_key().count()


def with_global(builder: StreamsBuilder) -> Any:
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    carriers = builder.global_table("carriers", key=serdes.string, value=serdes.json)
    joined = flights.join(carriers, lambda key, flight: flight["carrier"], lambda flight, carrier: flight | carrier)
    return joined.group_by_key().count()


def with_grace(builder: StreamsBuilder) -> Any:
    flights = builder.stream("flights", key=serdes.string, value=serdes.json)
    carriers = builder.table(
        "carriers",
        key=serdes.string,
        value=serdes.json,
        materialized=Materialized.versioned("carriers-then", history="1 hour"),
    )
    joined = flights.join(carriers, lambda flight, carrier: flight | carrier, Joined.with_(grace="1 minute"))
    return joined.group_by_key().count()


def of_two_tables(builder: StreamsBuilder) -> Any:
    flights, carriers = streams(builder)
    return flights.group_by_key().count().join(carriers, lambda count, carrier: carrier | {"flights": count})


@pytest.mark.parametrize(("build", "count"), [(with_table, 1), (with_global, 1), (with_grace, 0), (of_two_tables, 0)])
def test_joins_that_take_what_is_there(build: Callable[[StreamsBuilder], Any], count: int) -> None:
    definition = view("flights", key="carrier")(build).definition  # type: ignore[attr-defined]
    assert len(by_arrival(topology_of(definition, "flights.v1"))) == count
    spec = VersionSpec.of(definition, 1, code="c", entry="app.py:f")
    assert len(spec.by_arrival) == count
    planned = plan(spec.topology_of(definition), spec.application_id, dict.fromkeys(spec.inputs, 1))
    assert set(spec.internal_topics) == {topic.name for topic in planned.internal_topics}
    assert VersionSpec.from_json(spec.to_json()) == spec


def test_a_spec_of_before_is_read() -> None:
    spec = VersionSpec.of(view("flights", key="carrier")(of_two_tables).definition, 1, code="c", entry="app.py:f")  # type: ignore[attr-defined]
    old = {name: value for name, value in spec.to_json().items() if name not in ("by_arrival", "journal_id")}
    assert VersionSpec.from_json(old) == spec


def test_it_is_said_of_the_version_that_has_one() -> None:
    assert note_of({1: (), 2: ()}) is None
    assert "order of arrival and not from the code: version 2 by JOIN-1, JOIN-2 joins" in str(
        note_of({1: (), 2: ("JOIN-1", "JOIN-2")})
    )
