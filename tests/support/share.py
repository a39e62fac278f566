"""CI's time. Of tests that ask the same of many inputs, CI runs a share, and `make soak` runs all."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any

import pytest

IS_WHOLE = bool(os.environ.get("SUIRO_TESTS_WHOLE"))
"""Set by `make soak`. It runs the tests that are marked `sampled` with it."""


def one_of(every: int, values: Iterable[Any]) -> list[Any]:
    """Values of a `parametrize`: the first of each `every` are CI's, the others have the mark `soak`."""
    found = []
    for number, value in enumerate(values):
        if number % every == 0:
            found.append(value)
        elif isinstance(value, tuple):
            found.append(pytest.param(*value, marks=pytest.mark.soak))
        else:
            found.append(pytest.param(value, marks=pytest.mark.soak))
    return found


def share_of(every: int, values: Sequence[int]) -> Sequence[int]:
    """Values of a loop: each `every`-th, and the last one."""
    return values if IS_WHOLE else sorted({*islice(values, 0, None, every), *values[-1:]})


def examples(count: int) -> int:
    """Examples of a property: a quarter of them."""
    return count if IS_WHOLE else max(10, count // 4)
