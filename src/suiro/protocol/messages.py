"""Request and response classes by (api key, version), and the frames that carry them.

kio holds one frozen dataclass per API, version and direction. This module finds them, and reads and writes a
whole frame's body: header, then message. The four-byte length in front of a frame belongs to whoever owns the
socket.
"""

from __future__ import annotations

import importlib
import io
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from typing import Any

from suiro.protocol.frame_check import check_counts, without_unknown_tags


@contextmanager
def _as_if_missing(name: str) -> Iterator[None]:
    """Inside, an import of the module `name` fails, unless the program has imported it already."""
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]


# If hypothesis is installed, kio registers strategies for its types. That takes 0.2 s of processor time in each
# process, and 1.7 s in one that is started in a folder without hypothesis's cache, which is then written there.
with _as_if_missing("hypothesis"):
    from kio.index import load_request_schema, load_response_schema
    from kio.schema.errors import ErrorCode as ErrorCode
    from kio.schema.index import api_key_map, schema_name_map
    from kio.serial import entity_reader, entity_writer
    from kio.static.protocol import ResponsePayload as ResponsePayload

API_NAMES: dict[int, str] = dict(api_key_map)
API_KEYS: dict[str, int] = {name: key for key, name in API_NAMES.items()}


@cache
def request_class(api_key: int, version: int) -> Any:
    """kio's request class, e.g. `request_class(API_KEYS["produce"], 11)`. Raises `KioIndexError`."""
    return load_request_schema(api_key, version)


@cache
def response_class(api_key: int, version: int) -> Any:
    """kio's response class of one API version. Raises `KioIndexError`."""
    return load_response_schema(api_key, version)


@cache
def nested(message_class: Any, name: str) -> Any:
    """A nested class of a message by its name, e.g. `nested(ProduceRequest_v11, "TopicProduceData")`."""
    return getattr(importlib.import_module(message_class.__module__), name)


@cache
def known_versions(api_key: int) -> tuple[int, int]:
    """Lowest and highest version of an API that kio can read and write."""
    versions = schema_name_map[API_NAMES[api_key]].keys()
    return min(versions), max(versions)


@cache
def _reader(message_class: Any) -> Any:
    return entity_reader(message_class)


@cache
def _writer(message_class: Any) -> Any:
    return entity_writer(message_class)


def read_body(message_class: Any, frame: bytes, position: int = 0) -> tuple[Any, int]:
    """The message that starts at `position`, and the bytes it took. Garbage raises."""
    return _reader(message_class)(frame, position)  # type: ignore[no-any-return]


def read_request(frame: bytes, api_key: int, version: int, *, max_elements: int | None = None) -> tuple[Any, Any]:
    """(header, request) of one request frame whose first four bytes named `api_key` and `version`.

    Garbage raises; arrays with more than `max_elements` together raise `TooManyElementsError` before any is made.
    """
    message_class = request_class(api_key, version)
    check_counts(frame, message_class, max_elements=max_elements)
    return _read(frame, message_class)


def read_response(frame: bytes, api_key: int, version: int) -> tuple[int, Any]:
    """(correlation id, response) of one response frame. Garbage raises."""
    message_class = response_class(api_key, version)
    check_counts(frame, message_class)
    header, response = _read(frame, message_class)
    return header.correlation_id, response


def _read(frame: bytes, message_class: Any) -> tuple[Any, Any]:
    """Header and message. Tagged fields that are newer than kio are passed over."""
    try:
        return _parsed(frame, message_class)
    except KeyError:  # what kio says of a tag that it does not know
        return _parsed(without_unknown_tags(frame, message_class), message_class)


def _parsed(frame: bytes, message_class: Any) -> tuple[Any, Any]:
    header, size = read_body(message_class.__header_schema__, frame)
    return header, read_body(message_class, frame, size)[0]


def write_request(request: Any, *, correlation_id: int, client_id: str | None) -> bytes:
    """Header and body of a request frame (without its length)."""
    header_class = request.__header_schema__
    fields: dict[str, Any] = {
        "request_api_key": request.__api_key__,
        "request_api_version": request.__version__,
        "correlation_id": correlation_id,
    }
    if "client_id" in header_class.__dataclass_fields__:
        fields["client_id"] = client_id
    buffer = io.BytesIO()
    _writer(header_class)(buffer, header_class(**fields))
    _writer(request.__class__)(buffer, request)
    return buffer.getvalue()


def write_response(response: Any, *, correlation_id: int) -> bytes:
    """Header and body of a response frame (without its length)."""
    message_class = response.__class__
    buffer = io.BytesIO()
    buffer.write(correlation_id.to_bytes(4, "big", signed=True) + _after_correlation_id(message_class))
    _writer(message_class)(buffer, response)
    return buffer.getvalue()


def write_value(value: Any) -> bytes:
    """A nested value of a message, as it stands in it: of a long response a part may be encoded at a time."""
    buffer = io.BytesIO()
    _writer(value.__class__)(buffer, value)
    return buffer.getvalue()


@cache
def _after_correlation_id(message_class: Any) -> bytes:
    """The rest of the response header that goes before a message: nothing, or no tagged fields."""
    header_class = message_class.__header_schema__
    buffer = io.BytesIO()
    _writer(header_class)(buffer, header_class(correlation_id=0))
    return buffer.getvalue()[4:]
