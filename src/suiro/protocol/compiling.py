"""Compiles kernels: once for each declared signature, without the GIL, cached on disk.

Always true: a kernel is compiled (or loaded from numba's cache) when its module is imported, never in the
middle of a query. Inputs are read-only arrays, so that there is one compiled form of each kernel. Loops that a
kernel calls stand in the kernel's own file: numba's cache notices a change there, but not in another file.

There are two exceptions. A change here, in `kernel_numbers` or in `record_batch` compiles all kernels anew, and a
change in any file of a folder named `kernels` those of the folder. So loops and numbers of one may stand in another.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import Any

import numba
from numba import types
from numba.core import cgutils
from numba.core.caching import FunctionCache
from numba.extending import intrinsic

OPTIONS: dict[str, Any] = {"nogil": True, "error_model": "numpy"}

BYTES_IN = types.Array(types.uint8, 1, "C", readonly=True)
BYTES_OUT = types.Array(types.uint8, 1, "C")
INT32S_IN = types.Array(types.int32, 1, "C", readonly=True)
INT32S_OUT = types.Array(types.int32, 1, "C")
INT64S_IN = types.Array(types.int64, 1, "C", readonly=True)
INT64S_OUT = types.Array(types.int64, 1, "C")
TABLE_IN = types.Array(types.int64, 2, "C", readonly=True)
TABLE_OUT = types.Array(types.int64, 2, "C")
INT = types.int64
BOOL = types.boolean
COLUMN = (INT32S_IN, BYTES_IN, BYTES_IN, INT, BOOL)
"""Of Arrow's: offsets, data, validity bitmap, the bitmap's first bit, whether there are nulls."""
COLUMN_OUT = (INT32S_OUT, BYTES_OUT, BYTES_OUT)
"""One that a kernel fills: offsets, data, validity bitmap."""

inlined = numba.njit(**OPTIONS)
"""Compiled into the kernels that call it."""


def compiled(*signature: Any) -> Callable[[Callable[..., Any]], Any]:
    """Decorates a kernel that takes these types."""

    def compile_kernel(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**OPTIONS)(function)
        try:
            kernel._cache = _Cache(function)
        except RuntimeError as error:
            # Neither __pycache__ nor the user's cache folder can be written (numba: "no locator available").
            if "cannot cache" not in str(error):
                raise
        kernel.compile(signature)
        kernel.disable_compile()
        return kernel

    return compile_kernel


class _Cache(FunctionCache):
    """As `cache=True` makes it, and a change of the files that the module's text names counts."""

    def _index_key(self, sig: Any, codegen: Any) -> Any:
        folder = Path(self._py_func.__code__.co_filename).parent
        own = sorted(folder.glob("*.py")) if folder.name == "kernels" else ()
        return (*super()._index_key(sig, codegen), _digest(*_SHARED, *own))

    def save_overload(self, sig: Any, data: Any) -> None:
        with suppress(OSError):  # On a full disk, the next process compiles again.
            super().save_overload(sig, data)


_SHARED = tuple(Path(__file__).with_name(name) for name in ("compiling.py", "kernel_numbers.py", "record_batch.py"))


@cache
def _digest(*paths: Path) -> str:
    return sha256(b"".join(path.read_bytes() for path in paths)).hexdigest()


def _memcpy(typing_context: Any, target: Any, at: Any, source: Any, start: Any, size: Any) -> Any:
    """target[at:at+size] = source[start:start+size], as one memcpy; the caller has checked both ranges."""

    def generate(context: Any, builder: Any, signature: Any, arguments: Any) -> Any:
        to = context.make_array(signature.args[0])(context, builder, arguments[0])
        origin = context.make_array(signature.args[2])(context, builder, arguments[2])
        cgutils.raw_memcpy(
            builder,
            builder.gep(to.data, [arguments[1]]),
            builder.gep(origin.data, [arguments[3]]),
            arguments[4],
            1,
        )
        return context.get_dummy_value()

    return types.void(target, types.int64, source, types.int64, types.int64), generate


copy_bytes: Any = intrinsic(_memcpy)
"""`copy_bytes(target, at, source, start, size)`: one memcpy."""
