"""The interface of a remote store, which keeps named objects, and the simplest one, a directory.

Always true of every store: a `put` that returned has stored the whole object (one that raised may have left a part of
it, which the caller removes); objects are written once, under names that are never used again; removing an absent
object is no error. Calls wait for the store, so they are made in threads.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Protocol

from suiro.errors import TransientError
from suiro.foundation.files import sync_folder


class RemoteStoreError(TransientError):
    """The store refused, could not be reached, or has something else than was put there."""


class ObjectMissingError(RemoteStoreError):
    """No object of that name."""


class RemoteStore(Protocol):
    """All methods raise RemoteStoreError, and are called from several threads at once."""

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        """Store an object. Errors of `chunks` pass through."""
        ...

    def get(self, name: str, position: int, length: int) -> bytes:
        """Returns a part of an object, less than `length` only at its end. Raises ObjectMissingError."""
        ...

    def size(self, name: str) -> int | None:
        """Returns None if there is no such object."""
        ...

    def delete(self, name: str) -> None: ...


class DirectoryStore:
    """A directory on another disk, or a mounted file system."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = self._directory / name
        beside = path.with_name(path.name + ".tmp")
        with store_errors("put", path):
            path.parent.mkdir(parents=True, exist_ok=True)
            descriptor = os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o644)
        try:
            for chunk in chunks:
                with store_errors("put", path):
                    view = memoryview(chunk)
                    while view:
                        view = view[os.write(descriptor, view) :]
            with store_errors("put", path):
                os.fsync(descriptor)
                os.replace(beside, path)
                self._sync(path.parent)
        except BaseException:
            beside.unlink(missing_ok=True)
            raise
        finally:
            os.close(descriptor)

    def get(self, name: str, position: int, length: int) -> bytes:
        path = self._directory / name
        with store_errors("read", path), open(path, "rb", buffering=0) as file:
            return os.pread(file.fileno(), length, position)

    def size(self, name: str) -> int | None:
        try:
            with store_errors("look up", self._directory / name):
                return (self._directory / name).stat().st_size
        except ObjectMissingError:
            return None

    def delete(self, name: str) -> None:
        for path in (self._directory / name, self._directory / f"{name}.tmp"):  # which a killed copy leaves
            with store_errors("delete", path):
                path.unlink(missing_ok=True)

    def _sync(self, folder: Path) -> None:
        """Sync the names, up to the store's own directory, because all of these folders may be new."""
        while True:
            sync_folder(folder)
            if folder == self._directory or folder == folder.parent:
                return
            folder = folder.parent


@contextlib.contextmanager
def store_errors(what: str, name: object) -> Iterator[None]:
    """Turns the errors of a file system or a client into those of a store."""
    try:
        yield
    except FileNotFoundError as error:
        raise ObjectMissingError(f"cannot {what} {name}: it is not there") from error
    except OSError as error:
        raise RemoteStoreError(f"cannot {what} {name}: {error.strerror or error}") from error
    except ValueError as error:  # how PyArrow says that it cannot work with its settings
        raise RemoteStoreError(f"cannot {what} {name}: {error}") from error
