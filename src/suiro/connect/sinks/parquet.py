"""Sink `parquet`: writes records to Parquet files in a folder. Exactly once.

    [sink.archive]
    kind = "parquet"
    folder = "archive/flights"
    topics = ["flights"]

A batch is one file. It is written under a hidden name, synced, and then linked under the next number:
`part-00000000000000000007.parquet`. The link is the commit: it is atomic, and it fails if the number is taken. The
metadata of the file has the offsets of all partitions behind its rows, so the sink continues from the last file: do not
delete it (all others may be deleted). A reader of `*.parquet` sees every record once. `_manifest.json` lists the files
with their rows and offsets. It is made from the files at the start, at the end, and each time that there are two
percent more of them, because it is always written as a whole.
"""

from __future__ import annotations

import json
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from uuid import uuid4

import pyarrow.parquet as pq

from suiro.connect.connectors import About, SinkBatch, check_expected
from suiro.connect.datasets import arrow_columns, file_dataset
from suiro.connect.sinks.columns import FEW_LARGE_FILES, Columns, ColumnsSettings
from suiro.errors import DataLossError, TransientError
from suiro.foundation.files import sync_folder
from suiro.foundation.settings import read_settings, require_one_of
from suiro.foundation.types import TopicPartition
from suiro.telemetry import Dataset

MANIFEST = "_manifest.json"
LISTED_EVERY = 50
"""The manifest is written again when a fiftieth of the files is not in it."""
METADATA_KEY = b"suiro.connect"
COMPRESSIONS = ("zstd", "snappy", "gzip", "none")


@dataclass(frozen=True, slots=True, kw_only=True)
class ParquetSettings(ColumnsSettings):
    folder: Path
    compression_of_files: str = "zstd"

    def __post_init__(self) -> None:
        require_one_of("compression_of_files", self.compression_of_files, COMPRESSIONS)


class ParquetSink:
    DEFAULTS = FEW_LARGE_FILES

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(ParquetSettings, settings)
        self._columns = Columns(self._settings)
        self._name = about.name
        self._folder = about.folder / self._settings.folder
        self._files: list[str] = []  # entries of the manifest, as JSON to save memory: there may be a million
        self._last: dict[str, Any] | None = None
        self._listed = 0

    def datasets(self) -> Sequence[Dataset]:
        return [file_dataset(self._folder, arrow_columns(self._columns.schema))]

    def open(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        for left in self._folder.glob(f".{self._name}-*.tmp"):
            # Of a process that died. A process that is alive cannot link its file then, and restarts.
            left.unlink(missing_ok=True)
        self._read()
        self._write_manifest()

    def close(self) -> None:
        with suppress(OSError):
            # Unless another process has written files since.
            if self._listed < len(self._files) and not self._path(self._next).exists():
                self._write_manifest()
        self._files, self._last, self._listed = [], None, 0

    def offsets(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        return _targets(self._offsets())

    def put(self, batch: SinkBatch) -> None:
        check_expected(batch.first_offsets, _targets(self._offsets()), f"{self._name}: {self._folder}")
        number = self._next
        path = self._path(number)
        hidden = self._hidden()
        rows = self._columns.table(batch)
        offsets = self._offsets() | {f"{topic}-{at}": offset for (topic, at), offset in batch.next_offsets.items()}
        entry = {"connector": self._name, "number": number, "offsets": offsets}
        metadata = {**(rows.schema.metadata or {}), METADATA_KEY: json.dumps(entry).encode()}
        compression = self._settings.compression_of_files
        batch.settle()  # the dead letters first: they may be written twice, but are never lost
        try:
            with hidden.open("xb") as file:
                pq.write_table(rows.replace_schema_metadata(metadata), file, compression=compression)
                file.flush()
                os.fsync(file.fileno())
            os.link(hidden, path)
            hidden.unlink()
        except (FileExistsError, FileNotFoundError) as error:
            raise TransientError(
                f"{self._name}: another process writes to {self._folder}: {error}. A restart continues from "
                "the existing files"
            ) from error
        except OSError as error:
            raise TransientError(f"{self._name}: cannot write to {self._folder}: {error}") from error
        sync_folder(self._folder)
        self._last = entry | {"file": path.name, "rows": rows.num_rows}
        self._files.append(json.dumps(self._last))
        if len(self._files) > self._listed + self._listed // LISTED_EVERY:
            self._write_manifest()

    @property
    def _next(self) -> int:
        return 0 if self._last is None else int(self._last["number"]) + 1

    def _path(self, number: int) -> Path:
        return self._folder / f"part-{number:020d}.parquet"

    def _hidden(self) -> Path:
        """Returns a unique name. A process id is not unique if two containers share a folder."""
        return self._folder / f".{self._name}-{uuid4().hex}.tmp"

    def _offsets(self) -> dict[str, int]:
        return {} if self._last is None else dict(self._last["offsets"])

    def _read(self) -> None:
        """Reads the entries of the manifest, and those of files that are not in it from the files."""
        known: dict[str, dict[str, Any]] = {}
        try:
            known = {entry["file"]: entry for entry in json.loads((self._folder / MANIFEST).read_text())["files"]}
        except (OSError, ValueError, KeyError):
            pass  # it is made again from the files
        paths = sorted(self._folder.glob("part-*.parquet"))
        self._files = [json.dumps(known.get(path.name) or self._entry(path)) for path in paths]
        if paths:  # the last file decides where to continue, so its entry is read from the file itself
            self._last = self._entry(paths[-1])
            self._files[-1] = json.dumps(self._last)

    def _entry(self, path: Path) -> dict[str, Any]:
        found = pq.read_metadata(path)
        try:
            entry = json.loads((found.metadata or {})[METADATA_KEY])
        except (KeyError, ValueError):
            raise DataLossError(f"{self._name}: {path} was not written by this sink; use a separate folder") from None
        if entry["connector"] != self._name:
            raise DataLossError(
                f"{self._name}: {path} was written by the connector {entry['connector']!r}; use a folder for each"
            )
        known: dict[str, Any] = entry | {"file": path.name, "rows": found.num_rows}
        return known

    def _write_manifest(self) -> None:
        hidden = self._hidden()
        with hidden.open("x", encoding="utf-8") as file:
            file.write(f'{{"files": [{", ".join(self._files)}]}}')
            file.flush()
            os.fsync(file.fileno())
        hidden.replace(self._folder / MANIFEST)
        self._listed = len(self._files)


def _targets(offsets: Mapping[str, int]) -> dict[TopicPartition, int]:
    named = ((name.rpartition("-"), offset) for name, offset in offsets.items())
    return {(topic, int(partition)): offset for (topic, _, partition), offset in named}
