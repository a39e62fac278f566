"""Producer ids that no producer of a data directory has had: reserved in blocks on disk, before use."""

from __future__ import annotations

from pathlib import Path

from suiro.broker.topics import write_atomically

_BLOCK = 1000


class NoProducerIdError(Exception):
    """The disk takes no reservation. What asked for an id changes nothing and may be asked again."""


class ProducerIds:
    """`take` one; the file says up to which they may have been taken."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._next = self._reserved = int(path.read_text()) if path.exists() else 0

    def take(self) -> int:
        """Raises `NoProducerIdError`."""
        if self._next == self._reserved:
            reserved = self._reserved + _BLOCK
            try:
                write_atomically(self._path, str(reserved).encode())
            except OSError as error:
                raise NoProducerIdError(f"cannot reserve producer ids in {self._path}: {error}") from error
            self._reserved = reserved  # only now: on a full disk none of the block may be handed out
        self._next += 1
        return self._next - 1

    def skip_to(self, producer_id: int) -> None:
        """Ids below were seen in use: a directory that comes from elsewhere has no file of ours."""
        if producer_id > self._reserved:
            self._next = self._reserved = producer_id
