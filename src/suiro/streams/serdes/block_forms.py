"""`decode_rows` and `encode_rows`: any serde over a block of values.

A serde may have block forms of its own (`BlockSerde`). They give what the forms for one value give, but faster, or
raise and have done nothing. In that case, and for a serde without block forms, the values are converted one by one, and
each one that fails is returned with its row. So a bad value costs its block a second reading and no more. A serde is
never given null.

A registry that is down or was not named is not the fault of a value. Its error is raised at once.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from suiro.errors import ConfigError, RegistryError
from suiro.streams.serdes.serde import DeserializationError, Serde

Failed = dict[int, Exception]
"""The rows that a serde refused, in order, and its errors."""


@runtime_checkable
class BlockSerde(Serde, Protocol):
    """A serde that also takes a block, and there gives exactly what it gives value by value; null stays null.

    Both raise where any value fails, and need not say which.
    """

    def decode_block(self, data: Sequence[bytes | None], topic: str) -> list[Any]: ...

    def encode_block(self, values: Sequence[Any], topic: str) -> list[bytes | None]: ...


def decode_rows(serde: Serde, data: Sequence[bytes | None], topic: str) -> tuple[list[Any], Failed]:
    """Returns the values, None for each row that failed, and the failures."""
    return _rows(getattr(serde, "decode_block", None), serde.deserialize, data, topic)


def encode_rows(serde: Serde, values: Sequence[Any], topic: str) -> tuple[list[bytes | None], Failed]:
    """Returns the bytes, None for each row that failed, and the failures."""
    return _rows(getattr(serde, "encode_block", None), serde.serialize, values, topic)


def decode_block(serde: Serde, data: Sequence[bytes | None], topic: str) -> list[Any]:
    """Returns the values. Raises the error of the first row that fails."""
    return _sound(decode_rows(serde, data, topic))


def encode_block(serde: Serde, values: Sequence[Any], topic: str) -> list[bytes | None]:
    """Returns the bytes. Raises the error of the first row that fails."""
    return _sound(encode_rows(serde, values, topic))


def refused(serde: Serde, data: Sequence[bytes | None], topic: str) -> DeserializationError | None:
    """Returns the error of the first row that fails, which names the row. None if none fails."""
    for row, error in decode_rows(serde, data, topic)[1].items():
        return DeserializationError(serde.name, topic, getattr(error, "reason", str(error)), row)
    return None


def _sound(rows: tuple[list[Any], Failed]) -> list[Any]:
    found, failed = rows
    for error in failed.values():
        raise error
    return found


def _rows(
    block: Callable[[Sequence[Any], str], list[Any]] | None,
    one: Callable[[str, Any], Any],
    items: Sequence[Any],
    topic: str,
) -> tuple[list[Any], Failed]:
    if block is not None:
        try:
            return block(items, topic), {}
        except (RegistryError, ConfigError):
            raise
        except Exception:  # noqa: BLE001 - a user's serde raises anything
            pass  # one by one says which
    found: list[Any] = []
    failed: Failed = {}
    for row, item in enumerate(items):
        made = None
        if item is not None:
            try:
                made = one(topic, item)
            except (RegistryError, ConfigError):
                raise
            except Exception as error:  # noqa: BLE001 - a user's serde raises anything
                failed[row] = error
        found.append(made)
    return found, failed
