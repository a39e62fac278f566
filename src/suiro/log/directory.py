"""A node's data directory: its owner, its partitions, and whether it was closed cleanly.

Kafka's files: `.lock`, `meta.properties`, `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint`, `cleaner-offset-checkpoint` and `.kafka_cleanshutdown`, which exists only
between a clean stop and the next start. The node adds `gap-offset-checkpoint` in the same format, with the offset of
each partition below which cleaning may have left gaps. Its rows are on the disk before the first gap is. If there is no
such file (an older version, or Kafka, made the directory), any gap below the log's end at that start counts as
cleaning's. `latest-leader-epoch` has the latest epoch that a start after an unclean stop has begun.
"""

from __future__ import annotations

import errno
import fcntl
import logging
import os
import re
import shutil
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from suiro.clock import Clock
from suiro.errors import ConfigError
from suiro.foundation.types import TopicPartition
from suiro.log.checkpoints import (
    DamagedFileError,
    check_version,
    id_text,
    read_checkpoint,
    read_or_set_aside,
    read_partition_metadata,
    read_properties,
    write_checkpoint,
    write_properties,
)
from suiro.log.config import LogConfig
from suiro.log.damage import set_aside
from suiro.log.errors import StorageError
from suiro.log.files import FileHandle, open_directory, open_handle, replace_file
from suiro.log.partition import PartitionLog
from suiro.log.segments import missing
from suiro.log.swap import DELETED_FOLDER_SUFFIX, DeletedFiles

logger = logging.getLogger(__name__)

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
GAP_OFFSETS = "gap-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
LATEST_EPOCH = "latest-leader-epoch"
HANDED_OVER = "handed-over"
_META_VERSION = "1"
_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """A partition's directory as found on disk. `topic_id` is None where Kafka has not written one yet."""

    topic: str
    partition: int
    directory: Path
    topic_id: UUID | None


def partition_place(directory: Path) -> PartitionPlace | None:
    """Returns the partition of a folder by its name and its `partition.metadata`, or None if it is no partition's.

    Raises ConfigError if that file is damaged.
    """
    if _PARTITION_NAME.fullmatch(directory.name) is None:
        return None
    return _place(directory, read_partition_metadata(directory))


def _place(directory: Path, topic_id: UUID | None) -> PartitionPlace | None:
    match = _PARTITION_NAME.fullmatch(directory.name)
    if match is None:
        return None
    return PartitionPlace(
        topic=match["topic"], partition=int(match["partition"]), directory=directory, topic_id=topic_id
    )


class DataDirectory:
    """Open one with `open`. At most one process holds a directory at a time."""

    def __init__(self, path: Path, lock: FileHandle, *, cluster_id: str, clean: bool) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.clean_shutdown = clean
        self.logs: dict[TopicPartition, PartitionLog] = {}
        self.deleted_files = DeletedFiles()
        self._lock: FileHandle | None = lock
        self._recovery_points = self._offsets_or_none(RECOVERY_POINTS, "every log is read from its start") or {}
        self._log_starts = self._read_log_starts()
        self._written_starts: dict[TopicPartition, int] | None = None
        self._cleaner_offsets = self._offsets_or_none(CLEANER_OFFSETS, "compacted logs are cleaned anew") or {}
        self._gaps: dict[TopicPartition, int] | None = None
        if (path / GAP_OFFSETS).exists():
            self._gaps = self._offsets_or_none(GAP_OFFSETS, "gaps that the logs have now count as cleaning's")

    @classmethod
    def open(cls, path: Path, *, node_id: int | None = None) -> DataDirectory:
        """Lock the directory, and make it if it is absent. Without a `node_id`, a new one belongs to the node that is
        started on it first. Raises ConfigError if another node has it, if it was handed over, or if it cannot be
        used."""
        try:
            return cls._open(path, node_id)
        except OSError as error:
            full = error.errno in (errno.ENOSPC, errno.EDQUOT)
            raise ConfigError(
                f"the data directory {path} cannot be used: {error.strerror}"
                f"{'' if error.filename is None else f': {error.filename}'}; "
                + ("free space on its disk" if full else "choose a directory that the node's user may write to")
            ) from error

    @classmethod
    def _open(cls, path: Path, node_id: int | None) -> DataDirectory:
        path.mkdir(parents=True, exist_ok=True)
        if (path / HANDED_OVER).exists():
            raise ConfigError(
                f"{path} was handed over to Apache Kafka ({(path / HANDED_OVER).read_text().strip()}), and what came "
                f"since is there, not here; to go back to what was here before, remove {path / HANDED_OVER}"
            )
        fresh = not any(path.iterdir())
        lock = _locked(path)
        cluster_id = _cluster_id(path, node_id)
        if fresh:
            write_checkpoint(path / GAP_OFFSETS, [], sync=True)
        marker = path / CLEAN_SHUTDOWN
        clean = marker.exists() or fresh
        # The marker must not vouch for anything that is written from now on.
        if clean and not fresh:
            marker.unlink()
            os.fsync(open_directory(path))
        for doomed in path.glob(f"*{DELETED_FOLDER_SUFFIX}"):
            shutil.rmtree(doomed, ignore_errors=True)
        return cls(path, lock, cluster_id=cluster_id, clean=clean)

    def partitions(self) -> list[PartitionPlace]:
        """The partitions on disk, by topic and number."""
        places = []
        for directory in self.path.iterdir():
            if not directory.is_dir():
                continue
            try:
                place = partition_place(directory)
            except DamagedFileError as error:
                logger.error("%s; where the list of topics knows the partition, it is written anew", error)
                place = _place(directory, None)
            if place is not None:
                places.append(place)
        return sorted(places, key=lambda place: (place.topic, place.partition))

    def open_partition(
        self,
        topic: str,
        partition: int,
        *,
        topic_id: UUID,
        config: LogConfig,
        clock: Clock,
        is_known: bool = False,
    ) -> PartitionLog:
        """Create or open a partition, which `close` closes. `is_known`: the partition existed before."""
        key = (topic, partition)
        folder = self.path / f"{topic}-{partition}"
        if not folder.exists():
            first, end = self._log_starts.get(key, 0), self._recovery_points.get(key, 0)
            if is_known and first < end:
                logger.error(
                    "%s is not there: offsets %d to %d are lost, which were synced to disk; the partition begins anew",
                    folder,
                    first,
                    end - 1,
                )
            # A node that was killed while it deleted a topic left rows of it. In a new topic of that name, records
            # before the old start would count as deleted.
            self._forget(key)
        log = PartitionLog(
            folder,
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            clock=clock,
            clean_shutdown=self.clean_shutdown,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            deleted_files=self.deleted_files,
            gaps_below=None if self._gaps is None else max(self._gaps.get(key, 0), self._cleaner_offsets.get(key, 0)),
            note_gaps=self._write_gaps,
        )
        noted, first = self._log_starts.get(key, 0), log.segments[0].base_offset
        if self.clean_shutdown and self._gaps is not None and first > noted and not config.remote_storage_enable:
            logger.error("%s", missing(folder, noted, first))  # A clean stop notes where each log begins.
        log.cleaned_offset = self._cleaner_offsets.get(key)
        self.logs[key] = log
        return log

    def all_are_open(self) -> None:
        """Call this when every log is open. In a directory without `gap-offset-checkpoint`, the logs now say where gaps
        may be."""
        if self._gaps is None:
            self._gaps = {}
            self._write_gaps()

    def lead_anew(self) -> None:
        """Begin a new leader epoch in every log, one that no log has been in. Call this when every log is open."""
        path = self.path / LATEST_EPOCH
        epoch = 1 + max((_epoch_in(path), *(log.leader_epoch for log in self.logs.values())))
        try:
            # The logs' own files are not synced. If the epoch were lost with them, it would be begun once more.
            replace_file(path, str(epoch).encode())
        except OSError as error:  # A node with a full disk must start, so that clients can delete something.
            logger.warning("%s cannot be written: %s", path, error.strerror)
        for log in self.logs.values():
            log.lead_anew(epoch)

    def check_copy(self, place: PartitionPlace, target: Path, *, config: LogConfig, clock: Clock) -> PartitionLog:
        """Copy a partition of another data directory into a folder of this one, and check every batch.

        Returns the closed log. Raises ConfigError if a batch is damaged or missing. Gaps are no damage in a topic that
        is compacted, or that was by its cleaner's checkpoint.
        """
        assert place.topic_id is not None
        key, copy = (place.topic, place.partition), target / place.directory.name
        shutil.copytree(place.directory, copy)
        for snapshot in copy.glob("*.snapshot"):
            snapshot.unlink()  # It is rebuilt from the segments.
        beside = place.directory.parent
        start = _offsets_in(beside / LOG_STARTS).get(key, 0)
        whole = sum(path.stat().st_size for path in copy.glob("*.log"))
        log = PartitionLog(
            copy,
            topic=place.topic,
            partition=place.partition,
            topic_id=place.topic_id,
            config=config,
            clock=clock,
            clean_shutdown=False,
            log_start_offset=start,
        )
        if log.size != whole:
            log.abandon()
            raise ConfigError(
                f"{place.directory} is damaged: of {whole} bytes only {log.size} are whole batches in order; let "
                "Apache Kafka repair it (start and stop it once), then copy it again"
            )
        log.cleaned_offset = _offsets_in(beside / CLEANER_OFFSETS).get(key)
        first, log.gaps_below = log.found_gaps[-1] if log.found_gaps else (0, 0)
        if log.gaps_below > (log.cleaned_offset or 0) and not config.compacted:
            log.abandon()
            raise ConfigError(
                f"{place.directory} has no offsets {first} to {log.gaps_below - 1}, and nothing says that compaction "
                "took them; if the topic was compacted once, import it as compacted (cleanup.policy=compact) and set "
                "its policy again afterwards"
            )
        log.close()
        return log

    def adopt(self, logs: Iterable[PartitionLog]) -> None:
        """Add logs that `check_copy` has opened to the checkpoints. They stand in their places now."""
        for log in logs:
            key = (log.topic, log.partition)
            self._recovery_points[key] = log.recovery_point
            self._log_starts[key] = log.log_start_offset
            if log.cleaned_offset is not None:
                self._cleaner_offsets[key] = log.cleaned_offset
            if self._gaps is not None:
                self._gaps[key] = log.gaps_below
        self._write_gaps()
        self.checkpoint()
        self._write_offsets(CLEANER_OFFSETS, self._cleaner_offsets)

    def leave(self) -> None:
        """Release a directory in which no log was opened, as it was found: stopped cleanly, or not."""
        if self.clean_shutdown:
            self.close()
        else:
            self.abandon()

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove a partition and its rows in the checkpoints."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        if log is not None:
            log.delete()
        self._forget(key)

    def _forget(self, key: TopicPartition) -> None:
        """Remove the rows of a partition from the checkpoints."""
        if key in self._recovery_points or key in self._log_starts:
            self._recovery_points.pop(key, None)
            self._log_starts.pop(key, None)
            self.checkpoint()
        if self._cleaner_offsets.pop(key, None) is not None:
            self._write_offsets(CLEANER_OFFSETS, self._cleaner_offsets)
        if self._gaps is not None and self._gaps.pop(key, None) is not None:
            self._write_gaps()

    def checkpoint(self) -> None:
        """Write down how far each log was synced and where it starts. Call it now and then."""
        for key, log in self.logs.items():
            self._recovery_points[key] = log.recovery_point
            self._log_starts[key] = log.log_start_offset
        self._write_offsets(RECOVERY_POINTS, self._recovery_points)
        starts = {key: start for key, start in self._log_starts.items() if start}
        if starts != self._written_starts:
            # This file is synced, because nothing else tells what DeleteRecords has deleted.
            write_checkpoint(self.path / LOG_STARTS, offset_rows(starts), sync=True)
            self._written_starts = starts

    def write_cleaner_offsets(self) -> None:
        """Write down how far each compacted log is clean."""
        offsets = {key: log.cleaned_offset for key, log in self.logs.items() if log.cleaned_offset is not None}
        self._cleaner_offsets = offsets
        self._write_offsets(CLEANER_OFFSETS, offsets)

    def close(self) -> None:
        """Close every log, and note the clean stop. Nothing may be appended any more.

        A log that cannot be closed is reported, and keeps none of the others from being closed.
        """
        if self._lock is None:
            return
        for log in self.logs.values():
            try:
                log.close()
            except (OSError, StorageError) as error:
                log.take_offline(f"it cannot be closed: {error}")
        try:
            self.checkpoint()
            # Otherwise the next start must check what the disk really has.
            if all(log.offline is None for log in self.logs.values()):
                replace_file(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        finally:
            self._lock = None

    def abandon(self) -> None:
        """Release the directory without writing anything, as a killed process does."""
        for log in self.logs.values():
            log.abandon()
        self._lock = None

    def _write_gaps(self) -> None:
        """Write the gaps and sync them. Raises OSError."""
        if self._gaps is None:
            return  # Not all logs are open. Until they are, every gap counts as cleaning's.
        for key, log in self.logs.items():
            if log.gaps_below:
                self._gaps[key] = log.gaps_below
        rows = offset_rows({key: offset for key, offset in self._gaps.items() if offset})
        write_checkpoint(self.path / GAP_OFFSETS, rows, sync=True)

    def _offsets_or_none(self, name: str, then: str) -> dict[TopicPartition, int] | None:
        """Returns None if the file was damaged. It is then set aside."""
        rows = read_or_set_aside(self.path / name, columns=3, then=then)
        return None if rows is None else _offsets(rows)

    def _read_log_starts(self) -> dict[TopicPartition, int]:
        try:
            return _offsets_in(self.path / LOG_STARTS)
        except DamagedFileError as error:
            # Only this file tells what DeleteRecords has deleted. The operator decides, not the node.
            raise ConfigError(
                f"{error}; it tells which records were deleted from the logs' starts. Restore it, or remove it to "
                "start without: deleted records whose segments are still there can be read again then"
            ) from error

    def _write_offsets(self, name: str, offsets: dict[TopicPartition, int]) -> None:
        write_checkpoint(self.path / name, offset_rows(offsets))


def _locked(path: Path) -> FileHandle:
    lock = open_handle(path / LOCK, create=True)
    try:
        # The first tells two nodes in one process apart, the second is the one that Kafka takes.
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        raise ConfigError(
            f"another node is running on {path}; stop it, or give this one a directory of its own"
        ) from error
    return lock


def _cluster_id(path: Path, node_id: int | None) -> str:
    """The cluster that the directory belongs to; a new directory is given to a new cluster. It must belong to the node
    `node_id`. None: it may belong to any node, and to none yet."""
    try:
        meta = read_properties(path / META_PROPERTIES)
    except DamagedFileError as error:
        raise ConfigError(f"{error}; restore it: it names the cluster and the node of {path}") from error
    if meta and not {"cluster.id", "node.id"} <= meta.keys():
        raise ConfigError(
            f"{path / META_PROPERTIES} names no cluster.id or no node.id; restore it, or remove it to give {path} "
            "a new cluster.id"
        )
    check_version(path / META_PROPERTIES, meta.get("version", _META_VERSION), _META_VERSION)
    found_node = meta.get("node.id")
    if None not in (found_node, node_id) and found_node != str(node_id):
        raise ConfigError(f"{path} belongs to node {found_node}, not to node {node_id}")
    cluster_id = meta.get("cluster.id") or id_text(uuid.uuid4())
    if not meta and node_id is not None:
        write_meta_properties(path, cluster_id=cluster_id, node_id=node_id, directory_id=uuid.uuid4())
    return cluster_id


def write_meta_properties(folder: Path, *, cluster_id: str, node_id: int, directory_id: UUID) -> None:
    values = {
        "version": _META_VERSION,
        "cluster.id": cluster_id,
        "node.id": str(node_id),
        "directory.id": id_text(directory_id),
    }
    write_properties(folder / META_PROPERTIES, values)


def _epoch_in(path: Path) -> int:
    try:
        return int(path.read_text()) if path.exists() else 0
    except ValueError:
        set_aside(path, f"{path} does not hold a number; the logs tell the latest leader epoch")
        return 0


def offset_rows(offsets: Mapping[TopicPartition, int]) -> list[str]:
    return [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]


def _offsets_in(path: Path) -> dict[TopicPartition, int]:
    return _offsets(read_checkpoint(path, columns=3))


def _offsets(rows: Sequence[Sequence[str]]) -> dict[TopicPartition, int]:
    return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}
