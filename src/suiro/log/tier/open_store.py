"""Opens the remote store of a URI."""

from __future__ import annotations

from pathlib import Path
from urllib.parse import parse_qsl, unquote, urlsplit

from suiro.errors import ConfigError
from suiro.log.tier.store import DirectoryStore, RemoteStore


def open_store(uri: str, *, access_key: str = "", secret_key: str = "") -> RemoteStore:
    """The store that `remote.log.storage.uri` names. Nothing is contacted yet. Raises ConfigError.

    `file:///folder`, or `s3://bucket/prefix?endpoint_override=host:port&scheme=http&region=...`.
    """
    parts = urlsplit(uri)
    if parts.scheme == "file" and parts.netloc in ("", "localhost") and parts.path not in ("", "/"):
        return DirectoryStore(Path(unquote(parts.path)))
    if parts.scheme == "s3" and parts.netloc:
        from suiro.log.tier.s3_store import S3Store  # pyarrow is an extra

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
