"""What the checker of the soak knows beside `tests/support/exactly_once.py`: how committed offsets and visible records
agree while both move. No I/O.

Its memory grows with keys and with transactions that are not settled, never with records.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import deque
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from suiro.demo.anomalies import Anomaly
from tests.support.exactly_once import Numbers, Place


class Offsets:
    """Which offsets of one partition hold records that a reader was given. A run without a gap is one entry."""

    def __init__(self) -> None:
        self.position = 0
        """Everything below it has been read, markers too."""
        self.total = 0
        self._starts = [0]
        self._before = [0]
        self._next = 0

    def add(self, offset: int) -> None:
        if offset != self._next:
            self._starts.append(offset)
            self._before.append(self.total)
        self.total += 1
        self._next = offset + 1
        self.position = max(self.position, self._next)

    def below(self, offset: int) -> int:
        """How many records, for an offset that was not forgotten."""
        run = bisect_right(self._starts, offset) - 1
        if run < 0:
            raise ValueError(f"offset {offset} was forgotten")
        ends = self._before[run + 1] if run + 1 < len(self._before) else self.total
        return min(self._before[run] + offset - self._starts[run], ends)

    def forget_below(self, offset: int) -> None:
        run = bisect_right(self._starts, offset) - 1
        if run > 0:
            del self._starts[:run], self._before[:run]


@dataclass(slots=True)
class _Look:
    """Committed offsets of an application, and how many of its outputs could be read before they were asked for."""

    committed: Mapping[Place, int]
    visible_before: int
    at: float
    processed: int = -1
    """Inputs below them; known when the inputs have been read so far."""


@dataclass(slots=True, kw_only=True)
class Application:
    """Each input makes one record in each output: in `outputs` in the transaction that commits the input's offset, in
    `later` then or later, since past a repartition a record waits for those of other partitions that are older. So no
    less is committed than can be read, and soon no less can be read in `outputs` than is committed."""

    name: str
    inputs: Mapping[Place, Offsets]
    outputs: Sequence[Numbers]
    later: Sequence[Numbers] = ()
    settles_s: float
    looks: deque[_Look] = field(default_factory=deque)
    checked: int = 0
    """Looks that were settled."""
    committed: dict[Place, int] = field(default_factory=dict)
    """As last seen."""
    settled: Mapping[Place, int] = field(default_factory=dict)
    """As last settled."""
    before: Mapping[Place, int] = field(default_factory=dict)
    """As settled before the last change: a micro-batch that runs again begins there or later."""

    def look(self, committed: Mapping[Place, int], visible_before: int, at: float) -> Iterator[Anomaly]:
        """`visible_before`: of the output of which most could be read."""
        for place, offset in committed.items():
            if offset < self.committed.get(place, 0):
                yield Anomaly(
                    "offsets behind data",
                    f"{self.name}: {place} goes back from {self.committed[place]} to {offset}",
                )
        self.committed |= committed
        self.looks.append(_Look(committed, visible_before, at))

    def settle(self, now: float, calm_since: float) -> Iterator[Anomaly]:
        """`calm_since`: when something between checker and log last failed."""
        while self.looks:
            look = self.looks[0]
            overdue = now - max(look.at, calm_since) > self.settles_s
            if look.processed < 0:
                behind = [place for place, offset in look.committed.items() if self.inputs[place].position < offset]
                if behind:
                    if overdue:
                        yield Anomaly(
                            "offsets ahead of data",
                            f"{self.name} is committed at {look.committed[behind[0]]} of {behind[0]}, "
                            f"which can be read up to {self.inputs[behind[0]].position}",
                        )
                    return
                look.processed = sum(self.inputs[place].below(offset) for place, offset in look.committed.items())
                if look.processed < look.visible_before:
                    yield Anomaly(
                        "offsets behind data",
                        f"{self.name}: {look.visible_before} can be read, {look.processed} are committed",
                    )
            short = [one for one in self.outputs if one.total < look.processed]
            if short:
                if overdue:
                    yield Anomaly(
                        "offsets ahead of data",
                        f"{self.name}: {look.processed} are committed, {short[0].topic} has {short[0].total}",
                    )
                return
            self.looks.popleft()
            self.checked += 1
            if look.committed != self.settled:
                self.before, self.settled = self.settled, look.committed
