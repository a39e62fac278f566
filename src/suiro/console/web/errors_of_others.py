"""Errors that applications, connectors and views report. They may quote a record, so with masks only admins see them.

Others see that there is an error. Errors of the console itself quote no records.
"""

from __future__ import annotations

from typing import Any

import msgspec

from suiro.console.web.endpoint import Call
from suiro.console.web.remotes import RemoteError, require_few_values

HIDDEN_ERROR = "an error that may quote records; this console masks fields (--mask), so only admins can read it"
_NAMES = frozenset({"error", "follower_error", "guard_error", "trace", "reason"})
"""The fields with which servers report errors."""


def without_errors(call: Call, value: Any) -> Any:
    """`value` is decoded JSON."""
    return _hidden(value) if call.is_masked else value


def json_without_errors(call: Call, content: bytes) -> bytes:
    """Returns the content unchanged, with all digits, if the user may see errors."""
    if not call.is_masked:
        return content
    require_few_values("a server", content)
    try:
        return msgspec.json.encode(_hidden(msgspec.json.decode(content)))
    except (msgspec.MsgspecError, RecursionError) as error:
        raise RemoteError(f"a server answers with what cannot be read: {error}") from None


def _hidden(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: HIDDEN_ERROR if name in _NAMES and isinstance(one, str) and one else _hidden(one)
            for name, one in value.items()
        }
    if isinstance(value, list):
        return [_hidden(one) for one in value]
    return value
