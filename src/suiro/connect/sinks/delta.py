"""Sink `delta`: records are appended to a Delta table. Exactly once.

    [sink.lake]
    kind = "delta"
    table = "lake/flights"           # a folder, or s3://... with storage_options
    topics = ["flights"]
    [sink.lake.columns]
    carrier = "string"
    delay = "double"

Each commit of the table has, in addition to its rows, a transaction identifier for each partition (Delta's `txn`
action): `suiro-connect/NAME/TOPIC-PARTITION`, whose version is the offset behind the rows. So rows and offsets become
visible together. Delta refuses a commit if another one with the same identifier was made at the same time. Commits of
other writers (a compaction, other appends) are no conflict.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import quote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from suiro.connect.connectors import About, SinkBatch, check_expected
from suiro.connect.datasets import arrow_columns, store_dataset
from suiro.connect.sinks.columns import FEW_LARGE_FILES, Columns, ColumnsSettings
from suiro.errors import TransientError, UsageError
from suiro.foundation.settings import SettingError, read_settings
from suiro.foundation.types import TopicPartition
from suiro.telemetry import Dataset

_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class DeltaSettings(ColumnsSettings):
    table: str
    partition_by: tuple[str, ...] = ()
    storage_options: dict[str, str] = field(default_factory=dict)
    configuration: dict[str, str] = field(default_factory=dict)  # of a table that the sink creates

    MAY_ADD_FIELDS = True

    def __post_init__(self) -> None:
        if _RETENTION in self.configuration:
            raise SettingError("configuration", f"{_RETENTION} would make the table forget the offsets")


class DeltaSink:
    DEFAULTS = FEW_LARGE_FILES

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(DeltaSettings, settings)
        self._columns = Columns(self._settings)
        for name in self._settings.partition_by:
            if name not in self._columns.schema.names:
                raise SettingError("partition_by", f"there is no column {name!r}")
        self._name = about.name
        self._uri = self._settings.table
        if "://" not in self._uri:
            self._uri = str(about.folder / self._uri)
        self._table: DeltaTable  # since `open`

    def open(self) -> None:
        options = self._settings.storage_options or None
        try:
            try:
                table = DeltaTable(self._uri, storage_options=options)
            except TableNotFoundError:
                table = DeltaTable.create(
                    self._uri,
                    self._columns.schema,
                    mode="ignore",  # another process may create it at the same time
                    partition_by=list(self._settings.partition_by) or None,
                    configuration=self._settings.configuration or None,
                    storage_options=options,
                )
        except (DeltaError, OSError) as error:
            raise TransientError(f"{self._name}: cannot open the Delta table {self._uri}: {error}") from error
        if _RETENTION in table.metadata().configuration:
            raise UsageError(
                f"{self._name}: table {self._uri} has {_RETENTION}, so it forgets the offsets that this sink keeps in "
                "it, and records would come twice; remove that property"
            )
        self._columns.adopt(pa.schema(table.schema().to_arrow()), f"{self._name}: table {self._uri}")
        self._columns.partitioned_by(
            table.metadata().partition_columns, self._uri, lambda name, text: f"{name}={quote(text, safe='')}"
        )
        self._table = table

    def datasets(self) -> Sequence[Dataset]:
        return [store_dataset(self._uri, arrow_columns(self._columns.schema))]

    def close(self) -> None:
        """Nothing stays open between batches."""

    def offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        found = {target: self._table.transaction_version(self._identifier(target)) for target in partitions}
        return {target: version for target, version in found.items() if version is not None}

    def put(self, batch: SinkBatch) -> None:
        table = self._table
        try:
            table.update_incremental()
            check_expected(batch.first_offsets, self.offsets(batch.first_offsets), f"{self._name}: {self._uri}")
            rows = self._columns.table(batch)
            batch.settle()  # the dead letters first: they may be written twice, but are never lost
            write_deltalake(
                table,
                rows,
                mode="append",
                schema_mode="merge",  # the table may have more columns
                commit_properties=CommitProperties(
                    app_transactions=[
                        Transaction(self._identifier(target), offset) for target, offset in batch.next_offsets.items()
                    ]
                ),
            )
        except CommitFailedError as error:
            raise TransientError(
                f"{self._name}: the Delta table {self._uri} was written by another at the same time: {error}"
            ) from error
        except (DeltaError, OSError) as error:
            raise TransientError(f"{self._name}: cannot write to the Delta table {self._uri}: {error}") from error

    def _identifier(self, target: TopicPartition) -> str:
        return f"suiro-connect/{self._name}/{target[0]}-{target[1]}"
