"""What happened, as it happens: a line for people, and one of JSON in the soak's folder."""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any


class Trouble(Exception):
    """The soak has failed; the message says why."""


class Story:
    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1)
        self._began = time.monotonic()

    @property
    def now(self) -> float:
        """Seconds since the beginning."""
        return time.monotonic() - self._began

    def tell(self, what: str, words: str = "", **facts: Any) -> None:
        self.note(what, words=words, **facts)
        print(f"{self.now:8.1f}  {what}{': ' if words else ''}{words}", flush=True)

    def note(self, what: str, **facts: Any) -> None:
        """Only in the file."""
        self._file.write(json.dumps({"at": round(self.now, 1), "what": what, **facts}) + "\n")

    def close(self) -> None:
        self._file.close()
