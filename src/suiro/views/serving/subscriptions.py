"""The changes of each new cut, as server-sent events, for as long as a reader listens.

    id: 2.17
    data: {"view", "version", "cut", "time", "offsets", "changes": [{"key", "value"}], "part": "last"}

A deleted row has the value null. A large cut comes in parts, "more", "more", ..., "last", and only the last one has the
id. A reader that comes back with it as `Last-Event-ID` gets whole cuts, none twice and none left out.

The first event has `"reset": true` and no changes. Such an event comes again if changes do not lead from the last event
to the current state: the caller was moved to another version, or the cuts behind its last event are no longer kept. The
reader then gets the whole state from `rows?as_of=cut:N&version=V`, and continues from there.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Any

from suiro.errors import SuiroError, UsageError
from suiro.views.cuts import Cut
from suiro.views.serving.answers import head_text, rows_text
from suiro.views.serving.served import Served, waking
from suiro.views.store.rows import CutGoneError

LOOK_AGAIN_S = 1.0  # whether the version is still the caller's
KEEP_ALIVE_LOOKS = 15
NO_END = 2**62

_ID = re.compile(r"(?:([0-9]{1,9})\.)?([0-9]{1,18})")


def event_id(text: str, served: Served) -> int | None:
    """Returns the cut of the event, None if the event is of another version."""
    match = _ID.fullmatch(text)
    if match is None:
        raise UsageError(f"{text!r} is no event's id; it is VERSION.CUT, or the number of a cut")
    return int(match[2]) if match[1] is None or int(match[1]) == served.spec.version else None


Follows = Callable[[], Served]
"""Returns the version that answers the caller now, and raises `SuiroError` if there is none."""
Read = Callable[..., Awaitable[Any]]
"""Runs a function in a thread."""


async def changes_of(served: Served, after: int | None, follows: Follows, read: Read) -> AsyncGenerator[str, None]:
    """Yields events, after the cut `after`. Ends when no version answers the caller any more. A reader that connects
    again gets the reason."""
    try:
        while True:
            async for event in _of_version(served, after, follows, read):
                yield event
            served, after = follows(), None
    except SuiroError as error:
        yield f": {str(error).splitlines()[0]}\n\n"


async def _of_version(served: Served, after: int | None, follows: Follows, read: Read) -> AsyncIterator[str]:
    def is_callers() -> bool:
        return follows().spec.version == served.spec.version

    changed = asyncio.Event()
    stop_listening = served.follower.listen(waking(changed))
    start, silent = b"", 0
    try:
        while is_callers():
            changed.clear()
            if after is None:
                newest: Cut = await read(served.store.newest)
                after, start = newest.number, b""
                yield _event(served, newest, (), {"reset": True}, has_id=True)
            try:
                found = await read(served.store.changes, after, NO_END, start)
            except CutGoneError:
                after = None
                continue
            if found is not None:
                cut, changes, rest = found
                yield _event(served, cut, changes, {"part": "last" if rest is None else "more"}, has_id=rest is None)
                after, start = (cut.number, b"") if rest is None else (after, rest)
                silent = 0
                continue
            # A waiting reader does not read the store, because there may be a thousand of them.
            while not changed.is_set() and is_callers():
                with suppress(TimeoutError):
                    await asyncio.wait_for(changed.wait(), LOOK_AGAIN_S)
                    break
                silent += 1
                if silent % KEEP_ALIVE_LOOKS == 0:
                    yield ": nothing new\n\n"
    finally:
        stop_listening()


def _event(served: Served, cut: Cut, changes: Any, more: Mapping[str, object], *, has_id: bool) -> str:
    rest = "".join(f",{json.dumps(field)}:{json.dumps(value)}" for field, value in more.items())
    data = f'{head_text(served.spec, cut)},"changes":{rows_text(served.spec.key, changes)}{rest}}}'
    name = f"id: {served.spec.version}.{cut.number}\n" if has_id else ""
    return f"{name}data: {data}\n\n"
