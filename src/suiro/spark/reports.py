"""The report of a task to the driver: a header, a JSON object, and bytes.

Head: the format's version (one byte) and the length of the JSON object (four, big-endian). The object says what kind of
report it is, its fields, and under `attached` how many bytes each of the attachments has, which follow it.
"""

from __future__ import annotations

import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import WriterCommitMessage

from suiro.errors import FatalError
from suiro.spark.staging import StagedRecords

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

FORMAT_VERSION = 1
_HEAD = struct.Struct(">BI")
_COMMIT = "commit"


@dataclass(frozen=True, slots=True, kw_only=True)
class MicroBatchIdentity:
    """As Spark tells its tasks. `query_id` is kept in the checkpoint, `run_id` is new at every start."""

    query_id: str
    run_id: str
    batch_id: int

    @classmethod
    def of_task(cls, properties: Mapping[str, str]) -> MicroBatchIdentity:
        """`properties`: of a task (`stage.task_properties`)."""
        return cls(
            query_id=properties["sql.streaming.queryId"],
            run_id=properties.get("spark.jobGroup.id", ""),
            batch_id=int(properties["streaming.sql.batchId"]),
        )

    @classmethod
    def of_rows(cls, rows: DataFrame, batch_id: int) -> MicroBatchIdentity:
        """In `foreachBatch`. `query_id` is empty outside of it."""
        context = rows.sparkSession.sparkContext
        return cls(
            query_id=context.getLocalProperty("sql.streaming.queryId") or "",
            run_id=context.getLocalProperty("spark.jobGroup.id") or "",
            batch_id=batch_id,
        )


@dataclass(frozen=True)
class CommitMessage(WriterCommitMessage):
    """A task's result: where its records are, and whose they are."""

    records: StagedRecords
    identity: MicroBatchIdentity
    staging_directory: str | None


@dataclass(frozen=True, slots=True)
class PackedReport:
    """`fields`: what JSON holds."""

    kind: str
    fields: Mapping[str, Any]
    attached: Sequence[bytes] = field(default=())

    def pack(self) -> bytes:
        value = {"kind": self.kind, "fields": self.fields, "attached": [len(data) for data in self.attached]}
        text = json.dumps(value, sort_keys=True, separators=(",", ":")).encode()
        return b"".join((_HEAD.pack(FORMAT_VERSION, len(text)), text, *self.attached))

    @classmethod
    def unpack(cls, data: bytes) -> PackedReport:
        """Raises `FatalError` where it is not what `pack` gives."""
        try:
            version, length = _HEAD.unpack_from(data)
            if version != FORMAT_VERSION:
                raise ValueError(f"it has format {version}, this release reads {FORMAT_VERSION}")
            value = json.loads(data[_HEAD.size : _HEAD.size + length])
            position, attached = _HEAD.size + length, []
            for size in value["attached"]:
                if not isinstance(size, int) or size < 0:
                    raise ValueError(f"an attachment has {size!r} bytes")
                attached.append(data[position : position + size])
                position += size
            if position != len(data):
                raise ValueError(f"it has {len(data)} bytes, not {position}")
            return cls(str(value["kind"]), dict(value["fields"]), tuple(attached))
        except (ValueError, KeyError, TypeError, RecursionError, struct.error) as error:
            raise unreadable(error) from error


def unreadable(error: Exception) -> FatalError:
    return FatalError(
        f"a task's report to the driver cannot be read: {type(error).__name__}: {error}. Driver and executors must run "
        "the same release of suiro; where they do, start the query again"
    )


def pack_commit(message: CommitMessage) -> bytes:
    records = message.records
    fields = {
        "topics": list(records.topics),
        "partitions": [list(place) for place in records.partitions],
        "record_count": records.record_count,
        "size_bytes": records.size_bytes,
        "path": records.path,
        "is_inline": records.inline is not None,
        "identity": asdict(message.identity),
        "staging_directory": message.staging_directory,
    }
    return PackedReport(_COMMIT, fields, (records.digests, records.inline or b"")).pack()


def unpack_commit(data: bytes) -> CommitMessage:
    return commit_of(PackedReport.unpack(data))


def commit_of(report: PackedReport) -> CommitMessage:
    """Raises `FatalError` where it is none."""
    try:
        if report.kind != _COMMIT:
            raise ValueError(f"it is of kind {report.kind!r}, not {_COMMIT!r}")
        fields, (digests, inline) = report.fields, report.attached
        return CommitMessage(
            StagedRecords(
                topics=tuple(fields["topics"]),
                partitions=tuple((str(topic), int(partition)) for topic, partition in fields["partitions"]),
                record_count=int(fields["record_count"]),
                size_bytes=int(fields["size_bytes"]),
                path=fields["path"],
                digests=digests,
                inline=inline if fields["is_inline"] else None,
            ),
            MicroBatchIdentity(**fields["identity"]),
            fields["staging_directory"],
        )
    except (ValueError, KeyError, TypeError) as error:
        raise unreadable(error) from error
