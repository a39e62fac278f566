"""Calls the functions of `map_batches`: converts records to a table or frame, and the result back to values.

The columns of every batch have the types that the topology names. Types inferred from the records of a batch would
depend on where the batch is cut. A batch that fails is halved until the failing record is found, so a function may see
a record more than once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any

from suiro.errors import ConfigError
from suiro.streams.calls import Failed
from suiro.streams.topology.nodes import Columns, MapBatches

if TYPE_CHECKING:
    import pyarrow as pa

KEY, TIMESTAMP, VALUE = "record_key", "record_timestamp", "value"
"""Names of columns: the record's key and timestamp (ms); its value, where that has no fields."""


class BatchAnswerError(ConfigError):
    """The function's answer is no table of the columns that the topology names, with a row for each record."""


def batch_results(
    operator: MapBatches,
    keys: Sequence[Any],
    values: Sequence[Any],
    timestamps: Sequence[int],
    *,
    ends_at_failure: bool = False,
) -> list[Any]:
    """Returns for each record its new value, or `Failed`. The function does not see null values, which stay null.
    `ends_at_failure`: the result ends with the first `Failed`."""
    rows = [row for row, value in enumerate(values) if value is not None]
    found: list[Any] = [None] * len(values)
    columns = (
        [keys[row] for row in rows],
        [values[row] for row in rows],
        [timestamps[row] for row in rows],
    )
    last = len(values)
    for row, result in zip(rows, _halved(operator, columns, 0, len(rows)), strict=False):
        found[row] = result
        if ends_at_failure and isinstance(result, Failed):
            last = row + 1
            break
    return found[:last]


def _halved(
    operator: MapBatches, columns: tuple[list[Any], list[Any], list[int]], first: int, end: int
) -> Iterator[Any]:
    """Yields lazily: where the first failure ends all, later records are not tried."""
    if first == end:
        return
    try:
        answer = operator.function(_asked(operator, *(column[first:end] for column in columns)))
        made = _values(_columns(answer, operator.gives, end - first), operator.gives)
    except BatchAnswerError:
        raise
    except Exception as error:  # noqa: BLE001 - a user's function raises anything
        if end - first == 1:
            yield Failed(error)
            return
        middle = (first + end) // 2
        yield from _halved(operator, columns, first, middle)
        yield from _halved(operator, columns, middle, end)
        return
    yield from made


def _asked(operator: MapBatches, keys: list[Any], values: list[Any], timestamps: list[int]) -> Any:
    import pyarrow as pa

    columns: dict[str, pa.Array] = {}
    if operator.key_type is not None:
        columns[KEY] = pa.array(keys, arrow_type(operator.key_type))
    columns[TIMESTAMP] = pa.array(timestamps, pa.int64())
    for name, kind in operator.reads.fields:
        items = values if operator.reads.is_value else _field(values, name)
        columns[name] = pa.array(items, arrow_type(kind))
    table = pa.table(columns)
    if operator.format == "pandas":
        return table.to_pandas(types_mapper=_nullable().get)
    if operator.format == "polars":
        import polars

        return polars.from_arrow(table)
    return table


def arrow_type(kind: Any) -> pa.DataType:
    """Returns Arrow's type for a type or the name of one. Raises `ValueError` for anything else."""
    import pyarrow as pa

    if isinstance(kind, pa.DataType):
        return kind
    if not isinstance(kind, str):
        raise ValueError(f"{kind!r} is no type")
    return pa.type_for_alias(kind)


def _field(values: list[Any], name: str) -> list[Any]:
    for value in values:
        if not isinstance(value, dict):
            raise TypeError(f"the value is a {type(value).__name__}, not a dict that may have the field {name!r}")
    return [value.get(name) for value in values]


def _nullable() -> dict[Any, Any]:
    """Returns the types of pandas that stay the same when a value is null, by Arrow's types."""
    import pandas as pd
    import pyarrow as pa

    found: dict[Any, Any] = {pa.bool_(): pd.BooleanDtype()}
    for bits in (8, 16, 32, 64):
        found[pa.type_for_alias(f"int{bits}")] = getattr(pd, f"Int{bits}Dtype")()
        found[pa.type_for_alias(f"uint{bits}")] = getattr(pd, f"UInt{bits}Dtype")()
    return found


def _columns(answer: Any, gives: Columns, rows: int) -> list[Any]:
    """Returns the columns of an answer as Arrow arrays, in the order of the schema. Raises `BatchAnswerError` if they
    do not fit it."""
    names = [name for name, _ in gives.fields]
    found = _arrow(answer)
    if isinstance(found, dict):
        if gives.is_value and len(found) == 1:
            found = next(iter(found.values()))
        elif gives.is_value:
            raise BatchAnswerError(
                f"the function of map_batches returned the columns {', '.join(found)}, and schema= is one type: return "
                "one column, or name the columns in schema="
            )
        elif missing := [name for name in names if name not in found]:
            raise BatchAnswerError(
                f"the function of map_batches returned no column {', '.join(missing)}, which schema= names, but "
                f"{', '.join(found) or 'none'}"
            )
    elif not gives.is_value:
        raise BatchAnswerError(
            f"the function of map_batches returned one column, a {type(answer).__name__}; schema= names columns "
            f"({', '.join(names)}), so return a table or frame that has them"
        )
    columns = [found[name] for name in names] if isinstance(found, dict) else [found]
    for column in columns:
        if len(column) != rows:
            raise BatchAnswerError(
                f"the function of map_batches returned {len(column)} rows for {rows} records; it must return "
                "one for each, in their order. To leave records out, mark them and filter() below"
            )
    return columns


def _arrow(answer: Any) -> Any:
    """Returns Arrow columns by name, or one column that has no name."""
    import pyarrow as pa

    if isinstance(answer, pa.Table | pa.RecordBatch):
        return dict(zip(answer.schema.names, answer.columns, strict=True))
    if isinstance(answer, pa.Array | pa.ChunkedArray):
        return answer
    package = type(answer).__module__.partition(".")[0]
    has_columns = hasattr(answer, "columns")
    if package == "pandas":
        if has_columns:
            return {str(name): pa.Array.from_pandas(answer[name]) for name in answer.columns}
        return pa.Array.from_pandas(answer)
    if package == "polars":
        return {name: answer[name].to_arrow() for name in answer.columns} if has_columns else answer.to_arrow()
    if package == "numpy" and getattr(answer, "ndim", 0) == 1:
        return pa.array(answer)
    if isinstance(answer, list):
        return pa.array(answer)
    raise BatchAnswerError(
        f"the function of map_batches returned a {type(answer).__qualname__}; return a table or record batch of "
        "pyarrow, a frame of pandas or polars, or one column"
    )


def _values(columns: list[Any], gives: Columns) -> list[Any]:
    lists = [column.cast(arrow_type(kind)).to_pylist() for column, (_, kind) in zip(columns, gives.fields, strict=True)]
    if gives.is_value:
        return list(lists[0])
    names = [name for name, _ in gives.fields]
    return [dict(zip(names, row, strict=True)) for row in zip(*lists, strict=True)]
