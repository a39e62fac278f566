"""How long a check for new records may wait after checks that found none.

Each look of a query costs Java, the process that plans, and the broker; at Spark's own pace, a query with nothing to do
takes a tenth of a core. So a look that finds nothing is answered late: the broker answers at once when a record comes.

The first look that finds nothing after one that found something does not wait: `processAllAvailable` returns with it.
"""

from __future__ import annotations

FIRST_WAIT_MS = 25
LONGEST_WAIT_MS = 500
"""No longer: while a look waits, nothing else is noticed: a stop, a new partition."""


class Idling:
    """One query's."""

    def __init__(self) -> None:
        self._empty_looks = 0

    def found_something(self) -> None:
        self._empty_looks = 0

    def found_nothing(self) -> int:
        """For how many ms this look may wait now."""
        self._empty_looks += 1
        waits = self._empty_looks - 1
        return min(FIRST_WAIT_MS << min(waits - 1, 16), LONGEST_WAIT_MS) if waits else 0
