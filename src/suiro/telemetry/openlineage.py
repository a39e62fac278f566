"""OpenLineage's run events, specification 2-0-2: which datasets a run of a job reads and writes.

This module makes the JSON itself. The official client would add five dependencies, a second HTTP library among them,
and it sends on the thread of its caller. The tests validate every event with the published JSON schema.

Every event has all datasets of the run, so an event that is lost is made good by the next one.

The columns of a dataset are read from the text of its schema, with limits, because schemas come from others.

A run is one start of a process: START, RUNNING on an interval, and one end. Where a run has a file, its id is kept
there until the target has the end event. The next start ends a run that was killed: it sends ABORT for the id that it
finds. So each run gets an end at last, and in rare cases two of them (killed between the delivery and the removal of
the file).
"""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any, Literal, Self
from uuid import UUID

import msgspec

import suiro
from suiro.clock import SystemClock
from suiro.foundation.nesting import parse_json
from suiro.telemetry.sending import EventSender

SPEC = "https://openlineage.io/spec"
SCHEMA_URL = f"{SPEC}/2-0-2/OpenLineage.json#/$defs/RunEvent"
PRODUCER = f"pkg:pypi/suiro@{suiro.__version__}"
MESSAGE_CHARS = 4 * 1024
NAME_CHARS = 1_024

_FACETS = {
    "schema": "1-2-0/SchemaDatasetFacet.json#/$defs/SchemaDatasetFacet",
    "columnLineage": "1-2-0/ColumnLineageDatasetFacet.json#/$defs/ColumnLineageDatasetFacet",
    "errorMessage": "1-0-1/ErrorMessageRunFacet.json#/$defs/ErrorMessageRunFacet",
    "processing_engine": "1-1-1/ProcessingEngineRunFacet.json#/$defs/ProcessingEngineRunFacet",
    "jobType": "2-0-4/JobTypeJobFacet.json#/$defs/JobTypeJobFacet",
}

EventType = Literal["START", "RUNNING", "COMPLETE", "ABORT", "FAIL"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Column:
    """A column of a dataset; `columns` are the fields of a struct."""

    name: str
    type: str | None = None
    columns: tuple[Column, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ColumnOrigin:
    """A column of an input from which a column of an output is made. `is_identity`: its value is taken as it is."""

    namespace: str
    name: str
    column: str
    is_identity: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Dataset:
    """A topic, a table, a folder. No columns: they are not known. `origins`: of its columns, where they are known."""

    namespace: str
    name: str
    columns: tuple[Column, ...] = ()
    origins: Mapping[str, tuple[ColumnOrigin, ...]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Datasets:
    inputs: tuple[Dataset, ...] = ()
    outputs: tuple[Dataset, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """`kind`: APPLICATION, VIEW, CAPTURE, SOURCE or SINK. `engine`: name and version of what runs it."""

    namespace: str
    name: str
    kind: str
    engine: tuple[str, str] = ("suiro", suiro.__version__)


def kafka_namespace(bootstrap_servers: str) -> str:
    """Of topics: kafka://HOST:PORT of the first server."""
    return f"kafka://{bootstrap_servers.split(',')[0].strip()}"


def new_run_id(now_ms: int) -> str:
    """A UUID of version 7, which sorts by time, as OpenLineage recommends."""
    bits = int.from_bytes(os.urandom(10))
    number = (now_ms & (1 << 48) - 1) << 80 | bits
    number = number & ~(0xF << 76) | 7 << 76
    return str(UUID(int=number & ~(3 << 62) | 2 << 62))


def encode_event(
    kind: EventType,
    job: Job,
    run_id: str,
    at_ms: int,
    datasets: Datasets,
    *,
    error: BaseException | None = None,
) -> bytes:
    """An event as one line of JSON."""
    run_facets = {
        "processing_engine": _facet(
            "processing_engine",
            name=job.engine[0],
            version=job.engine[1],
            openlineageAdapterVersion=suiro.__version__,
        )
    }
    if error is not None:
        run_facets["errorMessage"] = _facet(
            "errorMessage",
            message=_text(f"{type(error).__name__}: {error}", MESSAGE_CHARS),
            programmingLanguage="Python",
        )
    job_type = _facet("jobType", processingType="STREAMING", integration="SUIRO", jobType=job.kind)
    return msgspec.json.encode(
        {
            "eventTime": datetime.fromtimestamp(at_ms / 1_000, UTC).isoformat(timespec="milliseconds"),
            "eventType": kind,
            "producer": PRODUCER,
            "schemaURL": SCHEMA_URL,
            "run": {"runId": run_id, "facets": run_facets},
            "job": {
                "namespace": _text(job.namespace),
                "name": _text(job.name),
                "facets": {"jobType": job_type},
            },
            "inputs": [_dataset(one) for one in datasets.inputs],
            "outputs": [_dataset(one) for one in datasets.outputs],
        }
    )


def _dataset(dataset: Dataset) -> dict[str, Any]:
    facets = {}
    if dataset.columns:
        facets["schema"] = _facet("schema", fields=[_column(one) for one in dataset.columns])
    if dataset.origins:
        fields = {
            _text(name): {"inputFields": [_origin(one) for one in origins]} for name, origins in dataset.origins.items()
        }
        facets["columnLineage"] = _facet("columnLineage", fields=fields)
    return {"namespace": _text(dataset.namespace), "name": _text(dataset.name), "facets": facets}


def _column(column: Column) -> dict[str, Any]:
    found: dict[str, Any] = {"name": _text(column.name)}
    if column.type is not None:
        found["type"] = _text(column.type)
    if column.columns:
        found["fields"] = [_column(one) for one in column.columns]
    return found


def _origin(origin: ColumnOrigin) -> dict[str, Any]:
    subtype = "IDENTITY" if origin.is_identity else "TRANSFORMATION"
    return {
        "namespace": _text(origin.namespace),
        "name": _text(origin.name),
        "field": _text(origin.column),
        "transformations": [{"type": "DIRECT", "subtype": subtype}],
    }


def _facet(facet: str, /, **fields: Any) -> dict[str, Any]:
    return {"_producer": PRODUCER, "_schemaURL": f"{SPEC}/facets/{_FACETS[facet]}", **fields}


def _text(text: str, limit: int = NAME_CHARS) -> str:
    """UTF-8 has no form for half of a surrogate pair, which names and messages of others may have."""
    return text[:limit].encode("utf-8", "backslashreplace").decode()


COLUMNS_MAX = 1_000
"""Of one schema, those of structs included. Further ones are left out."""
DEPTH_MAX = 8


def columns_of(language: str, text: str) -> tuple[Column, ...]:
    """`language`: AVRO or JSON, as a registry names it. Empty where the schema has no columns, or cannot be read."""
    if language not in ("AVRO", "JSON"):
        return ()
    try:
        schema = parse_json(text)
    except (ValueError, RecursionError):
        return ()
    read = _avro if language == "AVRO" else _json
    return tuple(read(schema, 0, iter(range(COLUMNS_MAX))))


def _avro(schema: Any, depth: int, budget: Iterator[int]) -> Iterator[Column]:
    record = _record_in(schema)
    fields = record.get("fields") if record is not None and depth < DEPTH_MAX else None
    for one in fields if isinstance(fields, list) else ():
        if not isinstance(one, dict) or not isinstance(one.get("name"), str):
            continue
        if next(budget, None) is None:
            return
        kind = one.get("type")
        yield Column(name=one["name"], type=_avro_type(kind), columns=tuple(_avro(kind, depth + 1, budget)))


def _record_in(schema: Any) -> dict[str, Any] | None:
    """A record, also that of a union with null or of the items of an array."""
    for _ in range(DEPTH_MAX):
        if isinstance(schema, list):
            others = [one for one in schema if one != "null"]
            schema = others[0] if len(others) == 1 else None
        if not isinstance(schema, dict):
            return None
        kind = schema.get("type")
        if kind == "record":
            return schema
        schema = schema.get("items") if kind == "array" else kind
    return None


def _avro_type(kind: Any, depth: int = 0) -> str | None:
    if isinstance(kind, str):
        return kind
    if depth >= DEPTH_MAX:
        return None
    if isinstance(kind, list):
        names = [_avro_type(one, depth + 1) for one in kind[:16] if one != "null"]
        return " or ".join(name for name in names if name is not None) or "null"
    if isinstance(kind, dict):
        logical = kind.get("logicalType")
        if isinstance(logical, str):
            return logical
        if kind.get("type") == "array":
            return f"array<{_avro_type(kind.get('items'), depth + 1)}>"
        return _avro_type(kind.get("type"), depth + 1)
    return None


def _json(schema: Any, depth: int, budget: Iterator[int]) -> Iterator[Column]:
    properties = schema.get("properties") if isinstance(schema, dict) and depth < DEPTH_MAX else None
    for name, one in properties.items() if isinstance(properties, dict) else ():
        if next(budget, None) is None:
            return
        kind = one.get("type") if isinstance(one, dict) else None
        if isinstance(kind, list):
            kind = " or ".join(str(item) for item in kind[:16] if item != "null")
        yield Column(
            name=name,
            type=kind if isinstance(kind, str) else None,
            columns=tuple(_json(one, depth + 1, budget)),
        )


INTERVAL_S = 60.0
FIRST_S = 5.0
"""When the first RUNNING comes: some datasets are known only once the work has begun."""

_log = logging.getLogger(__name__)


def job_namespace() -> str:
    """As all users of OpenLineage name it."""
    return os.environ.get("OPENLINEAGE_NAMESPACE") or "default"


class LineageRun:
    """Sends START when it is made; in a `with`, its end is that of the block. `datasets` is called for each event, on
    the sender's thread: it may ask a registry. `failure`: what ended the work, asked on the interval. The first end
    wins, and further ones do nothing."""

    def __init__(
        self,
        sender: EventSender,
        job: Job,
        datasets: Callable[[], Datasets],
        *,
        file: Path | None = None,
        failure: Callable[[], BaseException | None] = lambda: None,
        interval_s: float = INTERVAL_S,
    ) -> None:
        self._sender = sender
        self._job = job
        self._datasets = datasets
        self._file = file
        self._failure = failure
        self._clock = SystemClock()
        self._ended = threading.Event()
        self._lock = threading.Lock()
        self.run_id = new_run_id(self._clock.wall_ms())
        self._end_of_killed()
        self._put("START")
        self._thread = threading.Thread(target=self._report, args=(interval_s,), name="telemetry-run", daemon=True)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._end("COMPLETE" if error is None else "FAIL", error)

    def complete(self) -> None:
        self._end("COMPLETE")

    def abort(self) -> None:
        self._end("ABORT")

    def fail(self, error: BaseException) -> None:
        self._end("FAIL", error)

    def _report(self, interval_s: float) -> None:
        pause_s = min(FIRST_S, interval_s)
        while not self._ended.wait(pause_s):
            pause_s = interval_s
            failure = self._failure()
            if failure is not None:
                self.fail(failure)
                return
            with self._lock:
                if not self._ended.is_set():
                    self._put("RUNNING")

    def _end(self, kind: EventType, error: BaseException | None = None) -> None:
        with self._lock:
            if self._ended.is_set():
                return
            self._ended.set()
            self._put(kind, error=error, sent=self._forget)

    def _put(
        self, kind: EventType, *, error: BaseException | None = None, sent: Callable[[], None] | None = None
    ) -> None:
        make = partial(self._event, kind, self.run_id, self._clock.wall_ms(), error)
        self._sender.put(make, replaces=self.run_id if kind == "RUNNING" else None, sent=sent)

    def _event(self, kind: EventType, run_id: str, at_ms: int, error: BaseException | None) -> bytes:
        return encode_event(kind, self._job, run_id, at_ms, self._datasets(), error=error)

    def _end_of_killed(self) -> None:
        if self._file is None:
            return
        try:
            found = self._file.read_text("ascii")[:64].strip() if self._file.exists() else ""
            self._file.write_text(f"{self.run_id}\n", "ascii")
        except (OSError, ValueError) as error:
            _log.warning("%s: the run's id cannot be kept there: %s", self._file, error)
            return
        try:
            killed = str(UUID(found))
        except ValueError:
            return
        self._sender.put(partial(self._event, "ABORT", killed, self._clock.wall_ms(), None))

    def _forget(self) -> None:
        if self._file is not None:
            try:
                self._file.unlink(missing_ok=True)
            except OSError as error:
                _log.warning("%s: cannot be removed: %s", self._file, error)
