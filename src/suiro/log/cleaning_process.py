"""`python -m suiro.log.cleaning_process`: cleans the logs that its parent names, one after another.

A process of its own: the work takes a core for minutes and numba takes a second to load, and neither may hold up
the node. It writes `.cleaned` files only. Jobs come on standard input, what was done goes back on standard
output. It ends when its input does: a node that was killed must not find files written after
its next start.
"""

from __future__ import annotations

import os
import signal
import sys
import threading
from queue import SimpleQueue
from typing import IO

from suiro.errors import CorruptRecordError
from suiro.log.compaction import CleaningFailed, CleaningJob, Uncleanable, receive_message, send_message

_PR_SET_PDEATHSIG = 1
_NICENESS = 5


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
            jobs.put(receive_message(sys.stdin.buffer))
    except EOFError:
        os._exit(0)


def _work(job: CleaningJob, answers: IO[bytes]) -> None:
    from suiro.log.cleaning import clean

    try:
        for done in clean(job):
            send_message(answers, done)
    except CorruptRecordError as error:
        send_message(answers, Uncleanable(why=str(error)))
    except OSError as error:
        send_message(answers, CleaningFailed(why=str(error)))


def _die_with_parent() -> None:
    """Where the kernel can do it (Linux), at once; elsewhere the end of the input has to do."""
    import ctypes

    prctl = getattr(ctypes.CDLL(None), "prctl", None)
    if prctl is not None:
        prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)


if __name__ == "__main__":
    main()
