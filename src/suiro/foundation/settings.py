"""Settings: tables of a TOML file become frozen dataclasses, with errors that name the key; addresses.

A settings class is a frozen dataclass; `read_settings` takes the keys by the fields' names and types (str, int, float,
bool, tuple[str, ...], dict[str, str], Path, and these or None). `${env:NAME}` in a string is the environment's NAME.
"""

from __future__ import annotations

import os
import re
import types
import typing
from collections.abc import Iterable, Mapping
from dataclasses import MISSING, fields
from difflib import get_close_matches
from math import isfinite
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from suiro.errors import ConfigError
from suiro.numerals import natural

MAX_PORT = 65_535

T = TypeVar("T")

_VARIABLE = re.compile(r"\$\{env:([^}]*)\}")
_HEADER_NAME = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_HEADER_VALUE = re.compile(r"(?:[!-~](?:[\t -~]*[!-~])?)?")
_WORDS = {str: "a string", int: "a whole number", float: "a number", bool: "true or false", Path: "a path"}


class SettingError(ConfigError):
    """One key is wrong. The reader of the file adds the file and the section."""

    def __init__(self, key: str, what: str) -> None:
        super().__init__(key, what)
        self.key = key
        self.what = what

    def __str__(self) -> str:
        return f"{self.key}: {self.what}"


def read_settings(cls: type[T], table: Mapping[str, Any]) -> T:
    """Raises `SettingError` for an unknown, missing or ill-typed key."""
    hints = typing.get_type_hints(cls)
    known = {item.name: item for item in fields(cls)}  # type: ignore[arg-type]
    check_names(table, known)
    values = {}
    for name, item in known.items():
        if name in table:
            values[name] = _typed(name, table[name], hints[name])
        elif item.default is MISSING and item.default_factory is MISSING:
            raise SettingError(name, "is missing and has no default")
    return cls(**values)


def check_names(table: Mapping[str, Any], known: Mapping[str, Any]) -> None:
    for name in table:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}?" if near else f"known are {', '.join(sorted(known))}"
            raise SettingError(name, f"there is no such setting; {hint}")


def require_one_of(key: str, value: str, known: Iterable[str]) -> None:
    if value not in known:
        raise SettingError(key, f"expected one of {', '.join(known)}, got {value!r}")


def require_http(url: str) -> None:
    import httpx  # takes a tenth of a second, and most programs have no such setting

    try:
        parts = urlsplit(url)
        known = httpx.URL(url).scheme, (parts.hostname or "").encode("idna"), parts.port
    except (ValueError, httpx.InvalidURL):
        known = "", b"", None
    if known[0] not in ("http", "https") or not known[1]:
        shown = url.rpartition("@")[2]  # without a password
        raise SettingError("url", f"must begin with http://HOST or https://HOST, got {shown!r}")


def require_headers(headers: Mapping[str, str]) -> None:
    """Check headers of HTTP requests. The values may be secret, so no message shows them."""
    for name, value in headers.items():
        if not _HEADER_NAME.fullmatch(name):
            raise SettingError("headers", f"{name!r} cannot be the name of a header")
        if not is_header_value(value):
            raise SettingError(
                f"headers.{name}",
                "has a character that no header can have, such as a line break, or a space at its beginning or end",
            )


def is_header_value(text: str) -> bool:
    """Whether a header of an HTTP request can have this value. The error of the HTTP library would show it."""
    return _HEADER_VALUE.fullmatch(text) is not None


def require_least(settings: Any, **least: float) -> None:
    """Check the least values of numbers, by the names of their fields."""
    for key, number in least.items():
        if getattr(settings, key) < number:
            raise SettingError(key, f"must be at least {number}, got {getattr(settings, key)}")


def _typed(key: str, value: Any, hint: Any) -> Any:
    options = typing.get_args(hint) if typing.get_origin(hint) in (types.UnionType, typing.Union) else (hint,)
    for option in options:
        origin = typing.get_origin(option) or option
        if origin is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
            return tuple(value)
        if origin is tuple and isinstance(value, str):
            return (value,)
        if origin in (dict, Mapping) and isinstance(value, dict):
            inner = (typing.get_args(option) or (str, str))[1]
            return {name: _typed(f"{key}.{name}", item, inner) for name, item in value.items()}
        if option is Any:
            return value
        if option is Path and isinstance(value, str):
            return Path(value)
        # A file may have nan and inf, which are in no range.
        if option is float and isinstance(value, int | float) and not isinstance(value, bool) and isfinite(value):
            return float(value)
        if option is int and isinstance(value, int) and not isinstance(value, bool):
            return value
        if option in (str, bool) and type(value) is option:
            return value
    words = " or ".join(_words(option) for option in options if option is not type(None))
    raise SettingError(key, f"expected {words}, got {value!r}")


def _words(option: Any) -> str:
    origin = typing.get_origin(option) or option
    if origin is tuple:
        return "a list of strings"
    return "a table" if origin in (dict, Mapping) else _WORDS.get(option, str(option))


def with_environment(value: Any, key: str) -> Any:
    """Return the value with every `${env:NAME}` replaced. Raises `SettingError` for a variable that is not set."""
    if isinstance(value, str):

        def replaced(match: re.Match[str]) -> str:
            name = match.group(1)
            if name not in os.environ:
                raise SettingError(key, f"the environment has no variable {name!r}; set it before the start")
            return os.environ[name]

        return _VARIABLE.sub(replaced, value)
    if isinstance(value, dict):
        return {name: with_environment(item, f"{key}.{name}" if key else name) for name, item in value.items()}
    if isinstance(value, list):
        return [with_environment(item, key) for item in value]
    return value


def assignments(texts: Iterable[str], option: str) -> dict[str, str]:
    """Parse several NAME=VALUE. The last value of a name counts. Raises `ConfigError`."""
    found = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name.strip():
            raise ConfigError(f"{option} {text}: expected NAME=VALUE")
        found[name.strip()] = value
    return found


def host_and_port(text: str, *, port_suffices: bool = False) -> tuple[str, int] | None:
    """Parse `HOST:PORT`, with an IPv6 host in brackets. The host may be empty. Return None for any other text."""
    host, colon, port = text.rpartition(":")
    number = natural(port, MAX_PORT)
    if not (colon or port_suffices) or number is None:
        return None
    return host.strip("[]"), number


def parse_address(text: str, *, option: str = "--listen") -> tuple[str, int]:
    """`HOST:PORT` to listen on; without a host, all addresses. Raises `ConfigError`."""
    address = host_and_port(text)
    if address is None:
        raise ConfigError(f"{option} {text!r}: expected HOST:PORT, such as 127.0.0.1:9092 (port 0: a free one)")
    return address[0] or "0.0.0.0", address[1]
