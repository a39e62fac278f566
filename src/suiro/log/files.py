"""File handles that stay open while data is sent from them.

A read answers with `(fd, position, length)` and the bytes go out later, by sendfile, when the socket
has room. Meanwhile retention may drop the segment or the log may be closed. Were the descriptor
closed then, the number could be given to another file at once, and its bytes sent to a consumer. So
the descriptor is a `FileHandle`: an int that closes itself when its last holder lets go. The log
drops its own reference and unlinks the name; a response still holding the handle sends the old bytes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from weakref import WeakKeyDictionary

from suiro import descriptors


class FileHandle(int):
    """An open descriptor, usable wherever an int is. Keep the object itself: `int(handle)` does not hold it."""

    def __del__(self, _close=os.close) -> None:  # type: ignore[no-untyped-def]
        # `_close` is bound early: at interpreter exit the module's globals may be gone.
        try:
            _close(self)
        except OSError:
            pass


class OpenFiles:
    """Who holds a file open, the longest first: beyond the limit the first ones let go.

    There is one for the process, because the limit on descriptors is the process's. A holder says only when it
    opens, so that the use of an open file costs nothing; a busy one that had to let go comes back as the newest.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._holders: WeakKeyDictionary[KeptFile, None] = WeakKeyDictionary()

    def opened(self, holder: KeptFile) -> None:
        self._holders.pop(holder, None)
        self._holders[holder] = None
        while len(self._holders) > self._limit:
            oldest = next(iter(self._holders.keys()), None)
            if oldest is None or oldest is holder:
                return
            del self._holders[oldest]
            oldest.release()

    def closed(self, holder: KeptFile) -> None:
        self._holders.pop(holder, None)


OPEN_FILES = OpenFiles(descriptors.for_files())


class KeptFile:
    """A file that is opened when it is first needed, and let go of by `release` or when too many are open."""

    def __init__(self, path: str | Path) -> None:
        self._path = os.fspath(path)
        self._handle: FileHandle | None = None

    @property
    def path(self) -> Path:
        return Path(self._path)

    @property
    def handle(self) -> FileHandle:
        """The open file. Whoever sends from it later keeps this object."""
        handle = self._handle
        if handle is None:
            handle = self._handle = open_handle(self._path, create=True)
            OPEN_FILES.opened(self)
        return handle

    def release(self) -> None:
        """Let go of the file; the next use opens it again."""
        if self._handle is not None:
            self._handle = None
            OPEN_FILES.closed(self)


def open_handle(path: str | Path, *, create: bool = False) -> FileHandle:
    """Open for reading and writing (`create` makes a file that is not there yet)."""
    return FileHandle(os.open(path, os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0), 0o644))


def read_file(path: str | Path) -> bytes | None:
    """The content of a small file; None where there is none. A start reads tens of thousands of them."""
    try:
        descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        content = b""
        while more := os.read(descriptor, 65_536):
            content += more
        return content
    finally:
        os.close(descriptor)


def open_directory(path: Path) -> FileHandle:
    """To sync the names in it."""
    return FileHandle(os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC))


def write_all(handle: FileHandle, buffers: Sequence[bytes | memoryview], position: int, size: int) -> None:
    """Write `size` bytes from the buffers at a position; raises OSError, after which the tail is undefined."""
    written = os.pwritev(handle, buffers, position)
    if written == size:
        return
    # A short write: the disk is nearly full or a signal came. Go on with what is left.
    rest = b"".join(buffers)
    while written < size:
        count = os.pwrite(handle, memoryview(rest)[written:], position + written)
        if count == 0:
            raise OSError("the disk took no more bytes")
        written += count


def replace_file(path: Path, content: bytes, *, sync: bool = True, mode: int = 0o644) -> None:
    """Whole or not at all: written beside, synced, renamed, the name synced too. `mode` is who may open it.

    Not every file system has a rename on the disk before what is synced after it.
    """
    beside = path.with_name(path.name + ".tmp")
    descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, mode)
    try:
        while content:
            content = content[os.write(descriptor, content) :]
        if sync:
            os.fsync(descriptor)
    finally:
        os.close(descriptor)
    os.replace(beside, path)
    if sync:
        os.fsync(open_directory(path.parent))
