"""Carries encoded records from tasks to the driver: in a file that both can see, otherwise in the commit message.

A file costs 0.02 s for 100 MB where a message costs 0.35 to 0.85 s. In local mode there is always such a directory;
on a cluster the option `staging.dir` names one. Files are named after micro-batch and task attempt: the driver reads
only those in the messages of winning attempts, and removes the rest when it commits.

File: frames of (topic index, partition, records, length) and a record batch. The commit message holds the SHA-256 of
each frame, so what the driver sends is what the task wrote, whoever else may write to the directory. The default one
is private: 0700, the user's own, and no symbolic link, or nothing is staged.
"""

from __future__ import annotations

import hashlib
import os
import stat
import struct
import tempfile
import uuid
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from suiro.errors import FatalError, UsageError
from suiro.foundation.threads import Regularly
from suiro.foundation.types import TopicPartition

INLINE_BYTES_MAX = 64 * 1024 * 1024  # of one micro-batch, where there is no shared directory
ABANDONED_AFTER_MS = 24 * 3600 * 1000
KEEP_EVERY_S = 60.0
_FRAME = struct.Struct(">HiiI")
_PRIVATE = 0o700
_DIGEST_SIZE = hashlib.sha256().digest_size

Batch = tuple[str, int, Any, int]


@dataclass(frozen=True, slots=True, kw_only=True)
class StagedRecords:
    """The records that one task wrote. Exactly one of `path` and `inline` is there, unless it wrote nothing.

    `digests` are those of the file's frames, one behind the other.
    """

    topics: tuple[str, ...] = ()
    partitions: tuple[TopicPartition, ...] = ()
    record_count: int = 0
    size_bytes: int = 0
    path: str | None = None
    digests: bytes = b""
    inline: bytes | None = None

    def batches(self) -> Iterator[Batch]:
        """In the order of the task's rows. Reads one record batch at a time."""
        if self.inline is not None:
            yield from self._frames(self.inline)
        elif self.path is not None:
            try:
                size = os.path.getsize(self.path)
                file = open(self.path, "rb", buffering=1 << 20)  # noqa: SIM115
            except FileNotFoundError as error:
                raise UsageError(
                    f"the driver cannot see the staged file {self.path}: set staging.dir to a directory that driver "
                    "and executors share. If they do share it, another driver has taken over this query and swept it"
                ) from error
            with file:
                if size != self.size_bytes:
                    raise FatalError(f"staged file {self.path} has {size} bytes, not {self.size_bytes}")
                for at in range(0, len(self.digests), _DIGEST_SIZE):
                    head = file.read(_FRAME.size)
                    length = _FRAME.unpack(head)[3] if len(head) == _FRAME.size else 0
                    data = file.read(min(length, self.size_bytes))
                    if _digest(head, data) != self.digests[at : at + _DIGEST_SIZE]:
                        raise FatalError(
                            f"staged file {self.path} is not what its task wrote, at byte {file.tell()} or before: "
                            f"see who may write to {Path(self.path).parent}, and start the query again"
                        )
                    index, partition, count, _ = _FRAME.unpack(head)
                    yield self.topics[index], partition, data, count

    def _frames(self, data: bytes) -> Iterator[Batch]:
        position = 0
        while position < len(data):
            index, partition, count, length = _FRAME.unpack_from(data, position)
            position += _FRAME.size
            yield self.topics[index], partition, data[position : position + length], count
            position += length


@dataclass(frozen=True, slots=True)
class StagedWrites:
    """All of a micro-batch, in task order: what the committer produces."""

    tasks: Sequence[StagedRecords]

    @property
    def partitions(self) -> Sequence[TopicPartition]:
        return sorted({place for task in self.tasks for place in task.partitions})

    @property
    def record_count(self) -> int:
        return sum(task.record_count for task in self.tasks)

    @property
    def size_bytes(self) -> int:
        return sum(task.size_bytes for task in self.tasks)

    def batches(self) -> Iterator[Batch]:
        for task in self.tasks:
            yield from task.batches()

    def check_inline_size(self) -> None:
        total = sum(len(task.inline) for task in self.tasks if task.inline is not None)
        if total > INLINE_BYTES_MAX:
            raise UsageError(_too_large_inline(total))


class StagingWriter:
    """A task's side. Use as a context manager: an error leaves no file behind."""

    def __init__(self, area: StagingArea | None, name: str) -> None:
        self._path = None if area is None else area.file(name)
        self._file: Any = None
        self._inline = bytearray()
        self._topics: dict[str, int] = {}
        self._partitions: dict[TopicPartition, None] = {}
        self._records = 0
        self._size = 0
        self._digests = bytearray()

    def __enter__(self) -> StagingWriter:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if self._file is None or self._path is None:
            return
        if kind is None:
            self._file.close()
            return
        self._path.unlink(missing_ok=True)
        with suppress(OSError):  # on a full disk there is no room for what is still in its buffer
            self._file.close()

    def add(self, topic: str, partition: int, data: bytes, count: int) -> None:
        index = self._topics.setdefault(topic, len(self._topics))
        self._partitions[topic, partition] = None
        head = _FRAME.pack(index, partition, count, len(data))
        self._records += count
        self._size += len(head) + len(data)
        if self._path is None:
            if self._size > INLINE_BYTES_MAX:
                raise UsageError(_too_large_inline(self._size))
            self._inline += head
            self._inline += data
            return
        if self._file is None:
            self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._path.open("xb", buffering=1 << 20)
        self._file.write(head)
        self._file.write(data)
        self._digests += _digest(head, data)

    def finish(self) -> StagedRecords:
        if self._file is not None:
            self._file.close()
        return StagedRecords(
            topics=tuple(self._topics),
            partitions=tuple(self._partitions),
            record_count=self._records,
            size_bytes=self._size,
            path=str(self._path) if self._file is not None else None,
            digests=bytes(self._digests),
            inline=bytes(self._inline) if self._inline else None,
        )


@dataclass(frozen=True, slots=True)
class StagingArea:
    """One query's directory."""

    directory: Path

    def file(self, name: str) -> Path:
        return self.directory / f"{name}-{uuid.uuid4().hex[:8]}.batches"

    def remove_until(self, batch_id: int) -> None:
        """Removes the files of micro-batches up to this one, also those of failed attempts and killed drivers."""
        try:
            names = os.listdir(self.directory)
        except FileNotFoundError:
            return
        for name in names:
            number = name.split("-", 1)[0]
            if name.endswith(".batches") and number.isdigit() and int(number) <= batch_id:
                (self.directory / name).unlink(missing_ok=True)
        _remove_if_empty(self.directory)

    def keep(self) -> None:
        """Marks the directory as in use."""
        with suppress(OSError):  # it may be away as the log is, or not be there yet
            os.utime(self.directory)

    def remove_abandoned(self, now_ms: int) -> None:
        """Removes other queries' directories that nobody touched for a day: their drivers were killed and did not come
        back."""
        try:
            others = [path for path in self.directory.parent.iterdir() if path.is_dir() and path != self.directory]
        except OSError:
            return
        for path in others:
            try:
                if path.stat().st_mtime * 1000 < now_ms - ABANDONED_AFTER_MS:
                    files = list(path.glob("*.batches"))
                    for file in files:
                        file.unlink(missing_ok=True)
                    if files:  # others may have folders in a shared staging.dir
                        _remove_if_empty(path)
            except OSError:
                continue  # its own query was quicker, or it is another user's


def _keep_all(areas: Iterable[StagingArea]) -> None:
    for area in set(areas):
        area.keep()


keeper = Regularly("suiro-staging", KEEP_EVERY_S, _keep_all)
"""Marks directories as in use while this process needs them: a task that waits for its rows, or a driver that waits for
the log, may do so for days."""


def default_staging() -> Path:
    """For processes of one user on one machine. Raises UsageError where another user has taken its name."""
    return private_folder("staging")


def private_folder(purpose: str) -> Path:
    """`suiro-PURPOSE-UID` in the temporary directory, for the processes of this user, made if need be. Raises OSError,
    and UsageError where something else has the name: everybody knows it, and others may have made it first, or put a
    link there."""
    folder = Path(tempfile.gettempdir()) / f"suiro-{purpose}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(
            f"{folder} is not a directory of this user (its owner has user id {found.st_uid}), so nothing is kept in "
            "it: remove it, or set staging.dir (of the sink) or TMPDIR to a directory that others cannot write to"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
    return folder


def _digest(head: bytes, data: bytes) -> bytes:
    digest = hashlib.sha256(head)
    digest.update(data)
    return digest.digest()


def remove(tasks: Sequence[StagedRecords]) -> None:
    for task in tasks:
        if task.path is not None:
            Path(task.path).unlink(missing_ok=True)
            _remove_if_empty(Path(task.path).parent)


def _remove_if_empty(directory: Path) -> None:
    with suppress(OSError):  # it has a later micro-batch's files, or is gone already
        directory.rmdir()


def _too_large_inline(size: int) -> str:
    return (
        f"{size:,} encoded bytes do not fit into Spark's commit messages ({INLINE_BYTES_MAX:,} per micro-batch): set "
        "staging.dir to a directory that driver and executors share, or maxOffsetsPerTrigger on the source; or write "
        "by exactly_once(...) with producer.tasks, so that the records do not pass the driver"
    )
