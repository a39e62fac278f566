"""Every error suiro raises, one tree, sorted by what the caller should do.

- `UsageError`: the call, the setting or the data is wrong; mend it, then call again.
- `TransientError`: nothing is wrong with the call; the same call may succeed later.
- `FatalError`: stop; going on would lose or repeat data.

A message says what happened, to what, and what to do next. Every class is picklable, because Spark
sends errors between processes: `args` are exactly the constructor's positional arguments.
"""

from __future__ import annotations


class SuiroError(Exception):
    """The root. Catch it to catch everything that suiro raises on purpose."""


class UsageError(SuiroError):
    """Mend the call, the setting or the data; repeating it unchanged fails again."""


class TransientError(SuiroError):
    """The same call may succeed later (a leader moved, a connection broke, a deadline passed)."""


class FatalError(SuiroError):
    """Stop: going on would lose, repeat or reorder data."""


class ConfigError(UsageError):
    """A setting is unknown, malformed or out of its range. The message names it and its source."""


class CorruptRecordError(FatalError):
    """Bytes that should be a record batch are not: torn, wrong magic, wrong CRC, or lengths that lie."""


class UnsupportedVersionError(UsageError):
    """The other side of the wire does not speak a version of an API that we need."""


class DataLossError(FatalError):
    """Offsets that were planned are gone (retention, a deleted or recreated topic)."""
