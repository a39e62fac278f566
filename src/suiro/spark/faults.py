"""Points at which a test can kill this process, one for each row of the failure table.

`SUIRO_FAULT=point@batch=N:action` (or `point:action`), several separated by commas. Nothing happens without the
variable. With `SUIRO_FAULT_ONCE=<directory>` each of them happens once, whatever process reaches it.

Actions: `kill` ends this process with SIGKILL; `kill-session` ends every process of this session (the driver, its
JVM, its Python workers), as when a machine loses power; `kill-executor` ends the JVMs of the session that run tasks
for another one; `stop` stops this process (SIGSTOP) until somebody continues or ends it; `raise` raises a
`TransientError`.

Points, in the order of a micro-batch: `task_start`, `task_staged`, `before_fence`, `after_fence`,
`after_add_partitions`, `after_first_produce`, `after_produce`, `after_trailing_record`, `after_commit_offsets`,
`after_end`, `after_bump`, `before_return`. Where tasks send (`barrier`): `before_fence`, `after_fence` in task 0,
`after_gather` and `after_add_partitions` to `after_produce` in every task, `all_sent` and what follows in the driver.
Where a running application is replaced, in the driver: `before_switch`, `after_switch_fence`, `after_switch`,
`after_switch_boundary`.
"""

from __future__ import annotations

import os
import signal
from contextlib import suppress
from pathlib import Path

from suiro.errors import TransientError, UsageError
from suiro.foundation.process import session_members

VARIABLE = "SUIRO_FAULT"
ONCE_VARIABLE = "SUIRO_FAULT_ONCE"
Fault = tuple[str, int | None, str]  # point, batch id or None for any, action
ACTIONS = ("kill", "kill-session", "kill-executor", "stop", "raise")
_EXECUTOR = b"CoarseGrainedExecutorBackend"  # the class that Spark starts


def parse(text: str) -> tuple[Fault, ...]:
    found = []
    for item in filter(None, (part.strip() for part in text.split(","))):
        place, colon, action = item.partition(":")
        point, at, batch = place.partition("@batch=")
        if not colon or action not in ACTIONS or (at and not batch.isdigit()):
            raise UsageError(
                f"{VARIABLE}: {item!r} is not point[@batch=N]:action with an action of {', '.join(ACTIONS)}"
            )
        found.append((point, int(batch) if at else None, action))
    return tuple(found)


def reach(point: str, batch_id: int) -> None:
    """Call at a point; returns at once unless a test asked for a fault here."""
    text = os.environ.get(VARIABLE)
    if not text:
        return
    for place, batch, action in parse(text):
        if place == point and (batch is None or batch == batch_id) and _is_due(f"{place}-{batch}-{action}"):
            _act(action, f"{point}@batch={batch_id}")


def _is_due(name: str) -> bool:
    directory = os.environ.get(ONCE_VARIABLE)
    if not directory:
        return True
    try:
        (Path(directory) / name).touch(exist_ok=False)
    except FileExistsError:
        return False
    return True


def _act(action: str, where: str) -> None:
    if action == "raise":
        raise TransientError(f"fault injected at {where}")
    if action == "stop":
        os.kill(os.getpid(), signal.SIGSTOP)
        return
    if action == "kill-executor":
        for process in session_members(os.getsid(0)):
            if _EXECUTOR in _command_of(process):
                os.kill(process, signal.SIGKILL)
        return
    if action == "kill-session":
        for process in session_members(os.getsid(0)):
            if process != os.getpid():
                with suppress(ProcessLookupError):  # a worker of a query that was just stopped
                    os.kill(process, signal.SIGKILL)
    os.kill(os.getpid(), signal.SIGKILL)


def _command_of(process: int) -> bytes:
    try:
        return Path(f"/proc/{process}/cmdline").read_bytes()
    except OSError:
        return b""
