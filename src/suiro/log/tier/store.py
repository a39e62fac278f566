"""The remote stores, which keep named objects: a directory, and any S3-compatible store.

Always true of every store: a `put` that returned has stored the whole object (one that raised may have left a part of
it, which the caller removes); objects are written once, under names that are never used again; removing an absent
object is no error. Calls wait for the store, so they are made in threads.

S3 is reached through PyArrow's client (of extra [lake]; it is imported with the first call). An upload becomes an
object only when it is complete. A process that dies leaves an unfinished upload, which a lifecycle rule of the bucket
removes (`AbortIncompleteMultipartUpload`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import parse_qsl, unquote, urlsplit

from suiro.errors import ConfigError, TransientError
from suiro.extras import require
from suiro.foundation.files import sync_folder
from suiro.numerals import number

_S3_OPTIONS: Mapping[str, Callable[[str], Any]] = {
    "endpoint_override": str,
    "scheme": str,
    "region": str,
    "connect_timeout": number,
    "request_timeout": number,
}


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


class S3Store:
    """Without keys, they come from the usual places: the environment, the user's files, the machine's role."""

    def __init__(self, *, bucket: str, prefix: str, options: dict[str, str], access_key: str, secret_key: str) -> None:
        require("lake")
        self._root = f"{bucket}/{prefix}".rstrip("/")
        settings: dict[str, Any] = {"connect_timeout": 5.0, "request_timeout": 30.0}  # seconds
        for name, text in options.items():
            if name not in _S3_OPTIONS:
                raise ConfigError(
                    f"remote.log.storage.uri: {name} is none of the options {', '.join(sorted(_S3_OPTIONS))}"
                )
            try:
                settings[name] = _S3_OPTIONS[name](text)
            except ValueError:
                raise ConfigError(f"remote.log.storage.uri: {name}={text}: expected a number") from None
        if bool(access_key) != bool(secret_key):
            raise ConfigError("remote.log.storage.access.key and remote.log.storage.secret.key belong together")
        if access_key:
            settings |= {"access_key": access_key, "secret_key": secret_key}
        self._settings = settings
        self._opened: Any = None
        self._lock = threading.Lock()

    def put(self, name: str, chunks: Iterable[bytes]) -> None:
        path = f"{self._root}/{name}"
        with store_errors("put", f"s3://{path}"):
            stream = self._filesystem().open_output_stream(path)
        try:
            for chunk in chunks:
                with store_errors("put", f"s3://{path}"):
                    stream.write(chunk)
        except BaseException:
            # Closing is the only way to end the upload, and makes an object of what was written so far.
            with contextlib.suppress(Exception):
                stream.close()
                self._filesystem().delete_file(path)
            raise
        with store_errors("put", f"s3://{path}"):
            stream.close()

    def get(self, name: str, position: int, length: int) -> bytes:
        path = f"{self._root}/{name}"
        with store_errors("read", f"s3://{path}"), self._filesystem().open_input_file(path) as file:
            if position >= file.size():
                return b""
            return bytes(file.read_at(length, position))

    def size(self, name: str) -> int | None:
        path = f"{self._root}/{name}"
        with store_errors("look up", f"s3://{path}"):
            info = self._filesystem().get_file_info(path)
        return info.size if info.is_file else None

    def delete(self, name: str) -> None:
        path = f"{self._root}/{name}"
        with contextlib.suppress(ObjectMissingError), store_errors("delete", f"s3://{path}"):
            self._filesystem().delete_file(path)

    def _filesystem(self) -> Any:
        with self._lock:
            if self._opened is None:
                from pyarrow.fs import S3FileSystem

                self._opened = S3FileSystem(background_writes=False, **self._settings)
            return self._opened


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


def open_store(uri: str, *, access_key: str = "", secret_key: str = "") -> RemoteStore:
    """The store that `remote.log.storage.uri` names. Nothing is contacted yet. Raises ConfigError.

    `file:///folder`, or `s3://bucket/prefix?endpoint_override=host:port&scheme=http&region=...`.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path not in ("", "/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        return S3Store(
            bucket=parts.netloc,
            prefix=unquote(parts.path).strip("/"),
            options=dict(parse_qsl(parts.query)),
            access_key=access_key,
            secret_key=secret_key,
        )
    raise ConfigError(
        f"remote.log.storage.uri = {uri!r}: expected file:///folder or s3://bucket/prefix?endpoint_override=host:port"
    )
