"""A folder in the temporary directory that is shared by the processes of one user and closed to other users.

The name is known to everybody, and others may write to the directory that it is in: they could make it first, or put a
link there. So it is believed only if it is a directory of this user, and is given the mode 0700.
"""

from __future__ import annotations

import os
import stat
import tempfile
from contextlib import suppress
from pathlib import Path

from suiro.errors import UsageError

_PRIVATE = 0o700


def private_folder(purpose: str) -> Path:
    """`suiro-PURPOSE-UID`, made if need be. Raises UsageError where something else has the name, and OSError."""
    folder = Path(tempfile.gettempdir()) / f"suiro-{purpose}-{os.getuid()}"
    with suppress(FileExistsError):
        folder.mkdir(mode=_PRIVATE, parents=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid():
        raise UsageError(
            f"{folder} is not a directory of this user (its owner has user id {found.st_uid}), so nothing is kept in "
            "it: remove it, or set staging.dir (of the sink) or TMPDIR to a directory that others cannot write to"
        )
    if stat.S_IMODE(found.st_mode) != _PRIVATE:
        folder.chmod(_PRIVATE)
    return folder
