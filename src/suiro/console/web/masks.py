"""Masked fields of records, which only admins see: rules `TOPICS=FIELD` (`*` in TOPICS, dots in FIELD for a path).

A masked record is shown only as JSON with the value of the field replaced: never as bytes, nor as text if it is not
JSON. The same applies to its key, but a key that is plain text or a number has no fields, and is shown. If there are
rules, only admins see rows of stores and views, which are made of records. A filter sees what its user sees, so it
cannot reveal a value.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

import msgspec

from suiro.errors import ConfigError

MASKED = "***"


@dataclass(frozen=True, slots=True)
class Masks:
    rules: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @classmethod
    def parse(cls, texts: Sequence[str]) -> Masks:
        """Raises `ConfigError`."""
        rules = []
        for text in texts:
            topics, found, path = text.partition("=")
            if not found or not topics or not all(path.split(".")):
                raise ConfigError(f"--mask {text!r}: expected TOPICS=FIELD, such as 'customers.*=address.street'")
            rules.append((topics, tuple(path.split("."))))
        return cls(tuple(rules))

    def of(self, topic: str) -> tuple[tuple[str, ...], ...]:
        """Returns the paths of masked fields in records of a topic."""
        return tuple(path for topics, path in self.rules if fnmatchcase(topic, topics))


def masked(text: str, paths: Sequence[Sequence[str]]) -> str | None:
    """Returns JSON with the fields of the paths replaced and numbers unchanged; None if the text is not JSON."""
    try:
        value = _DECODER.decode(text)
        for path in paths:
            value = _replaced(value, path)
        return msgspec.json.encode(value).decode()
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _replaced(value: Any, path: Sequence[str]) -> Any:
    """Replaces a field; in a list, in each item. A text in the place of its object may be JSON itself."""
    if isinstance(value, list):
        return [_replaced(one, path) for one in value]
    if isinstance(value, str):
        return MASKED
    if not isinstance(value, dict) or path[0] not in value:
        return value
    inner = MASKED if len(path) == 1 else _replaced(value[path[0]], path[1:])
    return {**value, path[0]: inner}


_DECODER = msgspec.json.Decoder(float_hook=lambda text: msgspec.Raw(text.encode()))
