"""The file of the state that belongs to the node as a whole: access control, credentials, quotas, changed settings.

It is one JSON file in the data directory, with named sections. The owner of a section reads it at the start, and writes
the whole section when it changes. The file is replaced as a whole, so a crash leaves the old content or the new.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suiro.errors import ConfigError
from suiro.log import StorageError, check_version, replace_file

FILE_NAME = "cluster-state.json"
GROUP_CONFIGS = "group-configs"
QUOTAS = "quotas"
_VERSION = 1


class ClusterState:
    """Open with the data directory's path. Sections are JSON values."""

    def __init__(self, directory: Path) -> None:
        self._path = directory / FILE_NAME
        self._sections: dict[str, Any] = {}
        if self._path.exists():
            try:
                content = json.loads(self._path.read_text(encoding="utf-8"))
                check_version(self._path, content["version"], _VERSION)
                self._sections = dict(content["sections"])
            except (ValueError, KeyError, TypeError) as error:
                raise ConfigError(
                    f"{self._path} is damaged ({error!r}); restore it, or move it away to begin without "
                    "access control lists, credentials, quotas and changed settings"
                ) from error

    def read(self, section: str, default: Any) -> Any:
        return self._sections.get(section, default)

    def write(self, section: str, value: Any) -> None:
        """Write a section, then apply it. Raises `StorageError`; then nothing has changed. Only its owner can read the
        file."""
        sections = {**self._sections, section: value}
        content = json.dumps({"version": _VERSION, "sections": sections}, indent=1).encode()
        with written_down(f"{FILE_NAME}: {section}"):
            replace_file(self._path, content, mode=0o600)  # it holds what passwords are checked with
        self._sections = sections


@contextmanager
def written_down(what: str) -> Iterator[None]:
    """Raises an error of the disk as `StorageError`, whose code goes to the client."""
    try:
        yield
    except OSError as error:
        raise StorageError(f"cannot write down {what}: {error.strerror or error}") from error
