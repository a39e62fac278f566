"""Who runs the process."""

from __future__ import annotations

import os
import pwd

import pytest

from suiro.views import Views


def test_a_user_without_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Containers run under numbers that no file knows."""

    def unknown(number: int) -> pwd.struct_passwd:
        raise KeyError(f"getpwuid(): uid not found: {number}")

    monkeypatch.setattr(pwd, "getpwuid", unknown)
    for name in ("LOGNAME", "USER", "LNAME", "USERNAME"):
        monkeypatch.delenv(name, raising=False)
    with Views("http://127.0.0.1:1") as views:
        assert views._who.startswith(f"{os.getuid()}@")
