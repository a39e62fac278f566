"""Runs a command of suiro as a child of the demo: `python -m suiro.demo.child capture postgres ...`.

The command is unchanged, except that it gets SIGTERM when standard input closes, so that it never outlives the demo.
"""

from __future__ import annotations

import os
import runpy
import signal
import sys
import threading

__all__: list[str] = []


def _end_with_the_input() -> None:
    while os.read(sys.stdin.fileno(), 4096):
        continue
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=_end_with_the_input, name="demo-child", daemon=True).start()
    runpy.run_module("suiro.cli", run_name="__main__", alter_sys=True)
