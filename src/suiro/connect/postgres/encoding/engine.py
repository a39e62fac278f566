"""Selects the implementation: the compiled kernels if they are loaded, otherwise the plain Python rules.

Loading numba and the kernels takes almost a second from the disk cache, and half a minute if they must be compiled. The
first records of a capture do not wait for that: the plain rules write them, about fifty times slower, with the same
bytes. `load` starts afterwards, because both would share one processor. From then on the capture waits up to
`LOAD_TIMEOUT_S` for the kernels.
"""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from concurrent.futures import Future, wait
from typing import Any

from suiro.foundation.threads import settle

LOAD_TIMEOUT_S = 3.0

_lock = threading.Lock()
_loading: Future[tuple[Any, Any]] | None = None
_is_plain = False


def load(*, timeout_s: float | None = 0) -> None:
    """Begins to load the kernels, and waits until they are loaded, for `timeout_s` at most. A failure to load is raised
    here and by `kernels`."""
    global _loading
    with _lock:
        if _loading is None:
            _loading = Future()
            threading.Thread(target=settle, args=(_loading, _import), name="suiro-row-kernels", daemon=True).start()
    wait([_loading], timeout_s)
    _modules()


def kernels() -> Any:
    """Returns the module that encodes rows, or None while it is not loaded."""
    modules = _modules()
    return None if modules is None else modules[0]


def columnar() -> Any:
    """Returns `suiro.protocol.columnar`, which encodes batches, or None while it is not loaded."""
    modules = _modules()
    return None if modules is None else modules[1]


def _modules() -> tuple[Any, Any] | None:
    return None if _is_plain or _loading is None or not _loading.done() else _loading.result()


@contextlib.contextmanager
def choose(*, compiled: bool) -> Iterator[None]:
    """Uses only the kernels, or only the plain rules, within the block. For tests and benchmarks, in one thread."""
    global _is_plain
    if compiled:
        load(timeout_s=None)
    before, _is_plain = _is_plain, not compiled
    try:
        yield
    finally:
        _is_plain = before


def _import() -> tuple[Any, Any]:
    from suiro.connect.postgres.encoding import kernels as rows
    from suiro.protocol import columnar as batches

    return rows, batches
