"""The condition of a stream task after a micro-batch. Pure.

What a task saw in the micro-batch decides (`TABLE`); what it was in before decides only whether those below are told
once more. One thing is remembered, with the state: whether those below were told that the task is not running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum
from types import MappingProxyType
from typing import Literal

Seen = Literal["all was taken", "records wait for an input", "an input is at the restore boundary"]


class Condition(Enum):
    RUNNING = "running"
    IDLING = "idling"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """`is_settled`: nothing is on its way to the task, so operators may let go of what waited for others."""

    of: str
    below: str
    is_settled: bool


CONDITIONS: Mapping[Condition, Meaning] = MappingProxyType(
    {
        Condition.RUNNING: Meaning(
            of="It took every record that there is for it.",
            below="Nothing, or once that it is running again.",
            is_settled=True,
        ),
        Condition.IDLING: Meaning(
            of="An input has more records in the log than the micro-batch read, and they may be earlier than those of "
            "other inputs, which are buffered (Kafka Streams waits for `max.task.idle.ms`).",
            below="Its time, and that earlier records may follow: they buffer, too.",
            is_settled=False,
        ),
        Condition.RESTORING: Meaning(
            of="It makes lost state again, and an input stands where the run before stopped reading it. Records from "
            "topics go on, for they were processed then; those of other tasks wait, as they did then.",
            below="Its time, and that it stands there.",
            is_settled=False,
        ),
    }
)

TABLE: Mapping[Seen, Condition] = MappingProxyType(
    {
        "all was taken": Condition.RUNNING,
        "records wait for an input": Condition.IDLING,
        "an input is at the restore boundary": Condition.RESTORING,
    }
)
"""What a micro-batch makes of a task in any condition."""

_TOLD = b""


def seen(*, is_behind: bool, is_at_boundary: bool, is_buffered: bool) -> Seen:
    """`is_behind`: an input has more records in the log. `is_buffered`: records are buffered at the end."""
    if is_behind:
        return "records wait for an input"
    if is_at_boundary:
        return "an input is at the restore boundary"
    return "records wait for an input" if is_buffered else "all was taken"


class TaskCondition:
    """`memory`: what `memory` was after the micro-batch before; None: nothing."""

    def __init__(self, memory: bytes | None) -> None:
        self._was_told = memory is not None
        self.now = Condition.RUNNING

    def see(self, what: Seen) -> None:
        """The last word counts."""
        self.now = TABLE[what]

    @property
    def is_settled(self) -> bool:
        return CONDITIONS[self.now].is_settled

    @property
    def tells(self) -> bool:
        """Whether those below are told, also where no record goes to them."""
        return self._was_told or self.now is not Condition.RUNNING

    @property
    def has_changed(self) -> bool:
        return self._was_told != (self.now is not Condition.RUNNING)

    @property
    def memory(self) -> bytes | None:
        return None if self.now is Condition.RUNNING else _TOLD
