"""The condition of a stream task after a micro-batch. Pure.

The micro-batch alone decides (`condition_after`). The condition before it decides only whether the tasks below are told
once more. A task remembers one thing with its state: whether it has told them that it is not running.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum


class Condition(StrEnum):
    RUNNING = "running"
    IDLING = "idling"
    RESTORING = "restoring"


@dataclass(frozen=True, slots=True, kw_only=True)
class Meaning:
    """For people. `saw`: what a task saw in the micro-batch. `of`: the condition in words. `below`: what the tasks
    below are told."""

    saw: str
    of: str
    below: str


CONDITIONS: Mapping[Condition, Meaning] = {
    Condition.RUNNING: Meaning(
        saw="all was taken",
        of="It processed all available records.",
        below="Nothing, except once that it is running again.",
    ),
    Condition.IDLING: Meaning(
        saw="records wait for an input",
        of="An input has more records in the log than the micro-batch read, and they may be earlier than those of "
        "other inputs, which are buffered (Kafka Streams waits for `max.task.idle.ms`).",
        below="Its time, and that earlier records may follow: they buffer, too.",
    ),
    Condition.RESTORING: Meaning(
        saw="an input is at the restore boundary",
        of="It makes lost state again, and an input stands where the run before stopped reading it. Records from "
        "topics go on, for they were processed then; those of other tasks wait, as they did then.",
        below="Its time, and that it stands there.",
    ),
}


def condition_after(*, is_behind: bool, is_at_boundary: bool, is_buffered: bool) -> Condition:
    """`is_behind`: an input has more records in the log. `is_at_boundary`: an input is at the restore boundary.
    `is_buffered`: records are buffered at the end."""
    if is_behind:
        return Condition.IDLING
    if is_at_boundary:
        return Condition.RESTORING
    return Condition.IDLING if is_buffered else Condition.RUNNING


def tells(condition: Condition, *, was_told: bool) -> bool:
    """Whether the tasks below are told, also where no record goes to them. `was_told`: the task has told them before
    that it is not running."""
    return was_told or condition is not Condition.RUNNING
