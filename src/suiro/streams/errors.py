"""The errors of building and running a topology. All can be pickled, because Spark sends them between processes."""

from __future__ import annotations

from suiro.errors import UsageError


class TopologyError(UsageError):
    """The topology cannot work as it is; the message names the operators and what to change."""


class CheckpointError(UsageError):
    """The checkpoint of an application does not fit what the log knows of it; nothing was written."""


class ProcessingError(UsageError):
    """An operator failed on a record. The message names operator, topic, partition, offset, key, and the cause."""


def said(error: BaseException) -> str:
    """Returns the message of an error, whose class may be a user's. Half of a surrogate pair is shown by its number,
    because UTF-8 has no form for it."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's class
        message = type(error).__qualname__
    return message.encode("utf-8", "backslashreplace").decode()
