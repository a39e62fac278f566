"""Packages that are not there, for whatever Python starts with this folder on PYTHONPATH: its children too.

SUIRO_TEST_ABSENT names them. Importing one fails as it does where it is not installed.
"""

import os
import sys
from importlib.abc import MetaPathFinder

_ABSENT = frozenset(filter(None, os.environ.get("SUIRO_TEST_ABSENT", "").split(",")))


class _Absent(MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name in _ABSENT:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
        return


sys.meta_path.insert(0, _Absent())
