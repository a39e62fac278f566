"""The small text files of a data directory, in Kafka's formats.

A checkpoint is a version line (0), a line with the number of entries, then one entry a line.
`partition.metadata` and `meta.properties` are `name: value` and `name=value` lines.

Most are not synced, so a power cut may leave the name of a new one without its bytes. Such a file counts as absent:
what it would have said is found again (from the logs, the list of topics), and the node starts.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from pathlib import Path
from uuid import UUID

from suiro.errors import ConfigError
from suiro.log.damage import set_aside
from suiro.log.files import read_file, replace_file

PARTITION_METADATA = "partition.metadata"


class DamagedFileError(ConfigError):
    """A small file holds something else than it should."""


def check_version(what: object, found: object, known: object) -> None:
    """Raises ConfigError for what another release has written in another format. `what`: in the data directory."""
    if found != known:
        raise ConfigError(
            f"{what} has version {found}, this release of suiro reads {known}: use the release that wrote it, or "
            "restore a backup of the data directory"
        )


def read_checkpoint(path: str | Path, *, columns: int) -> list[list[str]]:
    """Rows of a checkpoint file, the last two columns whole numbers; [] where it is absent or empty.

    Raises DamagedFileError where it is not one.
    """
    try:
        lines = _lines(path)
        if not lines:
            return []
        rows = [line.rsplit(" ", columns - 1) for line in lines[2:]]
        whole = len(lines) >= 2 and lines[0] == "0" and lines[1] == str(len(rows))
        for row in rows:
            whole = whole and len(row) == columns
            int(row[-2]), int(row[-1])
    except (ValueError, IndexError):
        whole = False
    if not whole:
        raise DamagedFileError(f"{path} is not a checkpoint file (version 0)")
    return rows


def read_or_set_aside(path: Path, *, columns: int, then: str) -> list[list[str]] | None:
    """Rows of a checkpoint file; None where it was damaged, and set aside. `then` says what is done without it."""
    try:
        return read_checkpoint(path, columns=columns)
    except DamagedFileError as error:
        set_aside(path, f"{error}; {then}")
        return None


def checkpoint_bytes(rows: Sequence[str]) -> bytes:
    return "\n".join(["0", str(len(rows)), *rows, ""]).encode()


def write_checkpoint(path: Path, rows: Sequence[str], *, sync: bool = False) -> None:
    replace_file(path, checkpoint_bytes(rows), sync=sync)


def id_text(identifier: UUID) -> str:
    """A UUID as Kafka writes it: 22 characters of URL-safe base64."""
    return base64.urlsafe_b64encode(identifier.bytes).decode().rstrip("=")


def id_from_text(text: str) -> UUID:
    return UUID(bytes=base64.urlsafe_b64decode(text + "=="))


def read_partition_metadata(directory: Path) -> UUID | None:
    """The topic id that a partition's directory belongs to; None where there is no such file, or an empty one.

    Raises DamagedFileError.
    """
    try:
        lines = _lines(f"{directory}/{PARTITION_METADATA}")
        if not lines:
            return None
        values = dict(line.split(": ", 1) for line in lines if ": " in line)
        return id_from_text(values["topic_id"])
    except (KeyError, ValueError) as error:
        raise DamagedFileError(f"{directory / PARTITION_METADATA} holds no topic id") from error


def write_partition_metadata(directory: Path, topic_id: UUID) -> None:
    content = f"version: 0\ntopic_id: {id_text(topic_id)}"
    replace_file(directory / PARTITION_METADATA, content.encode(), sync=False)


def keep_topic_id(directory: Path, topic_id: UUID, topic: str) -> None:
    """Write the topic id for a new partition. Raises `ConfigError` where the folder has another one; a damaged file is
    set aside and written again."""
    try:
        found = read_partition_metadata(directory)
    except DamagedFileError as error:
        set_aside(directory / PARTITION_METADATA, f"{error}; it is written anew, for {topic_id} ({topic})")
        found = None
    if found is None:
        directory.mkdir(parents=True, exist_ok=True)
        write_partition_metadata(directory, topic_id)
    elif found != topic_id:
        raise ConfigError(f"{directory} belongs to topic id {found}, not to {topic_id} ({topic})")


def read_properties(path: Path) -> dict[str, str]:
    """A Java properties file of plain `name=value` lines; {} where it is absent. Raises DamagedFileError."""
    try:
        lines = path.read_text().splitlines()
    except FileNotFoundError:
        return {}
    except UnicodeDecodeError as error:
        raise DamagedFileError(f"{path} is not a text file of name=value lines") from error
    pairs = (line.split("=", 1) for line in lines if "=" in line and not line.startswith(("#", "!")))
    return {name.strip(): value.strip() for name, value in pairs}


def write_properties(path: Path, values: Mapping[str, str]) -> None:
    replace_file(path, "".join(f"{name}={value}\n" for name, value in values.items()).encode())


def _lines(path: str | Path) -> list[str]:
    """[] for a file that is absent, or that a power cut left empty (on some file systems: full of zeros)."""
    return (read_file(path) or b"").decode().strip("\0").splitlines()
