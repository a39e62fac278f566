"""How long a check for new records may wait after checks that found none.

Each check of a query takes time of Java, of the process that plans, and of the broker. At Spark's own pace, a query
with nothing to do takes a tenth of a core. So a check that finds nothing is answered late. The broker answers at once
when a record comes.

The first check that finds nothing after one that found something does not wait: `processAllAvailable` returns with it.
"""

from __future__ import annotations

FIRST_WAIT_MS = 25
LONGEST_WAIT_MS = 500
"""While a check waits, it notices nothing else: no stop, no new partition."""


class Idling:
    """One query's."""

    def __init__(self) -> None:
        self._empty_looks = 0

    def found_something(self) -> None:
        self._empty_looks = 0

    def found_nothing(self) -> int:
        """Returns for how many ms this check may wait now."""
        self._empty_looks += 1
        waits = self._empty_looks - 1
        return min(FIRST_WAIT_MS << min(waits - 1, 16), LONGEST_WAIT_MS) if waits else 0
