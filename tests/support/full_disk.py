"""A disk without room, in the place of any function that writes."""

from __future__ import annotations

import errno
import os
from typing import Any


def no_space(*_: object, **__: object) -> Any:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
