"""The answer of a process that does one thing for another: a JSON object on its standard output, {"ok": ...} or
{"error": message, "kind": ...}. Output of user code goes to standard error instead.
"""

from __future__ import annotations

import json
import os
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from suiro.errors import FatalError, SuiroError, TransientError, UsageError

KINDS: Mapping[str, type[SuiroError]] = {
    "usage": UsageError,
    "transient": TransientError,
    "fatal": FatalError,
}


def answer(do: Callable[[], Any], *, place: Callable[[Exception], str] = lambda _: "") -> None:
    """Write what `do` returns or raises. `place` says where in the user's code an error was."""
    answers = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # output of the user's code must not be taken for the answer
    try:
        made: dict[str, Any] = {"ok": do()}
    except SuiroError as error:
        kind = next((name for name, cls in KINDS.items() if isinstance(error, cls)), "fatal")
        made = {"error": str(error), "kind": kind}
    except Exception as error:  # noqa: BLE001 - a user's code raises anything; the answer has it
        traceback.print_exc()
        made = {"error": f"{type(error).__name__}: {error}{place(error)}", "kind": "usage"}
    answers.write(json.dumps(made).encode())
    answers.close()


def answered(text: bytes, *, missing: str) -> Any:
    """Return what `do` returned, or raise its error by its kind. Without an answer, raise `FatalError(missing)`."""
    try:
        found = json.loads(text)
    except ValueError:
        raise FatalError(missing) from None
    if "error" in found:
        raise KINDS[found["kind"]](found["error"])
    return found["ok"]
