"""Errors that applications, connectors and views report: they may quote a record, so with masks they are for admins.

That there is an error stays visible. Errors of the console itself quote nothing: a server that does not answer.
"""

from __future__ import annotations

from typing import Any

import msgspec

from suiro.console.web.endpoint import Call

HIDDEN_ERROR = (
    "an error that may quote records; this console masks fields (--mask), so only admins can read it"
)
_NAMES = frozenset({"error", "follower_error", "trace", "reason"})
"""Under which servers report them."""


def without_errors(call: Call, value: Any) -> Any:
    """`value` as JSON decodes it."""
    return _hidden(value) if call.is_masked else value


def json_without_errors(call: Call, content: bytes) -> bytes:
    """Unchanged, with every digit, for those who may see errors."""
    if not call.is_masked:
        return content
    return msgspec.json.encode(_hidden(msgspec.json.decode(content)))


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN_ERROR if name in _NAMES and isinstance(one, str) and one else _hidden(one)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    return value
