"""Finds the error that ended a query in Spark's report of it."""

from __future__ import annotations

import re
from importlib import import_module
from typing import Any

from suiro.errors import SuiroError

_MODULES = ("suiro.streams.errors", "suiro.streams.serdes", "suiro.errors")
_LINE = re.compile(r"^\s*(?:Caused by: |[\w.]+: )*suiro\.[\w.]+\.(?P<name>[A-Z]\w+): (?P<message>.*)$", re.MULTILINE)


def cause_of(failure: BaseException) -> BaseException:
    """The error of ours that a worker raised, made again from its text; the failure itself where there is none.

    A Python traceback tells causes first, so the last error in it is the one that was raised.
    """
    for match in reversed(list(_LINE.finditer(str(failure)))):
        for module in _MODULES:
            kind = getattr(import_module(module), match["name"], None)
            if isinstance(kind, type) and issubclass(kind, SuiroError):
                return _told(kind, match["message"], failure)
    return failure


def _told(kind: type[SuiroError], message: str, failure: BaseException) -> BaseException:
    """Of this kind, saying this: its own `__str__` may need what did not come through."""
    members: dict[str, Any] = {"__str__": lambda self: str(self.args[0]), "__module__": kind.__module__}
    told: Any = type(kind.__name__, (kind,), members)
    made = told.__new__(told)
    made.args = (message,)
    made.__cause__ = failure
    assert isinstance(made, BaseException)
    return made
