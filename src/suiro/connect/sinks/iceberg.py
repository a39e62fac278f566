"""Sink `iceberg`: appends records to an Iceberg table. Exactly once.

    [sink.lake]
    kind = "iceberg"
    table = "flights.raw"                       # namespace.table
    topics = ["flights"]
    catalog = { type = "sql", uri = "sqlite:///catalog.db", warehouse = "lake" }
    [sink.lake.columns]
    carrier = "string"
    delay = "double"

A batch is one commit. It appends the rows and sets a table property for each partition,
`suiro-connect.NAME.TOPIC-PARTITION`, to the offset behind the rows. A dot in NAME is `%2E` there. Iceberg replaces the
metadata as a whole, so rows and offsets become visible together. Properties survive `expire_snapshots` and compactions
by other tools. The snapshot's summary has the same entries, which tells the records that a snapshot added.

If another writer commits first, the catalog refuses the commit. pyiceberg would then rebase and repeat it, which would
append the rows a second time if the other writer was a second copy of this sink. So its retries are turned off, and the
sink's task repeats the batch after it has read the offsets again.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import quote_plus

import requests
from pydantic import ValidationError
from pyiceberg.catalog import AVAILABLE_CATALOGS, Catalog, CatalogType, load_catalog
from pyiceberg.catalog.rest import RestCatalog
from pyiceberg.exceptions import (
    CommitFailedException,
    CommitStateUnknownException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    RESTError,
    TableAlreadyExistsError,
)
from pyiceberg.table import Table
from pyiceberg.transforms import DayTransform, HourTransform, IdentityTransform, MonthTransform, YearTransform

from suiro.connect.connectors import About, SinkBatch, check_expected
from suiro.connect.datasets import arrow_columns, store_dataset
from suiro.connect.sinks.columns import FEW_LARGE_FILES, Columns, ColumnsSettings
from suiro.errors import TransientError, UsageError
from suiro.foundation.settings import SettingError, read_settings
from suiro.foundation.types import TopicPartition
from suiro.telemetry import Dataset

COMMIT_RETRIES = "commit.retry.num-retries"
"""pyiceberg 0.11 has no name for it: it does not repeat commits."""
CONNECT_TIMEOUT_S = 10
ANSWER_TIMEOUT_S = 60
"""Without a byte of a REST catalog's answer."""
_TRANSFORMS = {
    "identity": IdentityTransform,
    "year": YearTransform,
    "month": MonthTransform,
    "day": DayTransform,
    "hour": HourTransform,
}
_PARTITION = re.compile(r"(?:(\w+)\((.+)\)|(.+))")


@dataclass(frozen=True, slots=True, kw_only=True)
class IcebergSettings(ColumnsSettings):
    table: str
    catalog: dict[str, str]
    """The settings of pyiceberg, with `name`: a SQL catalog keeps tables by the name of the catalog."""
    partition_by: tuple[str, ...] = ()
    """Of a table that the sink creates: columns, or year(c), month(c), day(c), hour(c) of them."""
    properties: dict[str, str] = field(default_factory=dict)
    """Of a table that the sink creates."""

    MAY_ADD_FIELDS = True

    def __post_init__(self) -> None:
        if len(self.table.split(".")) < 2 or not all(self.table.split(".")):
            raise SettingError("table", f"expected NAMESPACE.TABLE, got {self.table!r}")


class _BoundedRestCatalog(RestCatalog):
    """A REST catalog with a timeout. That of pyiceberg waits forever for an answer."""

    def _config_headers(self, session: requests.Session) -> None:
        """pyiceberg calls this first on a new session, before the session may request a token."""
        send = session.send

        def bounded(request: requests.PreparedRequest, **options: Any) -> requests.Response:
            return send(request, **options | {"timeout": (CONNECT_TIMEOUT_S, ANSWER_TIMEOUT_S)})

        session.send = bounded  # type: ignore[method-assign]
        super()._config_headers(session)


# pyiceberg's settings have no timeout.
AVAILABLE_CATALOGS[CatalogType.REST] = lambda name, settings: _BoundedRestCatalog(name, **settings)


class IcebergSink:
    DEFAULTS = FEW_LARGE_FILES

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(IcebergSettings, settings)
        self._columns = Columns(self._settings)
        self._partition_by = [self._partition(text) for text in self._settings.partition_by]
        self._name = about.name
        self._catalog_settings = _below(about.folder, self._settings.catalog)
        self._catalog_name = self._catalog_settings.pop("name", "default")
        self._catalog: Catalog | None = None
        self._table: Table | None = None

    def datasets(self) -> Sequence[Dataset]:
        table = self._table
        columns = arrow_columns(self._columns.schema)
        return [] if table is None else [store_dataset(table.location(), columns)]

    def _partition(self, text: str) -> tuple[str, str]:
        """`day(at)` is the transform "day" of the column "at"; `carrier` is its identity."""
        found = _PARTITION.fullmatch(text)
        transform, column = (found[1] or "identity", found[2] or found[3]) if found else ("", "")
        if transform not in _TRANSFORMS:
            raise SettingError(
                "partition_by", f"expected a column or one of {', '.join(_TRANSFORMS)} of it, got {text!r}"
            )
        if column not in self._columns.schema.names:
            raise SettingError("partition_by", f"there is no column {column!r}")
        return transform, column

    def open(self) -> None:
        with self._errors("open"):
            try:
                self._catalog = load_catalog(self._catalog_name, **self._catalog_settings)
            except (requests.JSONDecodeError, ValidationError):
                raise  # an answer that is not a catalog's, such as a proxy's page: values, but not the user's
            except (ValueError, TypeError, ImportError) as error:
                raise SettingError("catalog", f"pyiceberg cannot open it: {error}") from error
            try:
                table = self._catalog.load_table(self._settings.table)
            except NoSuchTableError:
                table = self._created(self._catalog)
        self._columns.adopt(table.schema().as_arrow(), f"{self._name}: table {self._settings.table}")
        self._columns.partitioned_by(
            [
                str(table.schema().find_column_name(field.source_id))
                for field in table.spec().fields
                if isinstance(field.transform, IdentityTransform)
            ],
            table.location(),
            lambda name, text: f"{quote_plus(name)}={quote_plus(text)}",
        )
        self._table = table

    def _created(self, catalog: Catalog) -> Table:
        namespace = self._settings.table.rpartition(".")[0]
        try:
            catalog.create_namespace(namespace)
        except NamespaceAlreadyExistsError:
            pass
        try:
            with catalog.create_table_transaction(
                self._settings.table, self._columns.schema, properties=self._settings.properties
            ) as transaction:
                if self._partition_by:
                    with transaction.update_spec() as spec:
                        for transform, column in self._partition_by:
                            spec.add_field(column, _TRANSFORMS[transform]())
        except (TableAlreadyExistsError, CommitFailedException):
            pass  # another process has just created it
        return catalog.load_table(self._settings.table)

    def close(self) -> None:
        self._table = None
        if self._catalog is not None:
            self._catalog.close()
            self._catalog = None

    def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found, there = self._stored(partitions), self._opened.properties
        # As an earlier build wrote it: connector a.b with topic c had the property of connector a with topic b.c.
        old = {one: f"suiro-connect.{self._name}.{one[0]}-{one[1]}" for one in partitions if one not in found}
        unclear = {one: name for one, name in old.items() if name in there}
        if unclear:
            wanted = ", ".join(f"{self._property(one)} = {there[name]}" for one, name in unclear.items())
            raise UsageError(
                f"{self._name}: table {self._settings.table} has the property {next(iter(unclear.values()))}, which "
                f"may be an offset of this connector or of another one. If it is of this one, set {wanted} and remove "
                f"{', '.join(unclear.values())}, which another connector could take for its own; otherwise give the "
                "connector another name"
            )
        return found

    def _stored(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {target: self._opened.properties.get(self._property(target)) for target in partitions}
        return {target: int(offset) for target, offset in found.items() if offset is not None}

    def put(self, batch: SinkBatch) -> None:
        table = self._opened
        with self._errors("write to"):
            table.refresh()
            check_expected(
                batch.first_offsets,
                self._stored(batch.first_offsets),
                f"{self._name}: {self._settings.table}",
            )
            rows = self._columns.table(batch)
            batch.settle()  # the dead letters first: they may be written twice, but are never lost
            # Of this copy of the metadata only; see the top of the file.
            table.metadata.properties[COMMIT_RETRIES] = "0"
            offsets = {self._property(target): str(offset) for target, offset in batch.next_offsets.items()}
            with table.transaction() as transaction:
                there = set(table.schema().column_names)
                if any(name not in there for name in rows.schema.names):
                    with transaction.update_schema() as update:
                        update.union_by_name(rows.schema)
                transaction.set_properties(offsets)
                transaction.append(rows, snapshot_properties=offsets)

    def _property(self, target: TopicPartition) -> str:
        name = self._name.replace(".", "%2E")  # a topic may have dots, too
        return f"suiro-connect.{name}.{target[0]}-{target[1]}"

    @property
    def _opened(self) -> Table:
        assert self._table is not None
        return self._table

    @contextmanager
    def _errors(self, doing: str) -> Iterator[None]:
        """Errors of the catalog and of the storage are transient: the task opens the table again."""
        try:
            yield
        except CommitFailedException as error:
            raise TransientError(
                f"{self._name}: another writer changed the Iceberg table {self._settings.table} first: {error}"
            ) from error
        except (CommitStateUnknownException, RESTError, OSError, ValidationError) as error:
            raise TransientError(
                f"{self._name}: cannot {doing} the Iceberg table {self._settings.table}: {error}"
            ) from error


def _below(folder: Path, catalog: Mapping[str, str]) -> dict[str, str]:
    """The settings of the catalog, with paths that are relative to the folder."""
    settings = dict(catalog)
    warehouse, uri = settings.get("warehouse", ""), settings.get("uri", "")
    if settings.get("type") == "sql" and "://" not in warehouse:
        settings["warehouse"] = (folder / (warehouse or "warehouse")).absolute().as_uri()
    if uri.startswith("sqlite:///") and not uri.startswith("sqlite:////"):
        settings["uri"] = f"sqlite:///{(folder / uri.removeprefix('sqlite:///')).absolute()}"
    return settings
