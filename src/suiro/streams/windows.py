"""Windows: those that contain a timestamp, and when they close. Pure rules over ms (KIP-63, KIP-328, KIP-450, KIP-633).

A window is closed, for acceptance, `suppress` and emit-final alike, when operator time T has passed its end and grace:
`end + grace <= T` for time windows (end exclusive), `end + grace < T` for sliding and session windows (end inclusive).
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import timedelta
from enum import Enum
from typing import Self

from suiro.errors import ConfigError
from suiro.streams.durations import LONGEST_MS, milliseconds

Duration = str | int | timedelta


class EmitStrategy(Enum):
    """When a windowed aggregate gives its results: at every update, or once, when the window is closed.

    >>> EmitStrategy.on_window_close() is EmitStrategy.ON_WINDOW_CLOSE
    True
    """

    ON_WINDOW_UPDATE = "on_window_update"
    ON_WINDOW_CLOSE = "on_window_close"

    @staticmethod
    def on_window_update() -> EmitStrategy:
        return EmitStrategy.ON_WINDOW_UPDATE

    @staticmethod
    def on_window_close() -> EmitStrategy:
        return EmitStrategy.ON_WINDOW_CLOSE


class _Windows:
    """The base of windows, which are dataclasses."""

    __slots__ = ()

    grace_ms: int

    def __post_init__(self) -> None:
        if self.retention_ms > LONGEST_MS:
            raise ConfigError(f"{self!r} and their grace together do not fit into 64 bits of ms; give a shorter grace")

    def grace(self, grace: Duration) -> Self:
        """How long after its end a window accepts records, and a session after its gap. In joins: how late, by the time
        of the records, a record may come and still be joined.

        >>> TimeWindows.of_size("1 hour").grace("10 minutes").is_closed(3_600_000, 4_000_000)
        False
        >>> SessionWindows.of_gap("30 minutes").grace("1 minute").closing_delay_ms
        1860000
        """
        return replace(self, grace_ms=_grace(grace))  # type: ignore[type-var]

    @property
    def closing_delay_ms(self) -> int:
        """How long after its end a window accepts records."""
        return self.grace_ms

    @property
    def retention_ms(self) -> int:
        raise NotImplementedError


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeWindows(_Windows):
    """Tumbling windows, or hopping windows if `advance_ms` is less than `size_ms`. Aligned to the epoch.

    >>> list(TimeWindows.of_size("10 s", advance="5 s").starts_for(7_000))
    [0, 5000]
    """

    size_ms: int
    advance_ms: int
    grace_ms: int = 0

    @classmethod
    def of_size(cls, size: Duration, *, advance: Duration | None = None, grace: Duration | None = None) -> TimeWindows:
        """Start inclusive, end exclusive. Without an advance they tumble. Raises `ConfigError` for a size that is not
        positive, and for an advance beyond it.

        >>> TimeWindows.of_size("1 day", grace="2 hours").grace_ms
        7200000
        """
        size_ms = _positive(size, "the size of TimeWindows")
        advance_ms = size_ms if advance is None else _positive(advance, "the advance of TimeWindows")
        if advance_ms > size_ms:
            raise ConfigError(
                f"TimeWindows that advance by {advance_ms} ms but are {size_ms} ms long would leave out records "
                "between them; advance must not be greater than size"
            )
        return cls(size_ms=size_ms, advance_ms=advance_ms, grace_ms=_grace(grace))

    def advance_by(self, advance: Duration) -> TimeWindows:
        """The time between the starts of consecutive windows.

        >>> TimeWindows.of_size("1 hour").advance_by("10 minutes").advance_ms
        600000
        """
        return TimeWindows.of_size(self.size_ms, advance=advance, grace=self.grace_ms)

    @property
    def retention_ms(self) -> int:
        return self.size_ms + self.grace_ms

    def starts_for(self, timestamp: int) -> range:
        """The starts of all windows that contain the timestamp, ascending."""
        first = max(0, timestamp - self.size_ms + self.advance_ms) // self.advance_ms * self.advance_ms
        return range(first, timestamp + 1, self.advance_ms)

    def is_closed(self, end: int, time: int) -> bool:
        return end + self.grace_ms <= time


@dataclass(frozen=True, slots=True, kw_only=True)
class SlidingWindows(_Windows):
    """A window for each set of records that are at most `difference_ms` apart; both ends inclusive."""

    difference_ms: int
    grace_ms: int = 0

    @classmethod
    def of_difference(cls, difference: Duration, *, grace: Duration | None = None) -> SlidingWindows:
        """Each window ends at a record, or starts after one.

        >>> SlidingWindows.of_difference("10 minutes").difference_ms
        600000
        """
        difference_ms = milliseconds(difference, what="the difference of SlidingWindows")
        return cls(difference_ms=difference_ms, grace_ms=_grace(grace))

    @property
    def retention_ms(self) -> int:
        return 2 * self.difference_ms + self.grace_ms

    def is_closed(self, end: int, time: int) -> bool:
        return end + self.grace_ms < time


@dataclass(frozen=True, slots=True, kw_only=True)
class SessionWindows(_Windows):
    """Sessions of activity, separated by gaps of more than `gap_ms`; both ends inclusive."""

    gap_ms: int
    grace_ms: int = 0

    @classmethod
    def of_gap(cls, gap: Duration, *, grace: Duration | None = None) -> SessionWindows:
        """A record joins a session that it is at most `gap` from. Raises `ConfigError` for a gap that is not positive.

        >>> SessionWindows.of_gap("30 minutes").gap_ms
        1800000
        """
        return cls(gap_ms=_positive(gap, "the gap of SessionWindows"), grace_ms=_grace(grace))

    @property
    def closing_delay_ms(self) -> int:
        return self.gap_ms + self.grace_ms

    @property
    def retention_ms(self) -> int:
        return self.gap_ms + self.grace_ms

    def is_closed(self, end: int, time: int) -> bool:
        return end + self.gap_ms + self.grace_ms < time


@dataclass(frozen=True, slots=True, kw_only=True)
class JoinWindows(_Windows):
    """Records join when the right one is at most `before_ms` earlier and at most `after_ms` later than the left one."""

    before_ms: int
    after_ms: int
    grace_ms: int = 0

    @classmethod
    def of(cls, *, before: Duration, after: Duration, grace: Duration | None = None) -> JoinWindows:
        """Either bound may be negative, so that the right record must come later, or earlier. Raises `ConfigError` if
        the window would end before it starts.

        >>> JoinWindows.of(before="1 hour", after=0)
        JoinWindows(before_ms=3600000, after_ms=0, grace_ms=0)
        """
        before_ms = milliseconds(before, what="before of JoinWindows", allow_negative=True)
        after_ms = milliseconds(after, what="after of JoinWindows", allow_negative=True)
        if before_ms + after_ms < 0:
            raise ConfigError(
                f"JoinWindows(before={before_ms} ms, after={after_ms} ms) end before they begin; before + after must "
                "not be negative"
            )
        return cls(before_ms=before_ms, after_ms=after_ms, grace_ms=_grace(grace))

    @classmethod
    def of_time_difference(cls, difference: Duration, *, grace: Duration | None = None) -> JoinWindows:
        """The same time before and after.

        >>> JoinWindows.of_time_difference("5 minutes").after_ms
        300000
        """
        return cls.of(before=difference, after=difference, grace=grace)

    @property
    def retention_ms(self) -> int:
        return self.before_ms + self.after_ms + self.grace_ms


Windows = TimeWindows | SlidingWindows | SessionWindows


def _positive(duration: Duration, what: str) -> int:
    found = milliseconds(duration, what=what)
    if found <= 0:
        raise ConfigError(f"{what} must be longer than 0 ms, not {duration!r}")
    return found


def _grace(duration: Duration | None) -> int:
    return 0 if duration is None else milliseconds(duration, what="grace")
