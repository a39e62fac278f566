"""The event loop of whatever serves: uvloop's where it is installed, else that of the standard library.

uvloop is not in the base installation because of its size (14 MB); extra [spark] brings it.
"""

from __future__ import annotations

from asyncio import AbstractEventLoop


def new_event_loop() -> AbstractEventLoop:
    try:
        import uvloop
    except ModuleNotFoundError:
        import asyncio

        return asyncio.new_event_loop()
    return uvloop.new_event_loop()
