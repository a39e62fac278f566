"""A node's data directory: who owns it, which partitions lie in it, and how it was left.

Kafka's files: `.lock`, `meta.properties`, `recovery-point-offset-checkpoint`,
`log-start-offset-checkpoint` and `.kafka_cleanshutdown`, which exists only between a clean stop and
the next start.
"""

from __future__ import annotations

import fcntl
import re
import shutil
import uuid
from dataclasses import dataclass
from pathlib import Path
from uuid import UUID

from suiro.clock import Clock
from suiro.errors import ConfigError
from suiro.log.checkpoints import (
    id_text,
    read_checkpoint,
    read_partition_metadata,
    read_properties,
    write_checkpoint,
    write_properties,
)
from suiro.log.config import LogConfig
from suiro.log.files import FileHandle, open_handle, replace_file
from suiro.log.graveyard import DELETED_FOLDER_SUFFIX, Graveyard
from suiro.log.partition import PartitionLog

LOCK = ".lock"
META_PROPERTIES = "meta.properties"
RECOVERY_POINTS = "recovery-point-offset-checkpoint"
LOG_STARTS = "log-start-offset-checkpoint"
CLEANER_OFFSETS = "cleaner-offset-checkpoint"
CLEAN_SHUTDOWN = ".kafka_cleanshutdown"
_PARTITION_NAME = re.compile(r"(?P<topic>[a-zA-Z0-9._-]+)-(?P<partition>\d+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionPlace:
    """A partition's directory as found on disk. `topic_id` is None where Kafka has not written one yet."""

    topic: str
    partition: int
    directory: Path
    topic_id: UUID | None


class DataDirectory:
    """Open one with `open`. At most one process holds a directory at a time."""

    def __init__(self, path: Path, lock: FileHandle, *, cluster_id: str, node_id: int, clean: bool) -> None:
        self.path = path
        self.cluster_id = cluster_id
        self.node_id = node_id
        self.clean_shutdown = clean
        self.logs: dict[tuple[str, int], PartitionLog] = {}
        self.graveyard = Graveyard()
        self._lock: FileHandle | None = lock
        self._recovery_points = self._read_offsets(RECOVERY_POINTS)
        self._log_starts = self._read_offsets(LOG_STARTS)
        self._cleaner_offsets = self._read_offsets(CLEANER_OFFSETS)

    @classmethod
    def open(cls, path: Path, *, node_id: int = 1, cluster_id: str | None = None) -> DataDirectory:
        """Lock the directory (made if absent). Raises ConfigError where another node has it."""
        path.mkdir(parents=True, exist_ok=True)
        lock = open_handle(path / LOCK, create=True)
        try:
            # The first tells two nodes in one process apart, the second is the one that Kafka takes.
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigError(
                f"another node is running on {path}; stop it, or give this one a directory of its own"
            ) from error
        meta = read_properties(path / META_PROPERTIES)
        found_node = meta.get("node.id", str(node_id))
        if found_node != str(node_id):
            raise ConfigError(f"{path} belongs to node {found_node}, not to node {node_id}")
        found_cluster = meta.get("cluster.id")
        if found_cluster is not None and cluster_id is not None and found_cluster != cluster_id:
            raise ConfigError(f"{path} belongs to cluster {found_cluster}, not to {cluster_id}")
        cluster_id = found_cluster or cluster_id or id_text(uuid.uuid4())
        if not meta:
            write_properties(
                path / META_PROPERTIES,
                {
                    "version": "1",
                    "cluster.id": cluster_id,
                    "node.id": str(node_id),
                    "directory.id": id_text(uuid.uuid4()),
                },
            )
        marker = path / CLEAN_SHUTDOWN
        clean = marker.exists()
        # From here on a crash is a crash: the marker must not vouch for what is written now.
        marker.unlink(missing_ok=True)
        for doomed in path.glob(f"*{DELETED_FOLDER_SUFFIX}"):
            shutil.rmtree(doomed, ignore_errors=True)
        return cls(path, lock, cluster_id=cluster_id, node_id=node_id, clean=clean)

    def partitions(self) -> list[PartitionPlace]:
        """The partitions on disk, by topic and number."""
        places = []
        for directory in self.path.iterdir():
            match = _PARTITION_NAME.fullmatch(directory.name)
            if match is None or not directory.is_dir():
                continue
            places.append(
                PartitionPlace(
                    topic=match["topic"],
                    partition=int(match["partition"]),
                    directory=directory,
                    topic_id=read_partition_metadata(directory),
                )
            )
        return sorted(places, key=lambda place: (place.topic, place.partition))

    def open_partition(
        self, topic: str, partition: int, *, topic_id: UUID, config: LogConfig, clock: Clock
    ) -> PartitionLog:
        """Create or open a partition; it is closed with the directory."""
        key = (topic, partition)
        log = PartitionLog.open(
            self.path / f"{topic}-{partition}",
            topic=topic,
            partition=partition,
            topic_id=topic_id,
            config=config,
            clock=clock,
            clean_shutdown=self.clean_shutdown,
            recovery_point=self._recovery_points.get(key, 0),
            log_start_offset=self._log_starts.get(key, 0),
            graveyard=self.graveyard,
        )
        log.cleaned_offset = self._cleaner_offsets.get(key)
        self.logs[key] = log
        return log

    def delete_partition(self, topic: str, partition: int) -> None:
        """Remove a partition and what the checkpoints say of it."""
        key = (topic, partition)
        log = self.logs.pop(key, None)
        self._recovery_points.pop(key, None)
        self._log_starts.pop(key, None)
        self._cleaner_offsets.pop(key, None)
        if log is not None:
            log.delete()
        self.checkpoint()

    def checkpoint(self) -> None:
        """Write down how far each log was synced and where it starts. Call it now and then."""
        for key, log in self.logs.items():
            self._recovery_points[key] = log.recovery_point
            self._log_starts[key] = log.log_start_offset
        self._write_offsets(RECOVERY_POINTS, self._recovery_points)
        self._write_offsets(LOG_STARTS, {key: start for key, start in self._log_starts.items() if start})

    def write_cleaner_offsets(self) -> None:
        """Write down how far each compacted log is clean."""
        offsets = {
            key: log.cleaned_offset for key, log in self.logs.items() if log.cleaned_offset is not None
        }
        self._cleaner_offsets = offsets
        self._write_offsets(CLEANER_OFFSETS, offsets)

    def close(self) -> None:
        """Close every log, and say so. Nothing may be appended any more."""
        if self._lock is None:
            return
        for log in self.logs.values():
            log.close()
        self.checkpoint()
        if any(log.offline is not None for log in self.logs.values()):
            self._lock = None
            return  # The next start must look at what the disk really has.
        replace_file(self.path / CLEAN_SHUTDOWN, b'{"version":0,"brokerEpoch":-1}')
        self._lock = None

    def abandon(self) -> None:
        """Let go without a word, as a killed process does."""
        for log in self.logs.values():
            log.abandon()
        self._lock = None

    def _read_offsets(self, name: str) -> dict[tuple[str, int], int]:
        rows = read_checkpoint(self.path / name, columns=3)
        return {(topic, int(partition)): int(offset) for topic, partition, offset in rows}

    def _write_offsets(self, name: str, offsets: dict[tuple[str, int], int]) -> None:
        rows = [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
        write_checkpoint(self.path / name, rows)
