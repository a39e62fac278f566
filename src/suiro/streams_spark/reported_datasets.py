"""Reports an application to OpenLineage: its source topics as inputs, its sink topics as outputs, with columns.

Columns of a topic come from the schema of its values: that of the serde, or the latest of the subject in the registry,
which is asked again for each event. Columns of an output come from its expressions where there is no schema. Where only
expressions and operators that leave values alone lie between a sink and its sources, each column has its origins.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from suiro.streams.expressions.expression import Expression, Field, Root, RootName, Struct
from suiro.streams.serdes.registered import ENVIRONMENT, RegisteredSerde
from suiro.streams.topology.nodes import (
    Branch,
    Filter,
    GlobalTableSource,
    MapBatches,
    MapValues,
    Merge,
    Node,
    Peek,
    Repartition,
    SelectKey,
    Sink,
    Source,
    StreamGlobalTableJoin,
    StreamTableJoin,
    Suppress,
    TableFilter,
    TableMapValues,
    TableSource,
    TableTableJoin,
    ToStream,
)
from suiro.streams.topology.topology import Topology
from suiro.telemetry import (
    Column,
    ColumnOrigin,
    Dataset,
    Datasets,
    Job,
    LineageRun,
    job_namespace,
    kafka_namespace,
    sender_to,
)

if TYPE_CHECKING:
    from suiro.streams.serdes import Serde
    from suiro.streams_spark.kafka_streams import KafkaStreams

_LEAVES_VALUES = (Branch | Filter | Merge | Peek | Repartition | SelectKey | Suppress | TableFilter | TableSource) | (
    ToStream | GlobalTableSource
)


@contextmanager
def lineage_report(
    streams: KafkaStreams, to: str | None = None, *, name: str | None = None, table: Dataset | None = None
) -> Iterator[LineageRun | None]:
    """Reports a run of the application until the block ends. `to`: a URL or a file's path; None: OPENLINEAGE_URL of the
    environment; without both nothing is reported. `name`: of the job, in place of the application's id.
    `table`: of a view, which is made of what the application writes.

    The run failed where the block raises or the application ended with an error; it is complete otherwise, unless
    `abort` of the run was called.
    """
    sender = sender_to(to)
    if sender is None:
        yield None
        return
    import pyspark

    bootstrap_servers, _ = streams.cluster
    datasets = TopologyDatasets(
        streams.topology,
        bootstrap_servers,
        dead_letter_topics=streams.dead_letter_topics,
        table=table,
    )
    file = streams.state_dir / f"{streams.application_id}.openlineage"
    file.parent.mkdir(parents=True, exist_ok=True)
    run = LineageRun(
        sender,
        Job(
            namespace=job_namespace(),
            name=name or streams.application_id,
            kind="APPLICATION" if table is None else "VIEW",
            engine=("spark", pyspark.__version__),
        ),
        datasets.now,
        file=file,
        failure=lambda: streams.exception,
    )
    try:
        yield run
        failure = streams.exception
        if failure is not None:
            run.fail(failure)
        run.complete()
    except (KeyboardInterrupt, SystemExit):
        run.abort()
        raise
    except BaseException as error:
        run.fail(error)
        raise
    finally:
        sender.close()


@dataclass(frozen=True, slots=True)
class _Whole:
    """The values of these topics as they are."""

    topics: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class _Struct:
    """Fields, and the columns of topics from which each is made: (topic, column, taken as it is)."""

    fields: Mapping[str, tuple[tuple[str, str, bool], ...]]


_Shape = _Whole | _Struct | None
"""None: not known."""


class TopologyDatasets:
    def __init__(
        self,
        topology: Topology,
        bootstrap_servers: str,
        *,
        dead_letter_topics: tuple[str, ...] = (),
        table: Dataset | None = None,
    ) -> None:
        """`table`: gets the columns of the outputs in addition to its own."""
        self._topology = topology
        self._namespace = kafka_namespace(bootstrap_servers)
        self._dead_letter_topics = dead_letter_topics
        self._table = table
        self._shapes: dict[str, _Shape] = {}
        for node in topology.nodes:  # parents first
            self._shapes[node.name] = self._shape(node)

    def now(self) -> Datasets:
        """Asks the registry. A schema that it does not give is not known; it raises nothing for that."""
        sources = [one for one in self._topology.nodes if isinstance(one.operator, Source)]
        inputs: dict[str, Dataset] = {}
        for node in sources:
            assert isinstance(node.operator, Source)
            for topic in node.operator.topics:
                columns = _columns_of_serde(node.operator.value, topic)
                if topic not in inputs or columns:
                    inputs[topic] = Dataset(namespace=self._namespace, name=topic, columns=columns)
        outputs: dict[str, Dataset] = {}
        for node in self._topology.nodes:
            if isinstance(node.operator, Sink) and isinstance(node.operator.topic, str):
                outputs[node.operator.topic] = self._output(node, node.operator, inputs)
        tables = () if self._table is None else (_with_columns(self._table, outputs.values()),)
        for topic in self._dead_letter_topics:
            outputs.setdefault(topic, Dataset(namespace=self._namespace, name=topic))
        return Datasets(inputs=tuple(inputs.values()), outputs=(*tables, *outputs.values()))

    def _output(self, node: Node, sink: Sink, inputs: Mapping[str, Dataset]) -> Dataset:
        assert isinstance(sink.topic, str)
        columns = () if sink.value is None else _columns_of_serde(sink.value, sink.topic)
        dataset = Dataset(namespace=self._namespace, name=sink.topic, columns=columns)
        match self._shapes[node.parents[0]]:
            case _Struct(fields=fields):
                known = columns or tuple(Column(name=name) for name in fields)
                origins = {
                    name: tuple(self._origin(*one) for one in dict.fromkeys(found))
                    for name, found in fields.items()
                    if found
                }
                return replace(dataset, columns=known, origins=origins)
            case _Whole(topics=topics):
                known = columns or next((inputs[one].columns for one in topics if inputs[one].columns), ())
                origins = {
                    column.name: tuple(self._origin(topic, column.name, True) for topic in topics) for column in known
                }
                return replace(dataset, columns=known, origins=origins)
        return dataset if columns else replace(dataset, columns=self._of_batches(node.parents[0]))

    def _origin(self, topic: str, column: str, is_identity: bool) -> ColumnOrigin:
        return ColumnOrigin(namespace=self._namespace, name=topic, column=column, is_identity=is_identity)

    def _of_batches(self, name: str) -> tuple[Column, ...]:
        operator = self._topology.node(name).operator
        if not isinstance(operator, MapBatches) or operator.gives.is_value:
            return ()
        return tuple(Column(name=one, type=str(kind)) for one, kind in operator.gives.fields)

    def _shape(self, node: Node) -> _Shape:
        shapes = [self._shapes[parent] for parent in node.parents]
        match node.operator:
            case Source(topics=topics):
                return _Whole(topics)
            case MapValues(mapper=mapper) | TableMapValues(mapper=mapper):
                return _mapped(mapper, {"value": shapes[0]})
            case StreamTableJoin() | StreamGlobalTableJoin() | TableTableJoin() if len(shapes) == 2:
                left, right = shapes
                return _mapped(node.operator.joiner, {"left": left, "right": right})
        if not isinstance(node.operator, _LEAVES_VALUES):
            return None
        if len(shapes) == 1:
            return shapes[0]
        if all(isinstance(one, _Whole) for one in shapes):
            of_all = (topic for one in shapes if isinstance(one, _Whole) for topic in one.topics)
            return _Whole(tuple(dict.fromkeys(of_all)))
        return None


def _with_columns(table: Dataset, outputs: Iterable[Dataset]) -> Dataset:
    columns = {one.name: one for one in table.columns}
    origins: dict[str, tuple[ColumnOrigin, ...]] = {}
    for output in outputs:
        columns |= {one.name: one for one in output.columns}
        origins |= output.origins
    return replace(table, columns=tuple(columns.values()), origins=origins)


def _mapped(mapper: object, shapes: Mapping[RootName, _Shape]) -> _Shape:
    if isinstance(mapper, Root) and mapper.name in shapes:
        return shapes[mapper.name]
    if not isinstance(mapper, Struct):
        return None
    fields = {}
    for name, value in zip(mapper.names, mapper.values, strict=True):
        fields[name] = tuple(_origins(value, shapes))
    return _Struct(fields)


def _origins(expression: Expression, shapes: Mapping[RootName, _Shape]) -> Iterator[tuple[str, str, bool]]:
    is_identity = isinstance(expression, Field) and isinstance(expression.base, Root)
    for root, shape in shapes.items():
        for column in sorted(expression.fields(root) or ()):
            if isinstance(shape, _Whole):
                yield from ((topic, column, is_identity) for topic in shape.topics)
            elif isinstance(shape, _Struct):
                for topic, origin, as_is in shape.fields.get(column, ()):
                    yield topic, origin, is_identity and as_is


def _columns_of_serde(serde: Serde, topic: str) -> tuple[Column, ...]:
    if not isinstance(serde, RegisteredSerde):
        return ()
    from suiro.registry import columns_of_schema, columns_of_topic

    url = serde.registry or os.environ.get(ENVIRONMENT)
    if serde.schema is not None and not serde.use_latest_version:
        return columns_of_schema(url, serde.schema, serde.message)
    if url is None or serde.subject_strategy != "topic":
        return ()
    return columns_of_topic(url, topic)
