"""A row's value as JSON text: its canonical form for the hash, and its words for search.

A host serves the text that the pipeline wrote, byte for byte, except that NaN and infinities, which JSON does not have,
become null.
"""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from hashlib import blake2b
from typing import Any

LONGEST_WORD = 200  # a longer word is cut
_WORD = re.compile(r"[^\W_]+")

canonical = json.JSONEncoder(sort_keys=True, separators=(",", ":"), ensure_ascii=True).encode
"""Gives equal values the same text, whatever the order of keys is. ASCII, because text may have half of a surrogate
pair."""

_plain = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def servable(text: str) -> str:
    """Returns the text, with null in place of NaN and infinities. A string that contains these words stays as it is."""
    if "NaN" not in text and "Infinity" not in text:
        return text
    found = False

    def as_null(name: str) -> None:
        nonlocal found
        found = True

    value = json.loads(text, parse_constant=as_null)
    return _plain(value) if found else text


def encodable(text: str) -> str:
    """The same JSON as UTF-8 can have it: half of a surrogate pair becomes its escape."""
    return text if text.isascii() else text.encode(errors="backslashreplace").decode()


def row_hash(place: bytes, value: Any) -> int:
    """Returns 64 bits, signed, of the key and the value. Equal rows have equal hashes in every store."""
    digest = blake2b(place, digest_size=8)
    digest.update(canonical(value).encode())
    return int.from_bytes(digest.digest(), "big", signed=True)


def words_in(text: str) -> list[str]:
    """Returns the words of a text: letters and digits, in lower case."""
    return [word[:LONGEST_WORD] for word in _WORD.findall(text.casefold())]


def words_of(columns: Sequence[str], key: dict[str, Any], value: Any) -> list[str]:
    """Returns the words of these columns, each once: of text, of numbers as written, of items of lists and objects."""
    found: dict[str, None] = {}
    for name in columns:
        part = key[name] if name in key else value.get(name) if isinstance(value, dict) else None
        for word in _words(part):
            found[word] = None
    return list(found)


def _words(part: Any) -> list[str]:
    if isinstance(part, str):
        return words_in(part)
    if isinstance(part, dict):
        return [word for item in part.values() for word in _words(item)]
    if isinstance(part, list):
        return [word for item in part for word in _words(item)]
    return [] if part is None else words_in(json.dumps(part))
