"""Requests written as plain dictionaries, and answers read as them: administration in raw requests of one version."""

from __future__ import annotations

import dataclasses
import typing
from datetime import timedelta
from enum import Enum
from typing import Any

from suiro.protocol.messages import API_KEYS, request_class
from support.wire import Wire


def ask(wire: Wire, api: str, version: int, /, **fields: Any) -> dict[str, Any]:
    """Send one request and return the response as dictionaries: error codes by name, times in milliseconds."""
    return typing.cast("dict[str, Any]", plain(wire.call(filled(request_class(API_KEYS[api], version), fields))))


def filled(message_class: Any, fields: dict[str, Any]) -> Any:
    """An instance of a kio class; what `fields` leaves out is empty, zero or null. Unknown names are errors."""
    hints = typing.get_type_hints(message_class)
    values = {}
    for field in dataclasses.fields(message_class):
        if field.name in fields:
            values[field.name] = _value(hints[field.name], fields[field.name])
        elif field.default is dataclasses.MISSING and field.default_factory is dataclasses.MISSING:
            values[field.name] = _empty(hints[field.name])
    unknown = fields.keys() - hints.keys()
    assert not unknown, f"{message_class.__name__} has no {unknown}; it has {sorted(hints)}"
    return message_class(**values)


def plain(value: Any) -> Any:
    if isinstance(value, Enum):
        return value.name
    if isinstance(value, timedelta):
        return value // timedelta(milliseconds=1)
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if dataclasses.is_dataclass(value):
        return {field.name: plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    return value


def _alternatives(hint: Any) -> tuple[Any, ...]:
    origin = typing.get_origin(hint)
    if origin is typing.Annotated:
        return _alternatives(typing.get_args(hint)[0])
    if origin is not None and origin is not tuple:
        return tuple(part for argument in typing.get_args(hint) for part in _alternatives(argument))
    return (hint,)


def _value(hint: Any, value: Any) -> Any:
    if value is None:
        return None
    for option in _alternatives(hint):
        if typing.get_origin(option) is tuple and isinstance(value, list | tuple):
            return tuple(_value(typing.get_args(option)[0], item) for item in value)
        if dataclasses.is_dataclass(option) and isinstance(value, dict):
            return filled(option, value)
        if _is_a(option, timedelta) and isinstance(value, int):
            return timedelta(milliseconds=value)
    return value


def _empty(hint: Any) -> Any:
    options = _alternatives(hint)
    if type(None) in options:
        return None
    option = options[0]
    if typing.get_origin(option) is tuple:
        return ()
    if dataclasses.is_dataclass(option):
        return filled(option, {})
    empty = (timedelta, bool, int, float, str, bytes)
    return next(kind() for kind in empty if _is_a(option, kind))


def _is_a(option: Any, kind: type) -> bool:
    return isinstance(option, type) and issubclass(option, kind)
