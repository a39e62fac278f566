"""The errors of building and running a topology. All can be pickled, because Spark sends them between processes."""

from __future__ import annotations

from suiro.errors import UsageError


class TopologyError(UsageError):
    """The topology cannot work as it is; the message names the operators and what to change."""


class CheckpointError(UsageError):
    """What the log knows of an application and what its checkpoint holds do not fit; nothing was written."""


class ProcessingError(UsageError):
    """An operator failed on a record. The message names operator, topic, partition, offset, key, and the cause."""
