"""`suiro kafka up` as users run it, for tests."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

DEADLINE_S = 60.0


@contextmanager
def kafka_up(data: Path, *options: str) -> Iterator[dict[str, Any]]:
    """A running `suiro kafka up`, stopped by SIGTERM behind the block; gives its ready line."""
    command = [sys.executable, "-m", "suiro", "kafka", "up", "--data", str(data), *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, f"it ended with {process.wait()}"
            yield json.loads(line)
        finally:
            process.send_signal(signal.SIGTERM)
            code = process.wait(DEADLINE_S)
    assert code == 0
