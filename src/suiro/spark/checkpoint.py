"""Spark's own record of what a micro-batch reads: `<checkpointLocation>/offsets/<batch id>`.

Spark writes it before the micro-batch runs, so a micro-batch that runs again finds the same ends. Local paths are
opened directly, others (s3, hdfs, gs) through pyarrow's file systems.
"""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from suiro.errors import ConfigError, FatalError
from suiro.foundation.types import TopicPartition
from suiro.spark.offsets import Positions, digest

if TYPE_CHECKING:
    from pyarrow.fs import FileSystem

_OF_HADOOP = {"s3a": "s3", "s3n": "s3"}  # the same store has another name there


@dataclass(frozen=True, slots=True, kw_only=True)
class PlannedOffsets:
    """The end offsets of one micro-batch, one JSON text (or None) for each source of the query. `digest`: of the lines
    as Spark wrote them, for the marker."""

    sources: tuple[str | None, ...]
    digest: str

    @property
    def positions(self) -> list[Positions]:
        """Of those sources that are ours."""
        found = []
        for text in self.sources:
            try:
                value: Any = json.loads(text) if text else None
            except ValueError:
                continue  # another source's own format
            if isinstance(value, dict) and "@ids" in value:
                found.append(Positions.from_json(value))
        return found


def read_planned(checkpoint_location: str, batch_id: int) -> PlannedOffsets | None:
    """None where Spark has removed it (it keeps the last `minBatchesToRetain`)."""
    text = read_text(f"{checkpoint_location.rstrip('/')}/offsets/{batch_id}")
    if text is None:
        return None
    lines = text.split("\n")
    if len(lines) < 2 or lines[0] not in ("v1", "v2"):
        raise FatalError(f"{checkpoint_location}/offsets/{batch_id} is not an offset log of Spark: {text[:80]!r}")
    written = digest("\n".join(line or "-" for line in lines[2:]))
    sources = lines[2:]
    if lines[0] == "v2":  # spark.sql.streaming.offsetLog.formatVersion; a source has a name
        sources = [line.partition(":")[2] for line in sources]
    return PlannedOffsets(sources=tuple(None if line == "-" else line for line in sources), digest=written)


def same_cluster_offsets(planned: PlannedOffsets, topic_ids: dict[str, str]) -> dict[TopicPartition, int]:
    """Ends of those sources of ours that read the cluster with these topic ids (random, so: the same cluster)."""
    found: dict[TopicPartition, int] = {}
    for positions in planned.positions:
        for (topic, partition), offset in positions.offsets.items():
            known = positions.topic_ids.get(topic)
            if known is not None and known == topic_ids.get(topic):
                found[topic, partition] = max(offset, found.get((topic, partition), 0))
    return found


def read_text(location: str) -> str | None:
    """A whole file, by a path or by a URI that PyArrow knows; None where there is none."""
    path = _local(location)
    if path is not None:
        try:
            with open(path, encoding="utf-8") as file:
                return file.read()
        except FileNotFoundError:
            return None
    system, path = _remote(location)
    try:
        with system.open_input_stream(path) as stream:
            return bytes(stream.read()).decode()
    except FileNotFoundError:
        return None


def names_in(location: str) -> list[str]:
    """The names in a directory, by a path or by a URI that PyArrow knows; none if there is no directory."""
    path = _local(location)
    if path is not None:
        return os.listdir(path) if os.path.isdir(path) else []
    from pyarrow.fs import FileSelector

    system, path = _remote(location)
    return [str(info.base_name) for info in system.get_file_info(FileSelector(path, allow_not_found=True))]


def query_id_of(checkpoint_location: str) -> str | None:
    """The id of the checkpoint's query, which is the lineage in a marker. None if there is no checkpoint. Raises
    `FatalError` if it is damaged."""
    place = f"{checkpoint_location.rstrip('/')}/metadata"
    text = read_text(place)
    try:
        return None if text is None else str(json.loads(text)["id"])
    except (ValueError, KeyError, TypeError) as error:
        raise FatalError(f"{place} is not what Spark writes, a query's id: {text!r:.80}") from error


def newest_in(checkpoint_location: str, log: Literal["offsets", "commits"]) -> int:
    """The highest micro-batch in one of Spark's logs; -1 where there is none."""
    numbers = [int(name) for name in names_in(f"{checkpoint_location.rstrip('/')}/{log}") if name.isdigit()]
    return max(numbers, default=-1)


def _local(location: str) -> str | None:
    """As Hadoop reads it: all behind the host is the name of a file as it stands, "%20" and "?" too."""
    scheme, colon, rest = location.partition(":")
    if not colon or "/" in scheme:
        return location
    if scheme != "file":
        return None
    return f"/{rest[2:].partition('/')[2]}" if rest.startswith("//") else rest


def _remote(location: str) -> tuple[FileSystem, str]:
    from pyarrow import ArrowInvalid
    from pyarrow.fs import FileSystem

    scheme, _, rest = location.partition(":")
    host, slash, path = rest[2:].partition("/") if rest.startswith("//") else ("", "", rest)
    # PyArrow decodes the path; to Hadoop it is the name as it stands, as in `_local`.
    known = f"{_OF_HADOOP.get(scheme, scheme)}:{'//' if slash or host else ''}{host}{slash}{quote(path)}"
    try:
        system, path = FileSystem.from_uri(known)
    except ArrowInvalid as error:
        raise ConfigError(
            f"checkpointLocation {location}: the driver's Python has to read it too, and PyArrow cannot ({error}). It "
            "knows mounted directories, s3a://, gs://, abfss:// and hdfs://"
        ) from error
    return system, path
