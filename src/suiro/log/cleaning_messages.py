"""The messages between the node and its cleaning process: pickled, each after a length of four bytes.

Nothing of it is defined in `cleaning_process`: that module is `__main__` there, and a pickle of what it defined could
not be read here.
"""

from __future__ import annotations

import pickle  # over a pipe to a child process of the same installation; never kept
import struct
from dataclasses import dataclass
from typing import IO, Any

from suiro.log.compaction import Cleaned, CleaningJob, GroupCleaned

_LENGTH = struct.Struct(">I")


@dataclass(frozen=True, slots=True, kw_only=True)
class Uncleanable:
    """The log holds something that no cleaning gets past; trying again does not help."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailed:
    """The disk refused; the log is as it was, and a later attempt may succeed."""

    why: str


Answer = GroupCleaned | Cleaned | Uncleanable | CleaningFailed


def send(stream: IO[bytes], message: CleaningJob | Answer) -> None:
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """The next message. Raises EOFError where the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
