"""Producer ids that no producer of a data directory has had: reserved in blocks on disk, before use."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.errors import ConfigError
from suiro.log import replace_file

if TYPE_CHECKING:
    from suiro.log import PartitionLog

FILE_NAME = "producer-ids"
_BLOCK = 1000
_FAR_BEYOND = 1 << 62
"""No broker gives such ids. A producer with a made-up id must not use up all others."""


class NoProducerIdError(Exception):
    """The disk refuses the reservation. The request changes nothing and can be repeated."""


class ProducerIds:
    """`take` one; the file says up to which they may have been taken."""

    def __init__(self, data: Path) -> None:
        """Raises `ConfigError` where the file is damaged."""
        self._path = path = data / FILE_NAME
        self.is_known = path.exists()
        """Whether the file says which ids were taken. If not, `keep_off` those that logs know."""
        try:
            self._next = self._reserved = int(path.read_text()) if self.is_known else 0
        except ValueError as error:
            raise ConfigError(
                f"{path} does not hold a number; restore it, or remove it: the node gives ids above all those that its "
                "logs know then"
            ) from error

    @property
    def reserved(self) -> int:
        """The first id that was not given yet."""
        return self._reserved

    def take(self) -> int:
        """Raises `NoProducerIdError`."""
        if self._next == self._reserved:
            reserved = self._reserved + _BLOCK
            try:
                replace_file(self._path, str(reserved).encode())
            except OSError as error:
                raise NoProducerIdError(f"cannot reserve producer ids in {self._path}: {error}") from error
            self._reserved = reserved  # only now: on a full disk none of the block may be handed out
        self._next += 1
        return self._next - 1

    def keep_off(self, logs: Iterable[PartitionLog]) -> None:
        """Never give the ids of these logs' producers to others. The logs were written elsewhere, by producers whose
        ids this file does not know, and the batches of another producer would be taken for theirs. Raises OSError."""
        highest = highest_in(logs)
        if highest >= self._reserved:
            replace_file(self._path, str(highest + 1).encode())
            self._next = self._reserved = highest + 1

    def skip_to(self, producer_id: int) -> None:
        """The ids below were seen in use: a directory from elsewhere has no file of ours."""
        if producer_id > self._reserved:
            self._next = self._reserved = producer_id


def highest_in(logs: Iterable[PartitionLog]) -> int:
    """The highest id of a producer of these logs, -1 where there is none."""
    ids = (producer.producer_id for log in logs for producer in log.producer_states())
    return max((each for each in ids if each < _FAR_BEYOND), default=-1)
