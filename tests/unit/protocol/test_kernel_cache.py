"""A worker process finds the kernels compiled."""

from __future__ import annotations

import subprocess
import sys

from suiro.protocol.columnar import warm_up

COUNT_COMPILED = """
from suiro.protocol import kernels
compiled = [name for name, kernel in vars(kernels).items() if getattr(kernel, "signatures", None)]
print(len(compiled), sum(sum(getattr(kernels, name).stats.cache_misses.values()) for name in compiled))
"""


def test_a_second_process_compiles_nothing() -> None:
    warm_up()
    done = subprocess.run([sys.executable, "-c", COUNT_COMPILED], capture_output=True, text=True, check=True)
    kernels, compiled = map(int, done.stdout.split())
    assert kernels == 6
    assert compiled == 0
