"""Any S3-compatible store, through PyArrow's client (of extra [lake]; it is imported with the first call).

An upload becomes an object only when it is complete. A process that dies leaves an unfinished upload, which a lifecycle
rule of the bucket removes (`AbortIncompleteMultipartUpload`).
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from suiro.errors import ConfigError
from suiro.extras import require
from suiro.log.tier.store import ObjectMissingError, store_errors
from suiro.numerals import number

_CONNECT_TIMEOUT_S = 5.0
_REQUEST_TIMEOUT_S = 30.0
_NAMES: Mapping[str, Callable[[str], Any]] = {
    "endpoint_override": str,
    "scheme": str,
    "region": str,
    "connect_timeout": number,
    "request_timeout": number,
}


class S3Store:
    """Without keys, they come from the usual places: the environment, the user's files, the machine's role."""

    def __init__(self, *, bucket: str, prefix: str, options: dict[str, str], access_key: str, secret_key: str) -> None:
        require("lake")
        self._root = f"{bucket}/{prefix}".rstrip("/")
        settings: dict[str, Any] = {
            "connect_timeout": _CONNECT_TIMEOUT_S,
            "request_timeout": _REQUEST_TIMEOUT_S,
        }
        for name, text in options.items():
            if name not in _NAMES:
                raise ConfigError(f"remote.log.storage.uri: {name} is none of the options {', '.join(sorted(_NAMES))}")
            try:
                settings[name] = _NAMES[name](text)
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
