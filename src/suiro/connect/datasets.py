"""Datasets that connectors and captures read and write, and their runs, for OpenLineage.

A connector that is a `DatasetReporter` reports its datasets outside of Kafka; its task adds the topics. Names follow
the naming conventions of OpenLineage, without passwords.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from suiro.registry import columns_of_schema, columns_of_topic, schema_of_topic
from suiro.telemetry import (
    Column,
    ColumnOrigin,
    Dataset,
    Datasets,
    EventSender,
    Job,
    LineageRun,
    job_namespace,
    kafka_namespace,
)

if TYPE_CHECKING:
    import pyarrow as pa

_SCHEME = re.compile(r"[a-z][a-z0-9+.-]*://")


class Report:
    """The runs of one connector: from the start to a pause, a failure or the end. Called by its thread."""

    def __init__(self, sender: EventSender | None, job: str, side: str, datasets: Callable[[], Datasets]) -> None:
        self._sender = sender
        self._job = Job(namespace=job_namespace(), name=job, kind=side.upper())
        self._datasets = datasets
        self._run: LineageRun | None = None

    def begins(self) -> None:
        """Begins a run. A restart after a temporary error continues the current one."""
        if self._sender is not None and self._run is None:
            self._run = LineageRun(self._sender, self._job, self._datasets)

    def ends(self, error: BaseException | None = None) -> None:
        run, self._run = self._run, None
        if run is not None:
            run.complete() if error is None else run.fail(error)


def topics_of(bootstrap_servers: str, registry: str | None, topics: Iterable[str]) -> tuple[Dataset, ...]:
    """Returns the topics with their columns, which the registry knows."""
    namespace = kafka_namespace(bootstrap_servers)
    return tuple(
        Dataset(namespace=namespace, name=topic, columns=columns_of_topic(registry, topic))
        for topic in dict.fromkeys(topics)
    )


def captured(
    tables: Iterable[tuple[str, str]], namespace: str, database: str, bootstrap_servers: str, registry: str
) -> Datasets:
    """Returns the datasets of a capture. `tables`: (schema.table, its topic). The schema of a topic has the names and
    types of the table's columns."""
    inputs, outputs = [], []
    kafka = kafka_namespace(bootstrap_servers)
    for table, topic in tables:
        name = f"{database}.{table}"
        schema = schema_of_topic(registry, topic)
        columns = [] if schema is None else _captured_columns(schema.text)
        inputs.append(Dataset(namespace=namespace, name=name, columns=tuple(column for column, _ in columns)))
        origins = {
            written: (ColumnOrigin(namespace=namespace, name=name, column=column.name, is_identity=True),)
            for column, written in columns
        }
        written = () if schema is None else columns_of_schema(registry, schema)
        outputs.append(Dataset(namespace=kafka, name=topic, columns=written, origins=origins))
    return Datasets(inputs=tuple(inputs), outputs=tuple(outputs))


def _captured_columns(schema: str) -> list[tuple[Column, str]]:
    """Returns the columns of the table, with their names in the topic."""
    fields = json.loads(schema).get("fields", [])
    return [
        (Column(name=one.get("postgres.name", one["name"]), type=one["postgres.type"]), one["name"])
        for one in fields
        if "postgres.type" in one
    ]


def postgres_namespace(connection: dict[str, Any]) -> str:
    """`connection`: the parts of a connection string, as libpq names them."""
    host = str(connection.get("host") or connection.get("hostaddr") or "localhost").split(",")[0]
    port = str(connection.get("port") or 5432).split(",")[0]
    return f"postgres://{'localhost' if host.startswith(('/', '@')) else host}:{port}"


def postgres_table(connection: dict[str, Any], table: str, columns: Iterable[str] = ()) -> Dataset:
    database = connection.get("dbname") or connection.get("user") or "postgres"
    full = table if "." in table else f"public.{table}"
    return Dataset(
        namespace=postgres_namespace(connection),
        name=f"{database}.{full}",
        columns=tuple(Column(name=one) for one in sorted(columns)),
    )


def http_dataset(url: str) -> Dataset:
    """Without user, password and parameters."""
    parts = urlsplit(url)
    namespace = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Dataset(namespace=namespace, name=parts.path or "/")


def file_dataset(path: Path, columns: Iterable[Column] = ()) -> Dataset:
    return Dataset(namespace="file", name=str(path.absolute()), columns=tuple(columns))


def store_dataset(place: str, columns: Iterable[Column] = ()) -> Dataset:
    """A table or folder on a disk or in an object store: s3://BUCKET/PATH is PATH in s3://BUCKET."""
    if not _SCHEME.match(place) or place.startswith("file://"):
        return file_dataset(Path(place.removeprefix("file://")), columns)
    parts = urlsplit(place)
    namespace = f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"
    return Dataset(namespace=namespace, name=parts.path.strip("/") or "/", columns=tuple(columns))


def arrow_columns(schema: pa.Schema) -> tuple[Column, ...]:
    return tuple(Column(name=field.name, type=str(field.type)) for field in schema)
