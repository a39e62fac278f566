"""Checks of a topology while it is built."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Coroutine, Iterator
from functools import partial
from typing import Any

from suiro.errors import ConfigError, UsageError
from suiro.streams.errors import TopologyError
from suiro.streams.expressions.expression import Expression, RootName
from suiro.streams.expressions.on_python import require_roots
from suiro.streams.serdes import Serde
from suiro.streams.topology import nodes
from suiro.streams.topology.topology import Topology

CoPartitioned = (
    nodes.StreamStreamJoin
    | nodes.StreamTableJoin
    | nodes.TableTableJoin
    | nodes.ForeignKeyRespond
    | nodes.StreamAggregate
    | nodes.WindowedAggregate
)
"""Operators that, if they have several parents, bring records with one key together."""

_ROOTS: dict[tuple[str, ...], tuple[RootName, ...]] = {
    ("aggregate", "value"): ("left", "right"),
    ("key", "aggregate", "aggregate"): ("key", "value", "aggregate"),
}
"""How expressions call the parameters of a function that have other names there."""

WITH_ASYNC = ("filter", "filter_not", "flat_map_values", "map", "map_values", "peek")
"""Operators on streams that have a columnar form for async functions."""


def function(given: Any, what: str, *parameters: str) -> nodes.Function:
    """Returns a function of an operator, which calls it with these parameters. `what` names it in errors ("the
    predicate of filter")."""
    if isinstance(given, Expression):
        try:
            require_roots(given, _ROOTS.get(parameters, parameters))  # type: ignore[arg-type]
        except UsageError as error:
            raise TopologyError(f"{what}: {error}") from None
        return given
    if callable(given):
        return _taking(_not_async(given, what), what, parameters)
    raise TopologyError(
        f"{what} is {given!r}, which is neither a Python callable nor an expression; give a function, or an expression "
        'such as col("amount") > 0'
    )


def python_function(given: Any, what: str, *parameters: str) -> Callable[..., Any]:
    """Returns a function that must not be an expression; `what` and `parameters` as in `function`."""
    if callable(given) and not isinstance(given, Expression):
        return _taking(_not_async(given, what), what, parameters)
    raise TopologyError(f"{what} is {given!r}, which is not a Python callable; give a function")


def processor_supplier(given: Any, operator: str) -> Callable[[], Any]:
    """Returns a function that makes a processor for each task. Refuses one that gives the same object twice, which
    tasks would share; Kafka Streams calls a supplier twice, too (`ApiUtils.checkSupplier`)."""
    supplier = python_function(given, f"the supplier of {operator}")
    first, second = supplier(), supplier()
    if not callable(process := getattr(first, "process", None)):
        raise TopologyError(f"the supplier of {operator} gave {first!r}, which has no method process(record)")
    if first is second:
        raise TopologyError(
            f"the supplier of {operator} gave {first!r} twice; it must make a new processor each time, because each "
            f"task has one of its own: {operator}(MyProcessor), or {operator}(lambda: MyProcessor(...))"
        )
    if inspect.iscoroutinefunction(process):
        raise TopologyError(
            f"process of {type(first).__qualname__} is an async function; a processor takes one record after the other "
            "and awaits nothing. Call it above, with map_values_async of a stream"
        )
    _taking(process, "process of a processor", ("record",))
    if (init := getattr(first, "init", None)) is not None:
        python_function(init, "init of a processor", "context")
    return supplier


def partitioner_function(given: Any, operator: str) -> Callable[..., int | None] | None:
    parameters = ("topic", "key", "value", "partitions")
    return None if given is None else python_function(given, f"the partitioner of {operator}", *parameters)


def async_function(given: Any, what: str, *parameters: str) -> Callable[..., Coroutine[Any, Any, Any]]:
    """Returns a function of an operator that awaits it; `what` and `parameters` as in `function`."""
    if _is_async(given):
        return _taking(given, what, parameters)
    if inspect.isasyncgenfunction(given):
        raise TopologyError(f"{what} is an async generator, {given!r}; give a function that returns a list")
    operator = what.rpartition(" ")[2]
    raise TopologyError(
        f"{what} is {given!r}, which is not an async function; give one that was made with `async def` (not a lambda "
        f"that calls it), or use {operator.removesuffix('_async')} for a plain function"
    )


def _not_async(given: Callable[..., Any], what: str) -> Callable[..., Any]:
    """Refuses an async function: an operator that does not await would take the coroutine for the result."""
    if not _is_async(given) and not inspect.isasyncgenfunction(given):
        return given
    operator = what.rpartition(" ")[2]
    instead = f"use {operator}_async" if operator in WITH_ASYNC else "call it above, with map_values_async of a stream"
    raise TopologyError(f"{what} is an async function, {given!r}, which is not awaited here; {instead}")


def _taking(given: Callable[..., Any], what: str, parameters: tuple[str, ...]) -> Callable[..., Any]:
    """Refuses a function that cannot be called with these parameters. Each record would fail."""
    try:
        signature = inspect.signature(given, follow_wrapped=False)  # a wrapper may pass more than it takes
    except Exception:  # noqa: BLE001 - of a builtin, or of annotations that cannot be evaluated
        return given
    try:
        signature.bind(*parameters)
    except TypeError as error:
        name = getattr(given, "__qualname__", None) or repr(given)
        raise TopologyError(
            f"{what} is called with ({', '.join(parameters)}), which {name}{signature} does not take: {error}"
        ) from None
    return given


def _is_async(given: Any) -> bool:
    inner = given
    while isinstance(inner, partial):
        inner = inner.func
    return inspect.iscoroutinefunction(inner) or (
        not inspect.isclass(inner) and inspect.iscoroutinefunction(getattr(inner, "__call__", None))  # noqa: B004
    )


def is_policy(given: str) -> bool:
    """Tells whether this is a policy for records that cannot be read or processed."""
    return given in ("fail", "skip") or (given.startswith("dead-letter:") and given != "dead-letter:")


def check_policies(topology: Topology, *, on_processing_error: str, on_deserialization_error: str) -> None:
    """Raises `ConfigError` if one is no policy, or the topology reads its dead letters and makes dead letters of those
    that fail again: they would come again, for ever."""
    policies = {"on_processing_error": on_processing_error, "on_deserialization_error": on_deserialization_error}
    for name, policy in policies.items():
        if not is_policy(policy):
            raise ConfigError(f'{name}={policy!r} is none of "fail", "skip" and "dead-letter:<topic>"')
    dead = dead_letter_topics(topology, *policies.values())
    for source in _sources(topology):
        of_source = source.on_deserialization_error or on_deserialization_error
        for topic in source.topics:
            if topic in dead and not {of_source, on_processing_error} <= {"fail", "skip"}:
                raise ConfigError(
                    f"the topology writes dead letters to topic {topic!r}, which it also reads; give them another "
                    "topic, or read that one in another application"
                )


def dead_letter_topics(topology: Topology, *policies: str) -> tuple[str, ...]:
    """Returns the topics of these policies, and of those of the topology's sources."""
    every = (*policies, *(source.on_deserialization_error or "" for source in _sources(topology)))
    return tuple(dict.fromkeys(one.removeprefix("dead-letter:") for one in every if one.startswith("dead-letter:")))


def _sources(topology: Topology) -> list[nodes.Source]:
    return [node.operator for node in topology.nodes if isinstance(node.operator, nodes.Source)]


def check_topology(topology: Topology) -> None:
    """Raises TopologyError for faults that can be found without a broker."""
    if not topology.nodes:
        raise TopologyError("the topology is empty; start it with builder.stream(topic) or builder.table(topic)")
    known = {spec.name for spec in topology.stores}
    for spec in topology.stores:
        _check_serdes(spec, f"store {spec.name}")
    for node in topology.nodes:
        if isinstance(node.operator, nodes.Source | nodes.Sink | nodes.Repartition):
            _check_serdes(node.operator, node.name)
        if isinstance(node.operator, nodes.Process):
            for store in node.operator.stores:
                if store not in known:
                    raise TopologyError(
                        f"{node.name} uses the store {store!r}, which does not exist; add it with "
                        "builder.add_state_store(), or name a table's store"
                    )


def _check_serdes(place: nodes.Source | nodes.Sink | nodes.Repartition | nodes.StoreSpec, name: str) -> None:
    for part, serde in (("key", place.key), ("value", place.value)):
        if serde is not None and (isinstance(serde, type) or not isinstance(serde, Serde)):
            raise TopologyError(
                f"the serde of the {part} of {name} is {serde!r}; give one of suiro.streams.serdes, or an object with "
                "name, serialize(topic, value) and deserialize(topic, data)"
            )


def inputs_that_meet(topology: Topology) -> Iterator[tuple[str, list[nodes.Source | nodes.Repartition]]]:
    """Yields each node that brings records with one key together, and the inputs from which they come."""
    for node in topology.nodes:
        if isinstance(node.operator, CoPartitioned) and len(node.parents) > 1:
            above = [each.operator for parent in node.parents for each in inputs_above(topology.node, parent)]
            yield node.name, [each for each in above if isinstance(each, nodes.Source | nodes.Repartition)]


def inputs_above(node_of: Callable[[str], nodes.Node], name: str) -> Iterator[nodes.Node]:
    """Yields the sources and repartitions from which the records of a node come, each once."""
    seen: set[str] = set()
    waiting = [name]
    while waiting:
        node = node_of(waiting.pop())
        if node.name in seen:
            continue
        seen.add(node.name)
        if isinstance(node.operator, nodes.Source | nodes.Repartition):
            yield node
        else:
            waiting += reversed(node.parents)
