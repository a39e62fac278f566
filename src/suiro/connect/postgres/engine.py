"""Which engine works: the compiled kernels once they are loaded, the plain Python rules until then.

Loading numba and the kernels takes half a second from the disk cache and half a minute where they must be compiled
first. Capture's first block must not wait for that: `load` starts it in the background, and until it is
done the reference works, slower by a factor of fifty and equal in every byte.
"""

from __future__ import annotations

import contextlib
import importlib
import threading
from collections.abc import Iterator
from typing import Any

__all__ = ["choose", "kernels", "load"]

_MODULE = "suiro.connect.postgres.row_kernels"
_lock = threading.Lock()
_thread: threading.Thread | None = None
_loaded: Any = None
_failure: BaseException | None = None
_forced: bool | None = None


def load(*, wait: bool = False) -> None:
    """Begin to load the kernels, or wait until they are there. A failure to load is raised here and by `kernels`."""
    global _thread
    with _lock:
        if _thread is None:
            _thread = threading.Thread(target=_import, name="suiro-row-kernels", daemon=True)
            _thread.start()
        thread = _thread
    if wait:
        thread.join()
        if _failure is not None:
            raise _failure


def kernels() -> Any:
    """The module of kernels; None while it is not loaded (the first call begins to load it)."""
    if _forced is False:
        return None
    if _loaded is None:
        load(wait=_forced is True)
        if _failure is not None:
            raise _failure
    return _loaded


@contextlib.contextmanager
def choose(*, compiled: bool) -> Iterator[None]:
    """Only the kernels, or only the reference, within the block: for tests and benchmarks, in one thread."""
    global _forced
    before, _forced = _forced, compiled
    try:
        yield
    finally:
        _forced = before


def _import() -> None:
    global _loaded, _failure
    try:
        _loaded = importlib.import_module(_MODULE)
    except BaseException as error:
        _failure = error
