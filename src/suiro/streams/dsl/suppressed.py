"""`Suppressed`: when `suppress` emits the updates of a table."""

from __future__ import annotations

from dataclasses import dataclass, replace

from suiro.streams.durations import milliseconds
from suiro.streams.errors import TopologyError
from suiro.streams.windows import Duration


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Waits until windows close, or until a key has waited for `time_limit_ms`."""

    time_limit_ms: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for what, limit in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if limit is not None and limit < 0:
                raise TopologyError(f"{what} of suppress is {limit}; give 0 or more, or leave it out for no limit")

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None, name: str | None = None
    ) -> Suppressed:
        """One final result for each window. A full buffer is an error, since an early result would not be final.

        >>> Suppressed.until_window_closes(max_records=1_000).max_records
        1000
        """
        return cls(max_records=max_records, max_bytes=max_bytes, name=name)

    @classmethod
    def until_time_limit(
        cls,
        limit: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        name: str | None = None,
    ) -> Suppressed:
        """At most one update of a key in each `limit`. A full buffer forwards its oldest keys early.

        >>> calm = planes.suppress(Suppressed.until_time_limit(10))
        >>> results(calm, planes=[("N1", 180, 0), ("N1", 90, 5), ("N2", 50, 10)])
        [('N1', 90, 5)]
        """
        time_limit_ms = milliseconds(limit, what="the time limit of suppress")
        return cls(time_limit_ms=time_limit_ms, max_records=max_records, max_bytes=max_bytes, name=name)

    def with_name(self, name: str) -> Suppressed:
        """With another name for the operator and its store.

        >>> Suppressed.until_window_closes().with_name("final").name
        'final'
        """
        return replace(self, name=name)
