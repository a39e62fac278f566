"""What a load was told by a log that is killed again and again, held against what a reader then finds. No I/O.

What was answered is certain. What was under way when the log died may be there or not, but only whole, and only until
somebody has looked: `check` decides it, and from then on it may not change either.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Literal

Place = tuple[str, int]
Found = Mapping[Place, Sequence[tuple[int, str]]]
"""(offset, value) of each partition, as a reader with read_committed was given them."""


@dataclass(slots=True, kw_only=True, eq=False)
class Transaction:
    """`unknown`: its commit was sent and not answered. One that never got so far counts as aborted."""

    writer: str
    state: Literal["aborted", "committed", "unknown"] = "aborted"
    offset: int | None = None
    """Committed for the writer's group with it."""


@dataclass(slots=True, kw_only=True, eq=False)
class Write:
    """One record. `unknown`: sent and not answered."""

    value: str
    state: Literal["acknowledged", "unknown", "absent"] = "unknown"
    offset: int = -1
    transaction: Transaction | None = None


class Register:
    """A value that is set again and again: the last acknowledged one, or one under way after it."""

    def __init__(self, value: Any) -> None:
        self.possible: list[Any] = [value]

    def sent(self, value: Any) -> None:
        self.possible.append(value)

    def acknowledged(self) -> None:
        self.possible = self.possible[-1:]

    @property
    def value(self) -> Any:
        """Where nothing is under way."""
        (value,) = self.possible
        return value

    def check(self, name: str, found: Any) -> list[str]:
        if found not in self.possible:
            return [f"{name} is {found!r}, which must be one of {self.possible!r}"]
        self.possible = [found]
        return []


@dataclass
class Ledger:
    writes: dict[Place, dict[str, list[Write]]] = field(default_factory=dict)
    """By partition and writer, in the order sent."""
    transactions: list[Transaction] = field(default_factory=list)
    registers: dict[str, Register] = field(default_factory=dict)
    refused: list[str] = field(default_factory=list)
    """Answers that no kill explains."""

    def write(self, place: Place, writer: str, value: str, transaction: Transaction | None = None) -> Write:
        made = Write(value=value, transaction=transaction)
        self.writes.setdefault(place, {}).setdefault(writer, []).append(made)
        return made

    def begin(self, writer: str) -> Transaction:
        self.transactions.append(made := Transaction(writer=writer))
        return made

    def register(self, name: str, value: Any = None) -> Register:
        return self.registers.setdefault(name, Register(value))

    def check(self, found: Found, values: Mapping[str, Any], offsets: Mapping[str, int]) -> list[str]:
        """What is wrong, a line each. `values` are those of the registers, `offsets` the groups' by writer."""
        return [
            *self.refused,
            *self._decide_transactions(found),
            *(line for place in found.keys() | self.writes.keys() for line in self._check_place(place, found)),
            *(line for name, one in self.registers.items() for line in one.check(name, values.get(name))),
            *(f"nobody made {name}" for name in values.keys() - self.registers.keys()),
            *self._check_offsets(offsets),
        ]

    def _decide_transactions(self, found: Found) -> list[str]:
        """All of a transaction or nothing, over all of its partitions."""
        there = {place: {value for _, value in records} for place, records in found.items()}
        visible: dict[int, list[bool]] = {}
        for place, writers in self.writes.items():
            for write in (one for some in writers.values() for one in some if one.transaction is not None):
                visible.setdefault(id(write.transaction), []).append(write.value in there.get(place, ()))
        wrong = []
        for transaction in self.transactions:
            if transaction.state == "unknown":
                seen = visible.get(id(transaction), [])
                if len(set(seen)) > 1:
                    wrong.append(f"a transaction of {transaction.writer} is there in part: {seen}")
                transaction.state = "committed" if any(seen) else "aborted"
        return wrong

    def _check_place(self, place: Place, found: Found) -> list[str]:
        records = found.get(place, ())
        wrong = []
        offsets = [offset for offset, _ in records]
        if any(one >= other for one, other in pairwise(offsets)):
            wrong.append(f"{place}: offsets go back: {offsets}")
        times = Counter(value for _, value in records)
        wrong += [f"{place}: {value} is there {count} times" for value, count in times.items() if count > 1]
        at = {value: offset for offset, value in records}
        known = set()
        for writer, writes in self.writes.get(place, {}).items():
            last = -1
            for write in writes:
                known.add(write.value)
                wrong += self._check_write(place, write, at.get(write.value))
                if (offset := at.get(write.value)) is not None:
                    if offset <= last:
                        wrong.append(f"{place}: {write.value} of {writer} stands before what was sent before it")
                    last = offset
        wrong += [f"{place}: nobody wrote {value}" for value in at.keys() - known]
        return wrong

    def _check_write(self, place: Place, write: Write, offset: int | None) -> list[str]:
        if (transaction := write.transaction) is not None:
            if transaction.state == "aborted" and offset is not None:
                return [f"{place}: {write.value} at {offset} was aborted"]
            if transaction.state == "committed" and offset is None:
                return [f"{place}: {write.value} was committed and is lost"]
        if write.state == "unknown" and transaction is None:
            write.state, write.offset = ("absent", -1) if offset is None else ("acknowledged", offset)
        elif write.state == "absent" and offset is not None:
            return [f"{place}: {write.value} was not there, and now is at {offset}"]
        elif write.state == "acknowledged" and transaction is None and offset is None:
            return [f"{place}: {write.value} was acknowledged at {write.offset} and is lost"]
        if offset is not None and write.offset >= 0 and write.offset != offset:
            return [f"{place}: {write.value} was acknowledged at {write.offset} and is at {offset}"]
        return []

    def _check_offsets(self, offsets: Mapping[str, int]) -> list[str]:
        """The group's offset is that of the writer's last committed transaction with one."""
        expected = {
            one.writer: one.offset for one in self.transactions if one.state == "committed" and one.offset is not None
        }
        writers = expected.keys() | offsets.keys()
        return [
            f"the group of {writer} is at {offsets.get(writer, -1)}, not at {expected.get(writer, -1)}"
            for writer in sorted(writers)
            if offsets.get(writer, -1) != expected.get(writer, -1)
        ]
