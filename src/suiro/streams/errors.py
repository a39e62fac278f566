"""The errors of building and running a topology. All can be pickled, because Spark sends them between processes."""

from __future__ import annotations

from pathlib import Path
from sysconfig import get_path
from traceback import walk_tb

from suiro.errors import UsageError

_SUIRO = f"{Path(__file__).parents[1]}/"


class TopologyError(UsageError):
    """The topology cannot work as it is; the message names the operators and what to change."""


class CheckpointError(UsageError):
    """The checkpoint of an application does not fit what the log knows of it; nothing was written."""


class ProcessingError(UsageError):
    """An operator failed on a record. The message names operator, topic, partition, offset, key, and the cause."""


def said(error: BaseException) -> str:
    """Returns the message of an error, whose class may be a user's. Half of a surrogate pair is shown by its number,
    because UTF-8 has no form for it."""
    try:
        message = str(error)
    except Exception:  # noqa: BLE001 - a user's class
        message = type(error).__qualname__
    return message.encode("utf-8", "backslashreplace").decode()


def in_a_line(error: BaseException) -> str:
    """Returns the message in one line: of more lines, Spark's report of our error would keep the first."""
    return " ".join(line.strip() for line in said(error).splitlines())


def described(error: BaseException) -> str:
    """Returns kind and message of an error of a user's function, and the line of the user's file that it comes from:
    Spark's report does not have it."""
    python, packages = (f"{get_path(name)}/" for name in ("stdlib", "purelib"))
    calls = [(frame.f_code.co_filename, line) for frame, line in walk_tb(error.__traceback__)]
    # Code in C, or made of an expression, has no file in Python.
    calls = [call for call in calls if call[0].endswith(".py") and not call[0].startswith(_SUIRO)]
    # A library may call the function: a decorator does.
    calls = [call for call in calls if call[0].startswith(packages) or not call[0].startswith(python)]
    own = [call for call in calls if not call[0].startswith(packages)] or calls
    lines = [line for file, line in own if file == own[0][0]]
    where = f" ({Path(own[0][0]).name}, line {lines[-1]})" if lines else ""
    return f"{type(error).__name__}: {in_a_line(error)}{where}"
