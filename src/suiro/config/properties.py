"""Reads `server.properties` and other Java properties files."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

from suiro.errors import ConfigError


def read_properties(path: Path) -> dict[str, str]:
    """Returns the settings of a Java properties file: `name=value` lines and `#` comments.

    A line that ends with a backslash continues on the next line. A backslash before another character escapes it.
    Raises `ConfigError` if the file cannot be read or a line has no `=`.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot read it: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path}: it is not UTF-8: {error}; write such a character as \\u00e9") from None
    settings: dict[str, str] = {}
    for number, line in _whole_lines(text):
        name, found, value = line.partition("=")
        if not found:
            # The rest may be a password: Java takes a colon or a blank, too.
            word = re.split(r"[:\s]", line)[0]
            raise ConfigError(f"{path}, line {number}: expected NAME=VALUE, found {word!r}")
        value = _PROPERTY_ESCAPE.sub(_unescaped, value.strip())
        # Two escapes may be the halves of one character.
        settings[name.strip()] = value.encode("utf-16", "surrogatepass").decode("utf-16", "surrogatepass")
    return settings


_LINE_END = re.compile(r"\r\n|\r|\n")
_PROPERTY_ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|.)")


def _unescaped(found: re.Match[str]) -> str:
    text = found[1]
    if len(text) > 1:
        return chr(int(text[1:], 16))
    return {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}.get(text, text)


def _whole_lines(text: str) -> Iterator[tuple[int, str]]:
    """Returns logical lines without comments, each with the number of its first physical line."""
    first, so_far = 0, ""
    # `splitlines` would also end a line within a value: at a form feed, for example, or U+2028.
    for number, line in enumerate([*_LINE_END.split(text), ""], start=1):
        line = line.strip()
        if not so_far and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            so_far += line[:-1]
            continue
        yield first, so_far + line
        first, so_far = 0, ""
