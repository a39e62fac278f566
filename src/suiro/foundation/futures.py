"""Calls whose result another thread waits for."""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import Future
from typing import TypeVar

T = TypeVar("T")


def settle(future: Future[T], call: Callable[[], T]) -> None:
    """Gives the future the result of the call, or its error."""
    try:
        result = call()
    except BaseException as error:  # noqa: BLE001 - who waits for the future gets it
        future.set_exception(error)
    else:
        future.set_result(result)
