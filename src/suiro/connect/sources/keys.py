"""The keys of records whose settings name fields of the value."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any


def key_of(value: Any, names: Sequence[str], *, what: str) -> str | None:
    """Returns None without names. Raises `ValueError` if a field is missing; `what` is the value, for the message."""
    if not names:
        return None
    if not isinstance(value, dict) or any(name not in value for name in names):
        raise ValueError(f"{what} has no {', '.join(names)}")
    return key_text([value[name] for name in names])


def key_text(fields: Sequence[Any]) -> str:
    """The field if there is one, a JSON list of several."""
    if len(fields) > 1:
        return json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
    (only,) = fields
    if type(only) is int:
        return str(only)  # as JSON has it, and faster
    return only if isinstance(only, str) else json.dumps(only)
