"""Copies the files of partitions into a data folder for Apache Kafka, and writes its metadata files.

Kafka accepts the folder as one that it has stopped cleanly itself: `.kafka_cleanshutdown` names the epoch that its
broker shows, every log is synced to its end, and every record is acknowledged.
"""

from __future__ import annotations

import os
import re
import shutil
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from suiro.errors import ConfigError
from suiro.log.checkpoints import PARTITION_METADATA, write_checkpoint
from suiro.log.directory import (
    CLEAN_SHUTDOWN,
    CLEANER_OFFSETS,
    LOG_STARTS,
    RECOVERY_POINTS,
    offset_rows,
    write_meta_properties,
)
from suiro.log.files import replace_file
from suiro.log.leader_epochs import FILE_NAME as LEADER_EPOCHS

HIGH_WATERMARKS = "replication-offset-checkpoint"
_SEGMENT_FILE = re.compile(r"\d{20}\.(log|index|timeindex|txnindex|snapshot)")
_AT_ONCE = 1 << 30


@dataclass(frozen=True, slots=True, kw_only=True)
class LogExtent:
    """Where a copied log begins and ends, and how far it is compacted (None: not at all)."""

    topic: str
    partition: int
    start: int
    end: int
    cleaned: int | None


def copy_partition(source: Path, folder: Path, *, link: bool = False) -> int:
    """Copy the files of a closed partition into a data folder, and sync its records. Returns the bytes of its segments.

    With `link`, sealed segments, which are not written to any more, are linked instead. Raises OSError, and ConfigError
    if a link cannot be made, as between two file systems.
    """
    target = folder / source.name
    target.mkdir()
    names = sorted(
        entry.name
        for entry in source.iterdir()
        if _SEGMENT_FILE.fullmatch(entry.name) or entry.name in (PARTITION_METADATA, LEADER_EPOCHS)
    )
    active = max((name for name in names if name.endswith(".log")), default="")
    size = 0
    for name in names:
        if name.endswith(".log"):
            size += (source / name).stat().st_size
        if link and name.endswith(".log") and name != active:
            _link(source / name, target / name)
        else:
            _copy(source / name, target / name)
    return size


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        raise ConfigError(
            f"cannot link {source} into {target.parent}: {error.strerror}; leave --link out to copy it"
        ) from error


def _copy(source: Path, target: Path) -> None:
    with source.open("rb") as reader, target.open("xb") as writer:
        try:
            # Within one file system that can share blocks, this copies none.
            while os.copy_file_range(reader.fileno(), writer.fileno(), _AT_ONCE):
                pass
        except OSError:
            reader.seek(0)
            writer.seek(0)
            writer.truncate()
            shutil.copyfileobj(reader, writer, 1 << 20)
        if target.suffix == ".log":
            writer.flush()
            # This raises if the disk fails. All other files can be rebuilt.
            os.fsync(writer.fileno())
    shutil.copystat(source, target)


def finish_folder(
    folder: Path,
    *,
    cluster_id: str,
    node_id: int,
    directory_id: UUID,
    broker_epoch: int,
    logs: Iterable[LogExtent],
) -> None:
    """Write the files beside the partitions. The caller syncs the file system."""
    logs = list(logs)
    ends = {(log.topic, log.partition): log.end for log in logs}
    rows = {
        RECOVERY_POINTS: ends,
        HIGH_WATERMARKS: ends,
        LOG_STARTS: {(log.topic, log.partition): log.start for log in logs if log.start},
        CLEANER_OFFSETS: {(log.topic, log.partition): log.cleaned for log in logs if log.cleaned is not None},
    }
    for name, offsets in rows.items():
        write_checkpoint(folder / name, offset_rows(offsets))
    write_meta_properties(folder, cluster_id=cluster_id, node_id=node_id, directory_id=directory_id)
    vouch = f'{{"version":0,"brokerEpoch":{broker_epoch}}}'
    replace_file(folder / CLEAN_SHUTDOWN, vouch.encode(), sync=False)
