"""Functions of batches: what they see, what becomes of their answers, whom a failure is of, and whether cuts matter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from support.block_runs import Fed, Ran, run_both

from suiro.streams import StreamsBuilder, TopologyError, explain, serdes
from suiro.streams.errors import ProcessingError
from suiro.streams.operators.context import TaskSettings
from suiro.streams.records import Record
from suiro.streams.topology.topology import Topology
from suiro.testing import BatchesDifferError, TopologyTestDriver

READS = {"amount": "float64", "article": "string"}


def given(function: Any, *, key: Any = serdes.string, **options: Any) -> Topology:
    options = {"reads": READS, "schema": {"price": "float64"}, "name": "batch"} | options
    builder = StreamsBuilder()
    records = builder.stream("in", key=key, value=serdes.json)
    records.map_batches(function, **options).to("out", value=serdes.json)
    return builder.build()


def ran(topology: Topology, values: list[Any], policy: str = "fail", *, in_blocks: bool = True) -> Ran:
    (sub,) = topology.sub_topologies
    source = topology.nodes[0].name
    fed = [Fed(source, Record(f"k{n}", value, n)) for n, value in enumerate(values)]
    (found,) = run_both(topology, sub, [[fed]], TaskSettings(on_processing_error=policy), only=in_blocks)
    return found


def results(found: Ran) -> list[Any]:
    return [None if row[2] is None else serdes.json.deserialize("", row[2]) for row in found.left.get("out", [])]


def doubled(table: pa.Table) -> pa.Table:
    return pa.table({"price": pc.multiply(table["amount"], 2)})


# -- what they see ------------------------------------------------------------------------------------------


def test_a_function_sees_a_block_as_one_table() -> None:
    seen: list[pa.Table] = []

    def look(table: pa.Table) -> pa.Table:
        seen.append(table)
        return doubled(table)

    found = ran(given(look), [{"amount": 1.5, "article": "a"}, {"amount": 2}, {"article": "b", "more": 1}])
    assert results(found) == [{"price": 3.0}, {"price": 4.0}, {"price": None}]
    (table,) = seen
    assert table.to_pydict() == {
        "record_key": ["k0", "k1", "k2"],
        "record_timestamp": [0, 1, 2],
        "amount": [1.5, 2.0, None],
        "article": ["a", None, "b"],
    }
    assert [str(kind) for kind in table.schema.types] == ["string", "int64", "double", "string"]


def test_keys_may_have_another_type_or_be_left_out() -> None:
    names: list[list[str]] = []

    def look(table: pa.Table) -> pa.Table:
        names.append(table.column_names)
        return doubled(table)

    ran(given(look, key_type=None), [{"amount": 1}])
    assert names == [["record_timestamp", "amount", "article"]]
    found = ran(given(look, key_type="int64"), [{"amount": 1}], "skip")
    assert (results(found), found.dropped) == ([], {"processing error": 1})


def test_values_without_fields_are_one_column() -> None:
    found = ran(given(lambda table: pc.negate(table["value"]), reads="int64", schema="int32"), [1, 2, 3])
    assert results(found) == [-1, -2, -3]


def test_a_null_value_stays_one_and_is_not_seen() -> None:
    seen: list[int] = []

    def look(table: pa.Table) -> pa.Table:
        seen.append(len(table))
        return doubled(table)

    assert results(ran(given(look), [None, {"amount": 1}, None])) == [None, {"price": 2.0}, None]
    assert results(ran(given(look), [None])) == [None]
    assert seen == [1]


def test_pandas_has_the_same_types_for_every_batch() -> None:
    """Its own inference makes floats of integers where one of the batch is null."""
    kinds: set[tuple[str, ...]] = set()

    def look(frame: pd.DataFrame) -> pd.DataFrame:
        kinds.add(tuple(map(str, frame.dtypes)))
        return frame.assign(price=frame["n"] + 1)

    reads = {"n": "int64", "is": "bool", "x": "float64"}
    topology = given(look, reads=reads, schema={"price": "int64"}, format="pandas")
    assert results(ran(topology, [{"n": 1, "is": True}, {"n": None}])) == [{"price": 2}, {"price": None}]
    assert results(ran(topology, [{"n": 1, "is": False, "x": 1.0}])) == [{"price": 2}]
    assert kinds == {("object", "Int64", "Int64", "boolean", "float64")}


def test_polars_frames() -> None:
    polars = pytest.importorskip("polars")
    topology = given(lambda frame: frame.select(price=polars.col("amount") * 2), format="polars")
    assert results(ran(topology, [{"amount": 1.5}])) == [{"price": 3.0}]
    topology = given(lambda frame: frame["amount"], format="polars", schema="float64")
    assert results(ran(topology, [{"amount": 1.5}])) == [1.5]


# -- what they give -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "made",
    [
        lambda table: table["amount"],
        lambda table: table["amount"].combine_chunks(),
        lambda table: table["amount"].to_numpy(),
        lambda table: table["amount"].to_pandas(),
        lambda table: table["amount"].to_pylist(),
        lambda table: pa.table({"any": table["amount"]}),
        lambda table: pd.DataFrame({"any": table["amount"].to_numpy()}),
    ],
)
def test_one_column_comes_in_every_form(made: Callable[[pa.Table], Any]) -> None:
    assert results(ran(given(made, schema="float64"), [{"amount": 1}, {"amount": 2}])) == [1.0, 2.0]


def test_answers_have_the_types_that_were_named_and_only_these_columns() -> None:
    def make(table: pa.Table) -> pd.DataFrame:
        return pd.DataFrame({"n": [1, 2], "price": [1, None], "more": ["a", "b"]})

    found = ran(given(make, schema={"price": "int64", "n": "string"}), [{"amount": 1}, {"amount": 2}])
    assert results(found) == [{"n": "1", "price": 1}, {"n": "2", "price": None}]


def test_answers_of_another_form_end_the_application_whatever_the_policy() -> None:
    for function, said in (
        (lambda table: doubled(table).slice(1), "returned 1 rows for 2 records"),
        (
            lambda table: doubled(table).rename_columns(["cost"]),
            "no column price, which schema= names, but cost",
        ),
        (lambda table: table["amount"], "returned one column, a ChunkedArray; schema= names columns"),
        (lambda table: None, "returned a NoneType; return a table"),
        (lambda table: np.zeros((2, 2)), "returned a ndarray"),
    ):
        with pytest.raises(ProcessingError, match=said):
            ran(given(function), [{"amount": 1}, {"amount": 2}], "skip")


# -- whom a failure is of -----------------------------------------------------------------------------------


def refused(table: pa.Table) -> pa.Table:
    for amount in table["amount"].to_pylist():
        if amount < 0:
            raise ValueError(f"no amount is {amount}")
    return doubled(table)


VALUES = [{"amount": n if n not in (5, 11) else -n} for n in range(20)]


@pytest.mark.parametrize("in_blocks", [True, False])
@pytest.mark.parametrize("policy", ["skip", "dead-letter:letters"])
def test_the_records_that_fail_are_found_and_the_others_go_on(policy: str, in_blocks: bool) -> None:
    found = ran(given(refused), VALUES, policy, in_blocks=in_blocks)
    assert results(found) == [{"price": 2.0 * n} for n in range(20) if n not in (5, 11)]
    assert found.dropped == {"processing error": 2}
    letters = [row[4] for row in found.left.get("letters", [])]
    wanted = [("(0, 5)", "ValueError('no amount is -5.0')"), ("(0, 11)", "ValueError('no amount is -11.0')")]
    assert letters == (wanted if policy != "skip" else [])


@pytest.mark.parametrize("in_blocks", [True, False])
def test_the_first_record_that_fails_is_blamed(in_blocks: bool) -> None:
    with pytest.raises(ProcessingError, match=r"operator batch failed on a record of .* offset 5, key 'k5'.*-5\.0"):
        ran(given(refused), VALUES, in_blocks=in_blocks)


def test_finding_who_failed_takes_few_calls() -> None:
    calls: list[int] = []

    def count(table: pa.Table) -> pa.Table:
        calls.append(len(table))
        return refused(table)

    values = [{"amount": -1 if n == 700 else n} for n in range(1024)]
    found = ran(given(count), values, "skip")
    assert len(results(found)) == 1023
    assert len(calls) == 21  # two for each halving
    calls.clear()
    with pytest.raises(ProcessingError, match="offset 700"):
        ran(given(count), values)
    assert len(calls) < 21  # what is behind it is not tried


@pytest.mark.parametrize("bad", [7, {"amount": "much"}, {"amount": [1]}, ["amount"]])
def test_a_value_that_fits_no_column_is_blamed(bad: Any) -> None:
    found = ran(given(doubled), [{"amount": 1}, bad, {"amount": 2}], "skip")
    assert results(found) == [{"price": 2.0}, {"price": 4.0}]
    assert found.dropped == {"processing error": 1}


def test_a_result_that_does_not_fit_its_type_is_blamed() -> None:
    topology = given(lambda table: table["amount"], schema="int64")
    found = ran(topology, [{"amount": 1}, {"amount": 1.5}, {"amount": 2}], "skip")
    assert (results(found), found.dropped) == ([1, 2], {"processing error": 1})


# -- cuts ---------------------------------------------------------------------------------------------------


def piped(topology: Topology, values: list[Any], **options: Any) -> list[Any]:
    with TopologyTestDriver(topology, **options) as driver:
        topic = driver.create_input_topic("in")
        for number, value in enumerate(values):
            topic.pipe_input(f"k{number}", value)
        return [value for _, value in driver.create_output_topic("out").read_key_values_to_list()]


def centred(table: pa.Table) -> pa.Table:
    return pa.table({"price": pc.subtract(table["amount"], pc.mean(table["amount"]))})


@pytest.mark.parametrize("cuts", [1, 20, [[3], [1, 7]]])
def test_a_function_that_keeps_its_promise_passes(cuts: Any) -> None:
    found = piped(given(doubled), VALUES, cuts=cuts)
    assert found == [{"price": 2.0 * value["amount"]} for value in VALUES]


def test_the_first_difference_is_named() -> None:
    said = (
        r"batch: of the batch of records 3 to 5 \(of 20, from 0\) record 3, key 'k3', value {'amount': 3}, becomes "
        r"{'price': 2\.66.*}, and alone {'price': 0\.0}"
    )
    with pytest.raises(BatchesDifferError, match=said):
        piped(given(centred), [{"amount": n if n != 5 else -6} for n in range(20)], cuts=[[1, 1, 1, 3]])


@pytest.mark.parametrize("seed", range(3))
def test_drawn_cuts_find_functions_that_look_at_their_neighbours(seed: int) -> None:
    for function in (centred, lambda table: doubled(table.sort_by([("amount", "descending")]))):
        with pytest.raises(BatchesDifferError, match="Where records are cut into batches must make no difference"):
            piped(given(function), VALUES, cuts=5, cuts_seed=seed)


def test_a_function_that_remembers_is_found() -> None:
    total = [0.0]

    def running(table: pa.Table) -> list[float]:
        made = []
        for amount in table["amount"].to_pylist():
            total[0] += amount
            made.append(total[0])
        return made

    with pytest.raises(BatchesDifferError):
        piped(given(running, schema="float64"), VALUES, cuts=3)


def test_failures_and_nulls_are_compared_too() -> None:
    values = [*VALUES, None]
    assert len(piped(given(refused), values, cuts=10, on_processing_error="skip")) == 19


def test_what_fails_in_a_test_is_not_hidden_by_the_cuts() -> None:
    with pytest.raises(ProcessingError):
        piped(given(refused), VALUES, cuts=3)


@pytest.mark.parametrize("cuts", [0, True, [[]], [[0]]])
def test_cuts_out_of_their_range_are_refused(cuts: Any) -> None:
    from suiro.errors import UsageError

    with pytest.raises(UsageError, match="cuts="):
        TopologyTestDriver(given(doubled), cuts=cuts)


# -- what is refused ----------------------------------------------------------------------------------------


async def later(table: Any) -> Any:
    return table


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"mapper": later}, "is an async function"),
        ({"mapper": 7}, "is not a Python callable"),
        ({"format": "csv"}, 'give "pyarrow", "pandas" or "polars"'),
        ({"reads": {}}, "reads of map_batches names no column"),
        ({"reads": {"a": "decimal"}}, r"reads\['a'\] of map_batches is 'decimal', which is no type"),
        ({"reads": {"a": 7}}, "which is no type"),
        ({"reads": {7: "int64"}}, "names are strings"),
        ({"schema": None}, "schema of map_batches is None, which is no type"),
        ({"reads": {"record_key": "string"}}, "names the column 'record_key', which is of the record itself"),
        ({"key_type": "text"}, "key_type of map_batches is 'text', which is no type"),
    ],
)
def test_what_cannot_work_is_refused_while_the_topology_is_built(options: dict[str, Any], said: str) -> None:
    records = StreamsBuilder().stream("in")
    options = {"mapper": doubled, "reads": READS, "schema": "float64"} | options
    with pytest.raises(TopologyError, match=said):
        records.map_batches(**options)


def test_schemas_and_types_of_arrow_are_taken() -> None:
    topology = given(
        lambda table: table.select(["tags"]),
        reads=pa.schema([("tags", pa.list_(pa.string()))]),
        schema={"tags": pa.list_(pa.string())},
    )
    assert results(ran(topology, [{"tags": ["a"]}, {"tags": None}])) == [{"tags": ["a"]}, {"tags": None}]


def test_explain_names_the_frame() -> None:
    assert "batch: values to a frame of pandas and back to values, a block at a time" in explain(
        given(doubled, format="pandas")
    )


def test_functions_of_batches_stand_beside_those_of_records() -> None:
    builder = StreamsBuilder(key=serdes.string, value=serdes.json)
    records = builder.stream("in").filter(lambda key, value: value["amount"] > 0)
    priced = records.map_batches(doubled, reads=READS, schema={"price": "float64"})
    priced.map_values(lambda value: value["price"]).group_by_key().reduce(lambda one, two: one + two).to_stream().to(
        "out"
    )
    assert piped(builder.build(), [{"amount": n} for n in (-1, 1, 2)], cuts=4) == [2.0, 4.0]
