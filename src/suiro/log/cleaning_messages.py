"""The messages between the node and its cleaning process: pickled, each after a length of four bytes.

They are not defined in `cleaning_process`: that module is `__main__` in its process, and the node could not unpickle
its classes.
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
    """The log holds something that cannot be cleaned. Another attempt does not help."""

    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CleaningFailed:
    """The disk failed. The log is unchanged, and a later attempt may succeed."""

    why: str


Answer = GroupCleaned | Cleaned | Uncleanable | CleaningFailed


def send(stream: IO[bytes], message: CleaningJob | Answer) -> None:
    data = pickle.dumps(message)
    stream.write(_LENGTH.pack(len(data)) + data)
    stream.flush()


def receive(stream: IO[bytes]) -> Any:
    """Returns the next message. Raises EOFError if the other side is gone."""
    head = stream.read(_LENGTH.size)
    if len(head) < _LENGTH.size:
        raise EOFError
    size = _LENGTH.unpack(head)[0]
    data = stream.read(size)
    if len(data) < size:
        raise EOFError
    return pickle.loads(data)
