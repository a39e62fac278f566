"""Replaces files as a whole, makes them durable, and tells whether one is another than before; errors of the disk; the
user's home."""

from __future__ import annotations

import errno
import os
import threading
from pathlib import Path

from suiro.errors import ConfigError, UsageError


def replace_file(path: Path, content: str | bytes, *, sync: bool = True, mode: int = 0o666) -> None:
    """Write the file beside and rename it: a reader finds the old content or the new one.

    With `sync`, that also holds after a power failure. `mode` is limited by the process's umask.
    """
    beside = path.with_name(f"{path.name}.{os.getpid()}.{threading.get_ident()}")
    beside.unlink(missing_ok=True)
    try:
        with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode), "wb") as file:
            file.write(content.encode() if isinstance(content, str) else content)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
    if sync:
        sync_folder(path.parent)


def stamp_of(path: Path | str) -> tuple[int, ...]:
    """Return what differs if a file was written or replaced since. Its time alone does not: archives and `cp -p` set
    it, and two writes may have the same. Raises `OSError`."""
    found = os.stat(path)
    return found.st_ino, found.st_size, found.st_mtime_ns, found.st_ctime_ns


_OF_THE_DISK = {number: os.strerror(number) for number in (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO)}


def is_of_the_disk(error: BaseException) -> bool:
    """Whether a disk is full, over its quota, read-only or failing, and may be well again later. Java has only the
    words for it, in English (`suiro.spark.session` sees to that). So may a record, which a `UsageError` may quote."""
    if isinstance(error, OSError) and error.errno in _OF_THE_DISK:
        return True
    return not isinstance(error, UsageError) and any(text in str(error) for text in _OF_THE_DISK.values())


def home_folder() -> Path:
    """Raises `ConfigError` for a user without a name and without HOME, as in containers."""
    try:
        return Path.home()
    except RuntimeError:
        raise ConfigError(f"user {os.getuid()} has no home folder; set HOME") from None


def sync_folder(folder: Path | str) -> None:
    """Make the names in a folder durable."""
    descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
