"""Reads a Delta table by its protocol alone: JSON actions, Parquet checkpoints, and pyarrow for the data files."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import pyarrow.parquet as pq


def read_delta(folder: Path) -> tuple[list[dict[str, Any]], dict[str, int]]:
    """The rows of the last version, and the versions of its transaction identifiers."""
    log = folder / "_delta_log"
    files: dict[str, dict[str, str | None]] = {}
    transactions: dict[str, int] = {}
    start = -1
    if (log / "_last_checkpoint").exists():
        start = json.loads((log / "_last_checkpoint").read_text())["version"]
        for action in pq.read_table(log / f"{start:020d}.checkpoint.parquet").to_pylist():
            _apply({name: value for name, value in action.items() if value}, files, transactions)
    for path in sorted(log.glob("*.json")):
        if path.stem.isdigit() and int(path.stem) > start:
            for line in path.read_text().splitlines():
                _apply(json.loads(line), files, transactions)
    rows: list[dict[str, Any]] = []
    for name, partition in files.items():
        rows += [row | partition for row in pq.ParquetFile(folder / name).read().to_pylist()]
    return rows, transactions


def _apply(action: dict[str, Any], files: dict[str, Any], transactions: dict[str, int]) -> None:
    if added := action.get("add"):
        files[unquote(added["path"])] = dict(added.get("partitionValues") or {})
    if removed := action.get("remove"):
        files.pop(unquote(removed["path"]), None)
    if transaction := action.get("txn"):
        transactions[transaction["appId"]] = transaction["version"]
