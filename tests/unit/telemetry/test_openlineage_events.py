"""OpenLineage events are as the published schema has them, whatever names and messages are."""

from __future__ import annotations

import json
from uuid import UUID

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from suiro.telemetry import Column, ColumnOrigin, Dataset, Datasets, Job, columns_of, kafka_namespace
from suiro.telemetry.openlineage import encode_event, new_run_id
from tests.support.openlineage import check_event

JOB = Job(namespace="default", name="orders", kind="APPLICATION")
TEXT = st.text(st.characters(), max_size=40)
COLUMNS = st.recursive(
    st.builds(Column, name=TEXT, type=st.none() | TEXT),
    lambda inner: st.builds(Column, name=TEXT, columns=st.lists(inner, max_size=3).map(tuple)),
    max_leaves=8,
)
ORIGINS = st.builds(ColumnOrigin, namespace=TEXT, name=TEXT, column=TEXT, is_identity=st.booleans())
DATASETS = st.lists(
    st.builds(
        Dataset,
        namespace=TEXT,
        name=TEXT,
        columns=st.lists(COLUMNS, max_size=3).map(tuple),
        origins=st.dictionaries(TEXT, st.lists(ORIGINS, max_size=2).map(tuple), max_size=3),
    ),
    max_size=3,
).map(tuple)


@given(
    kind=st.sampled_from(["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]),
    inputs=DATASETS,
    outputs=DATASETS,
    name=TEXT,
    message=TEXT,
    at_ms=st.integers(0, 1 << 42),
)
def test_every_event_is_valid(kind, inputs, outputs, name, message, at_ms) -> None:  # type: ignore[no-untyped-def]
    job = Job(namespace=name, name=name, kind="VIEW")
    error = ValueError(message) if kind == "FAIL" else None
    datasets = Datasets(inputs=inputs, outputs=outputs)
    event = check_event(json.loads(encode_event(kind, job, new_run_id(at_ms), at_ms, datasets, error=error)))
    assert [one["name"] for one in event["inputs"]] == [
        one.name.encode("utf-8", "backslashreplace").decode() for one in inputs
    ]


def test_the_check_sees_a_wrong_event() -> None:
    event = json.loads(encode_event("START", JOB, new_run_id(5), 5, Datasets()))
    with pytest.raises(jsonschema.ValidationError):
        check_event({**event, "eventType": "BEGIN"})
    with pytest.raises(jsonschema.ValidationError):
        check_event({**event, "run": {"runId": "5"}})
    event["job"]["facets"]["jobType"].pop("integration")
    with pytest.raises(jsonschema.ValidationError):
        check_event(event)


def test_run_ids_sort_by_time() -> None:
    ids = [new_run_id(at) for at in (1, 1_000, 1_700_000_000_000)]
    assert ids == sorted(ids)
    assert {UUID(one).version for one in ids} == {7}
    assert len({new_run_id(1) for _ in range(100)}) == 100


def test_the_namespace_is_of_the_first_server() -> None:
    assert kafka_namespace("a:9092, b:9092") == "kafka://a:9092"


def test_columns_of_avro() -> None:
    schema = {
        "type": "record",
        "name": "Order",
        "fields": [
            {"name": "id", "type": "long"},
            {"name": "note", "type": ["null", "string"]},
            {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
            {"name": "lines", "type": {"type": "array", "items": "int"}},
            {
                "name": "of",
                "type": ["null", {"type": "record", "name": "C", "fields": [{"name": "x", "type": "int"}]}],
            },
        ],
    }
    assert columns_of("AVRO", json.dumps(schema)) == (
        Column(name="id", type="long"),
        Column(name="note", type="string"),
        Column(name="at", type="timestamp-millis"),
        Column(name="lines", type="array<int>"),
        Column(name="of", type="record", columns=(Column(name="x", type="int"),)),
    )


def test_columns_of_json_schema() -> None:
    schema = {"properties": {"a": {"type": ["null", "integer"]}, "b": {"properties": {"c": {}}}, "d": True}}
    assert columns_of("JSON", json.dumps(schema)) == (
        Column(name="a", type="integer"),
        Column(name="b", columns=(Column(name="c"),)),
        Column(name="d"),
    )


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | TEXT,
        lambda inner: (
            st.lists(inner, max_size=3)
            | st.dictionaries(st.sampled_from(["type", "fields", "name", "items", "properties", "logicalType"]), inner)
        ),
        max_leaves=20,
    )
)
def test_any_schema_gives_columns_or_none(schema: object) -> None:
    for language in ("AVRO", "JSON", "PROTOBUF"):
        columns_of(language, json.dumps(schema))


def test_a_schema_without_end_gives_few_columns() -> None:
    wide = {"type": "record", "fields": [{"name": f"c{n}", "type": "int"} for n in range(5_000)]}
    assert len(columns_of("AVRO", json.dumps(wide))) == 1_000
    deep: object = "int"
    for _ in range(100):
        deep = {"type": "record", "fields": [{"name": "x", "type": deep}]}
    (column,) = columns_of("AVRO", json.dumps(deep))
    depth = 1
    while column.columns:
        (column,), depth = column.columns, depth + 1
    assert depth == 8
    assert columns_of("AVRO", "[" * 100_000) == ()
