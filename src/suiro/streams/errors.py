"""The errors of building and running a topology. All can be pickled, because Spark sends them between processes."""

from __future__ import annotations

from suiro.errors import UsageError


class TopologyError(UsageError):
    """The topology cannot work as it is; the message names the operators and what to change."""


class CheckpointError(UsageError):
    """What the log knows of an application and what its checkpoint holds do not fit; nothing was written."""


class ProcessingError(UsageError):
    """An operator failed on a record. The message names operator, topic, partition, offset, key, and the cause."""


def said(error: BaseException) -> str:
    """The message of an error, which may be a user's. Half of a surrogate pair in it, from a record, is shown by its
    number: UTF-8 has no form for it."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's class
        message = type(error).__qualname__
    return message.encode("utf-8", "backslashreplace").decode()
