"""What ended a query, found in what Spark says about it."""

from __future__ import annotations

import re
from importlib import import_module

__all__ = ["cause_of"]

_MODULES = ("suiro.streams.errors", "suiro.errors", "suiro.streams.serdes")
_LINE = re.compile(r"^(?:[\w.]*\.)?(?P<name>[A-Z]\w+): (?P<message>.*)$", re.MULTILINE)


def cause_of(failure: BaseException) -> BaseException:
    """The error of ours that a worker raised, made again from its text; the failure itself where there is none."""
    text = str(failure)
    for match in _LINE.finditer(text):
        made = _made(match["name"], match["message"])
        if made is not None:
            made.__cause__ = failure
            return made
    return failure


def _made(name: str, message: str) -> BaseException | None:
    for module in _MODULES:
        kind = getattr(import_module(module), name, None)
        if isinstance(kind, type) and issubclass(kind, Exception):
            made = Exception.__new__(kind, message)
            made.args = (message,)
            return made
    return None
