"""Operators on streams that take async functions, or functions of batches, and what all operators build on: parts of
`KStream`."""

from __future__ import annotations

from collections.abc import Callable, Coroutine, Mapping
from dataclasses import KW_ONLY, dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, TypedDict, Unpack, get_args

from suiro.extras import is_installed, require
from suiro.streams.batches import KEY, TIMESTAMP, VALUE, arrow_type
from suiro.streams.dsl.checks import async_function, python_function
from suiro.streams.dsl.graph import Graph
from suiro.streams.dsl.named import Name
from suiro.streams.durations import milliseconds
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.topology.nodes import AsyncCall, BatchFormat, CallKind, Columns, MapBatches, Operator
from suiro.streams.windows import Duration

if TYPE_CHECKING:
    from suiro.streams.dsl.kstream import KStream

CONCURRENCY_MAX = 10_000
RETRIES_MAX = 1_000

CallOrder = Literal["key", "none"]
RetryOn = type[Exception] | tuple[type[Exception], ...] | None


class CallOptions(TypedDict, total=False):
    """The options of operators with async functions.

    `concurrency`: calls of the operator under way at a time in a process, at most; 100. `timeout`: of an attempt; 30
    seconds; None for no limit. `retries`: further attempts after one that fails, 3; the first after about `backoff`,
    100 ms, each next one after twice as long, up to 30 seconds. `retry_on`: exceptions after which to try again; by
    default all but those that say that the program or the record is wrong (`TypeError`, `ValueError`, `KeyError` and
    their like). `order`: `"key"`, the default, has the calls of one key one after the other, in the order of the
    records; `"none"` lets them overlap.
    """

    concurrency: int
    timeout: Duration | None
    retries: int
    backoff: Duration
    retry_on: RetryOn
    order: CallOrder


@dataclass(eq=False, repr=False, slots=True)
class CallOperators:
    """A stream as a node of its graph, on which all its operators build. Made by `StreamsBuilder` and by other
    operations. `key`, `value`: None if no serde is known.

    Results of async functions go on in the order of the records, whatever is done first. A call may be made again after
    a failure, also one that had succeeded.
    """

    graph: Graph
    node: str
    _: KW_ONLY
    key: Serde | None
    value: Serde | None
    rekeyed: bool = False

    def __post_init__(self) -> None:
        nodes = self.graph.nodes
        nodes[self.node] = replace(nodes[self.node], key=self.key, value=self.value)

    def _next(
        self,
        operator: Operator,
        prefix: str,
        name: Name,
        *,
        key: Serde | None,
        value: Serde | None,
        rekeyed: bool = False,
    ) -> KStream:
        from suiro.streams.dsl.kstream import KStream

        node = self.graph.add_processor(prefix, name, operator, [self.node])
        return KStream(self.graph, node, key=key, value=value, rekeyed=rekeyed or self.rekeyed)

    def map_values_async(
        self,
        mapper: Callable[[Any], Coroutine[Any, Any, Any]],
        *,
        value: Serde | None = None,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """`await mapper(value)` gives the new value; keys stay, so nothing has to be repartitioned.

        >>> async def hours(minutes):
        ...     return minutes / 60
        >>> results(delays.map_values_async(hours, concurrency=200, timeout="2 seconds"), delays=[("UA", 90, 0)])
        [('UA', 1.5, 0)]
        """
        operator = _operator("map_values", "mapper", mapper, **options)
        return self._next(operator, "KSTREAM-MAPVALUES-ASYNC-", name, key=self.key, value=value)

    def map_async(
        self,
        mapper: Callable[[Any, Any], Coroutine[Any, Any, tuple[Any, Any]]],
        *,
        key: Serde | None = None,
        value: Serde | None = None,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """`await mapper(key, value)` gives the new (key, value).

        >>> async def swapped(carrier, minutes):
        ...     return minutes, carrier
        >>> results(delays.map_async(swapped), delays=[("UA", 3, 0)])
        [(3, 'UA', 0)]
        """
        operator = _operator("map", "mapper", mapper, **options)
        return self._next(operator, "KSTREAM-MAP-ASYNC-", name, key=key, value=value, rekeyed=True)

    def filter_async(
        self,
        predicate: Callable[[Any, Any], Coroutine[Any, Any, Any]],
        *,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """Keeps the records for which `await predicate(key, value)` holds.

        >>> async def is_late(carrier, minutes):
        ...     return minutes > 15
        >>> results(delays.filter_async(is_late), delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('AA', 20, 1)]
        """
        operator = _operator("filter", "predicate", predicate, **options)
        return self._next(operator, "KSTREAM-FILTER-ASYNC-", name, key=self.key, value=self.value)

    def filter_not_async(
        self,
        predicate: Callable[[Any, Any], Coroutine[Any, Any, Any]],
        *,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """Leaves out the records for which `await predicate(key, value)` holds.

        >>> async def is_late(carrier, minutes):
        ...     return minutes > 15
        >>> results(delays.filter_not_async(is_late), delays=[("UA", 3, 0), ("AA", 20, 1)])
        [('UA', 3, 0)]
        """
        operator = _operator("filter_not", "predicate", predicate, **options)
        return self._next(operator, "KSTREAM-FILTER-ASYNC-", name, key=self.key, value=self.value)

    def flat_map_values_async(
        self,
        mapper: Callable[[Any], Coroutine[Any, Any, Any]],
        *,
        value: Serde | None = None,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """`await mapper(value)` gives any number of values (a list, say), each under the record's key.

        >>> async def twice(minutes):
        ...     return [minutes, minutes]
        >>> results(delays.flat_map_values_async(twice), delays=[("UA", 3, 0)])
        [('UA', 3, 0), ('UA', 3, 0)]
        """
        operator = _operator("flat_map_values", "mapper", mapper, **options)
        return self._next(operator, "KSTREAM-FLATMAPVALUES-ASYNC-", name, key=self.key, value=value)

    def peek_async(
        self,
        action: Callable[[Any, Any], Coroutine[Any, Any, Any]],
        *,
        name: Name = None,
        **options: Unpack[CallOptions],
    ) -> KStream:
        """Awaits `action(key, value)` and passes the record on.

        >>> async def notify(carrier, minutes):
        ...     print(carrier)
        >>> results(delays.peek_async(notify, retries=10), delays=[("UA", 3, 0)])
        UA
        [('UA', 3, 0)]
        """
        operator = _operator("peek", "action", action, **options)
        return self._next(operator, "KSTREAM-PEEK-ASYNC-", name, key=self.key, value=self.value)

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


def _operator(
    kind: CallKind,
    role: str,
    function: Any,
    *,
    concurrency: int = 100,
    timeout: Duration | None = "30 seconds",
    retries: int = 3,
    backoff: Duration = "100 ms",
    retry_on: RetryOn = None,
    order: CallOrder = "key",
) -> AsyncCall:
    """`role`: what the function is to the operator."""
    operator = f"{kind}_async"
    for what, number, least, most in (
        ("concurrency", concurrency, 1, CONCURRENCY_MAX),
        ("retries", retries, 0, RETRIES_MAX),
    ):
        if not isinstance(number, int) or isinstance(number, bool) or not least <= number <= most:
            raise TopologyError(f"{what} of {operator} is {number!r}; give a number from {least} to {most}")
    timeout_ms = None if timeout is None else milliseconds(timeout, what=f"the timeout of {operator}")
    if timeout_ms == 0:
        raise TopologyError(f"the timeout of {operator} is 0, so no call could succeed; give None for no limit")
    if order not in ("key", "none"):
        raise TopologyError(f'order of {operator} is {order!r}; give "key" or "none"')
    kinds = retry_on if isinstance(retry_on, tuple) or retry_on is None else (retry_on,)
    if kinds is not None and not all(isinstance(kind, type) and issubclass(kind, Exception) for kind in kinds):
        raise TopologyError(
            f"retry_on of {operator} is {retry_on!r}; give an exception class or a tuple of them, () for none"
        )
    parameters = ("value",) if kind in ("map_values", "flat_map_values") else ("key", "value")
    return AsyncCall(
        kind=kind,
        function=async_function(function, f"the {role} of {operator}", *parameters),
        concurrency=concurrency,
        timeout_ms=timeout_ms,
        retries=retries,
        backoff_ms=milliseconds(backoff, what=f"the backoff of {operator}"),
        retry_on=kinds,
        by_key=order == "key",
    )


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
