"""Keeps an optional dependency of a library out of this program."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def as_if_missing(name: str) -> Iterator[None]:
    """Inside, an import of the module `name` fails as if it were not installed. It does nothing if the program has
    imported that already.

    Other threads must not import `name` meanwhile, so this is for a module's own imports.
    """
    if name in sys.modules:
        yield
        return
    sys.modules[name] = None  # type: ignore[assignment]
    try:
        yield
    finally:
        del sys.modules[name]
