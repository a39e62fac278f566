"""`python -m suiro.log.cleaning_process`: cleans the logs that its parent names, one after another.

A process of its own: the work takes a core for minutes and numba takes a second to load, and neither may hold up
the node. It writes `.cleaned` files only. Jobs come pickled on standard input, what was done goes back on
standard output, both with a length of four bytes before them; `Uncleanable` says that a log cannot be read. It ends
when its input does: a node that was killed must not find files written after its next start.
"""

from __future__ import annotations

import os
import pickle  # over a pipe to a child process of the same installation; never kept
import signal
import struct
import sys
import threading
from dataclasses import dataclass
from queue import SimpleQueue
from typing import IO, Any

from suiro.errors import CorruptRecordError
from suiro.log.compaction import Cleaned, CleaningJob, GroupCleaned

_LENGTH = struct.Struct(">I")
_PR_SET_PDEATHSIG = 1
_NICENESS = 5


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


def main() -> None:
    _die_with_parent()
    os.nice(_NICENESS)
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # What a library prints must not get between the answers.
    jobs: SimpleQueue[CleaningJob] = SimpleQueue()
    threading.Thread(target=_listen, args=(jobs,), daemon=True).start()
    while True:
        _work(jobs.get(), answers)


def _listen(jobs: SimpleQueue[CleaningJob]) -> None:
    try:
        while True:
            jobs.put(receive(sys.stdin.buffer))
    except EOFError:
        os._exit(0)


def _work(job: CleaningJob, answers: IO[bytes]) -> None:
    from suiro.log.cleaning import clean

    try:
        for done in clean(job):
            send(answers, done)
    except CorruptRecordError as error:
        send(answers, Uncleanable(why=str(error)))
    except OSError as error:
        send(answers, CleaningFailed(why=str(error)))


def _die_with_parent() -> None:
    """Where the kernel can do it (Linux), at once; elsewhere the end of the input has to do."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
