"""`map_batches`: a part of `KStream`."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, get_args

from suiro.extras import is_installed, require
from suiro.streams.batches import KEY, TIMESTAMP, VALUE, arrow_type
from suiro.streams.dsl.checks import python_function
from suiro.streams.dsl.kstream_async import StreamNode
from suiro.streams.dsl.named import Name
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology.nodes import BatchFormat, Columns, MapBatches

if TYPE_CHECKING:
    from suiro.streams.dsl.kstream import KStream


class BatchOperators(StreamNode):
    __slots__ = ()

    def map_batches(
        self,
        mapper: Callable[[Any], Any],
        *,
        reads: Any,
        schema: Any,
        format: BatchFormat = "pyarrow",
        key_type: Any = "string",
        value: Serde | None = None,
        name: Name = None,
    ) -> KStream:
        """`mapper(table)` gives a table with a row for each of the same records, whose fields are the new values.

        `reads`: fields of the values and their Arrow types, which become columns; one type, where a value has no
        fields: the column `value`. The other columns are `record_key`, of `key_type` (None: without), and
        `record_timestamp`, in ms. `schema`: the same for the result. The boundaries of batches are not defined. The
        result must not depend on them; `TopologyTestDriver(cuts=...)` tests that.

        >>> def hours(table):
        ...     minutes = table["value"].to_pylist()
        ...     return table.select([]).append_column("hours", [[each / 60 for each in minutes]])
        >>> results(delays.map_batches(hours, reads="int64", schema={"hours": "float64"}), delays=[("UA", 90, 0)])
        [('UA', {'hours': 1.5}, 0)]
        """
        if format not in get_args(BatchFormat):
            raise TopologyError(f'format of map_batches is {format!r}; give "pyarrow", "pandas" or "polars"')
        if not is_installed("pyarrow"):
            require("spark")
        if format == "polars" and not is_installed("polars"):
            raise TopologyError(
                "map_batches with format polars needs polars, which is not installed: pip install polars"
            )
        columns = _columns(reads, "reads")
        if taken := [each for each, _ in columns.fields if each in (KEY, TIMESTAMP)]:
            raise TopologyError(
                f"reads of map_batches names the column {taken[0]!r}, which is of the record itself; rename the field "
                "above, with map_values"
            )
        operator = MapBatches(
            function=python_function(mapper, "the mapper of map_batches", "table"),
            format=format,
            reads=columns,
            gives=_columns(schema, "schema"),
            key_type=None if key_type is None else _type(key_type, "key_type"),
        )
        return self._next(operator, "KSTREAM-MAPBATCHES-", name, key=self.key, value=value)


def _columns(given: Any, what: str) -> Columns:
    """A mapping of names to types, a schema of Arrow, or one type."""
    if hasattr(given, "names") and hasattr(given, "types"):
        given = dict(zip(given.names, given.types, strict=True))
    if not isinstance(given, Mapping):
        return Columns(((VALUE, _type(given, what)),), is_value=True)
    if not given:
        raise TopologyError(f"{what} of map_batches names no column")
    for name in given:
        if not isinstance(name, str):
            raise TopologyError(f"{what} of map_batches names the column {name!r}; names are strings")
    return Columns(tuple((name, _type(kind, f"{what}[{name!r}]")) for name, kind in given.items()))


def _type(given: Any, what: str) -> Any:
    try:
        arrow_type(given)
    except ValueError:
        raise TopologyError(
            f'{what} of map_batches is {given!r}, which is no type: give a name of Arrow, such as "float64", "int64", '
            '"string", "bool" or "timestamp[ms]", or a type of pyarrow'
        ) from None
    return given
