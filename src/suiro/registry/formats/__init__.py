"""Schema languages: parsing, canonical form, and compatibility.

Each language has a module (`format_of`). Texts are parsed once and cached; a parsed schema is immutable. A schema
with references is parsed together with their texts, which are given in dependency order.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from typing import Any

from suiro.registry.formats.differences import Incompatibility
from suiro.registry.formats.parsed import (
    MAX_COMPARED_STEPS,
    MAX_STEPS,
    Budget,
    Import,
    InvalidSchema,
    Parsed,
    TooComplex,
    is_end_of_stack,
)
from suiro.registry.lru import Lru
from suiro.registry.schemas import AVRO, JSON, PROTOBUF

__all__ = [
    "MAX_COMPARED_STEPS",
    "MAX_STEPS",
    "Budget",
    "Import",
    "Incompatibility",
    "InvalidSchema",
    "Parsed",
    "TooComplex",
    "compare",
    "format_of",
    "parse",
]

CACHE_SIZE = 1_000
CACHE_CHARS = 32 << 20
"""The length of the texts whose parsed form is cached, including their references."""

_MODULES: Mapping[str, str] = {AVRO: "avro", JSON: "json", PROTOBUF: "protobuf"}
"""By language, the beginning of the names of its two modules, NAME_format and NAME_rules."""


def format_of(type_: str) -> Any:
    """Imports the module of the language on first use. Raises `InvalidSchema` for an unknown language.

    Its `parse(text, imports, strict=, budget=)` raises `InvalidSchema` and `TooComplex`. Registered schemas are not
    parsed strictly: they may be older than a check. Its `formatted(parsed, form)` returns the schema in another form,
    and raises `InvalidSchema` for an unknown one.
    """
    if type_ not in _MODULES:
        raise InvalidSchema(f"Invalid schema type {type_}; there are {AVRO}, {JSON} and {PROTOBUF}")
    return import_module(f"{__name__}.{_MODULES[type_]}_format")


def parse(
    type_: str, text: str, imports: tuple[Import, ...] = (), *, strict: bool = True, budget: Budget | None = None
) -> Parsed:
    """Raises `InvalidSchema`, and `TooComplex` if the budget is not enough."""
    key = (type_, text, imports, strict)
    known = _parsed.get(key)
    if known is not None:
        return known
    try:
        text.encode()
        parsed: Parsed = format_of(type_).parse(text, imports, strict=strict, budget=budget or Budget())
        parsed.canonical.encode()
    except UnicodeEncodeError:
        raise InvalidSchema("it holds half of a surrogate pair, which is no character") from None
    except ValueError as error:  # a number beyond the range of floats
        raise InvalidSchema(f"it cannot be written as JSON: {error}") from None
    except (AttributeError, TypeError, KeyError) as error:
        if strict:
            raise
        raise InvalidSchema(f"what was not checked is no schema: {error}") from None
    except BaseException as error:
        if not is_end_of_stack(error):
            raise
        raise InvalidSchema("nested too deeply") from None
    _parsed.put(key, parsed)
    return parsed


def compare(reader: Parsed, writer: Parsed, budget: Budget | None = None) -> list[Incompatibility]:
    """Returns why data written with `writer` cannot be read with `reader`, two schemas of one language. Empty: it can.

    Raises `TooComplex`, and `InvalidSchema` if one was parsed without checks and is no schema: nothing is known then.
    """
    try:
        rules: Any = import_module(f"{__name__}.{_MODULES[reader.type]}_rules")
        budget = budget or Budget(MAX_COMPARED_STEPS)
        found: list[Incompatibility] = rules.incompatibilities(reader.model, writer.model, budget)
        return found
    except ArithmeticError as error:
        raise TooComplex(f"a number in them cannot be compared: {error}") from None
    except (AttributeError, LookupError, TypeError, ValueError) as error:
        raise InvalidSchema(f"one of them, which was not checked, is no schema: {error}") from error
    except BaseException as error:
        if not is_end_of_stack(error):
            raise
        raise TooComplex("the schemas are nested too deeply to be compared") from None


_Key = tuple[str, str, tuple[Import, ...], bool]


def _chars(key: _Key, parsed: Parsed) -> int:
    return len(key[1]) + sum(len(one.text) for one in key[2])


_parsed: Lru[_Key, Parsed] = Lru(CACHE_SIZE, weight=CACHE_CHARS, weigh=_chars)
