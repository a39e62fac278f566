"""CRC-32C (Castagnoli), the checksum of record batch v2, over any buffer without copying it.

`combine` joins the checksums of two neighbouring byte ranges. The sink's driver uses it to patch a batch's
header without reading the records again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from importlib.machinery import PathFinder
from importlib.util import find_spec, module_from_spec
from typing import TypeAlias, cast

BytesLike: TypeAlias = bytes | bytearray | memoryview


def _of_package() -> Callable[[BytesLike, int], int]:
    """The C function of the package `crc32c`, on which kio depends already.

    Unlike google-crc32c it takes slices (memoryview) and bytearrays as they are, so the node checks a batch inside a
    request without copying it out; both are equally fast. The package's own `__init__` looks up its version in the
    metadata of what is installed, and what that imports takes a tenth of a node's start: so only its C module.
    """
    package = find_spec("crc32c")
    spec = PathFinder.find_spec("crc32c._crc32c", package.submodule_search_locations if package else None)
    if spec is None or spec.loader is None:
        from crc32c import crc32c

        return crc32c
    module = module_from_spec(spec)
    spec.loader.exec_module(module)
    return cast("Callable[[BytesLike, int], int]", module.crc32c)


_crc32c = _of_package()

_POLYNOMIAL = 0x82F63B78  # Castagnoli, bit-reflected


def crc32c(buf: BytesLike, initial: int = 0) -> int:
    """The checksum of `buf`, going on from `initial` (the checksum of what came before)."""
    return _crc32c(buf, initial)


def combine(crc1: int, crc2: int, len2: int) -> int:
    """crc(A + B) from crc(A), crc(B) and len(B): crc(A) times x^(8 len(B)), plus crc(B)."""
    return _multiply(_power_of_x(len2), crc1) ^ crc2


def _multiply(a: int, b: int) -> int:
    """a * b modulo the polynomial; bit 31 is x^0 (reflected)."""
    product = 0
    mask = 1 << 31
    while a:
        if a & mask:
            product ^= b
            a ^= mask
        mask >>= 1
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


@lru_cache(maxsize=4096)
def _power_of_x(byte_count: int) -> int:
    """x^(8 * byte_count) modulo the polynomial. Batches of a query repeat their lengths, so it is cached."""
    result = 1 << 31  # x^0
    square = 1 << 23  # x^8
    while byte_count:
        if byte_count & 1:
            result = _multiply(square, result)
        square = _multiply(square, square)
        byte_count >>= 1
    return result
