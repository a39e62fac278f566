"""Reads an Iceberg table by its specification alone: the SQL catalog's row, JSON metadata, Avro manifests, Parquet."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urlsplit

import fastavro
import pyarrow.parquet as pq

DELETED = 2


def metadata_of(catalog: Path, table: str) -> dict[str, Any]:
    """Empty where there is no such table yet."""
    namespace, _, name = table.rpartition(".")
    with sqlite3.connect(catalog) as database:
        if not database.execute("select 1 from sqlite_master where name = 'iceberg_tables'").fetchone():
            return {}
        found = database.execute(
            "select metadata_location from iceberg_tables where table_namespace = ? and table_name = ?",
            (namespace, name),
        ).fetchone()
    return dict(json.loads(_path(found[0]).read_text())) if found else {}


def read_iceberg(catalog: Path, table: str) -> list[dict[str, Any]]:
    """The rows of the current snapshot."""
    return rows_of(metadata_of(catalog, table))


def rows_of(metadata: dict[str, Any]) -> list[dict[str, Any]]:
    current = metadata.get("current-snapshot-id")
    rows: list[dict[str, Any]] = []
    for snapshot in metadata.get("snapshots", []):
        if snapshot["snapshot-id"] != current:
            continue
        for manifest in _avro(snapshot["manifest-list"]):
            for entry in _avro(manifest["manifest_path"]):
                if entry["status"] != DELETED:
                    rows += pq.ParquetFile(_path(entry["data_file"]["file_path"])).read().to_pylist()
    return rows


def _avro(location: str) -> list[dict[str, Any]]:
    with _path(location).open("rb") as file:
        return list(fastavro.reader(file))


def _path(location: str) -> Path:
    return Path(unquote(urlsplit(location).path))
