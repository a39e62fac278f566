"""Who runs this process, for lists of changes."""

from __future__ import annotations

import getpass
import os
import socket


def process_user() -> str:
    """NAME@HOST. A user without a name, as containers have them, is called by the number."""
    try:
        name = getpass.getuser()
    except (KeyError, OSError):  # OSError from Python 3.13 on
        name = str(os.getuid())
    return f"{name}@{socket.gethostname()}"
