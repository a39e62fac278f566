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
from typing import Any

LOAD_TIMEOUT_S = 3.0

_lock = threading.Lock()
_thread: threading.Thread | None = None
_loaded: tuple[Any, Any] | None = None
_failure: BaseException | None = None
_forced: bool | None = None


def load(*, wait: bool = False, timeout_s: float | None = None) -> None:
    """Begins to load the kernels. With `wait`, waits until they are loaded, for `timeout_s` at most. A failure to load
    is raised here and by `kernels`."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_import, name="suiro-row-kernels", daemon=True)
            _thread.start()
        thread = _thread
    if wait:
        thread.join(timeout_s)
        if _failure is not None:
            raise _failure


def kernels() -> Any:
    """Returns the module that encodes rows, or None while it is not loaded."""
    modules = _modules()
    return None if modules is None else modules[0]


def columnar() -> Any:
    """Returns `suiro.protocol.columnar`, which encodes batches, or None while it is not loaded."""
    modules = _modules()
    return None if modules is None else modules[1]


def _modules() -> tuple[Any, Any] | None:
    if _forced is False:
        return None
    if _forced and _loaded is None:
        load(wait=True)
    if _failure is not None:
        raise _failure
    return _loaded


@contextlib.contextmanager
def choose(*, compiled: bool) -> Iterator[None]:
    """Uses only the kernels, or only the plain rules, within the block. For tests and benchmarks, in one thread."""
    global _forced
    before, _forced = _forced, compiled
    try:
        yield
    finally:
        _forced = before


def _import() -> None:
    global _loaded, _failure
    try:
        from suiro.connect.postgres.encoding import kernels as rows
        from suiro.protocol import columnar as batches

        _loaded = (rows, batches)
    except BaseException as error:  # noqa: BLE001 - the first caller raises it
        _failure = error
