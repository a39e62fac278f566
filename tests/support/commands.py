"""The command `suiro`, called in this process or in one of its own."""

from __future__ import annotations

import contextlib
import io
import json
import os
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from unittest import mock

from suiro.cli import main

TIMEOUT_S = 120


@dataclass(frozen=True, slots=True)
class Done:
    code: int
    out: str
    err: str

    @property
    def output(self) -> str:
        return self.out + self.err

    @property
    def json(self) -> Any:
        assert self.code == 0, self
        return json.loads(self.out)

    @property
    def rows(self) -> list[list[str]]:
        """A table without its titles."""
        assert self.code == 0, self
        return [line.split("\t") for line in self.out.splitlines()[1:]]


def suiro(*arguments: str, stdin: str | bytes = "", env: Mapping[str, str] | None = None) -> Done:
    """In this process; nothing of it is a terminal."""
    data = stdin.encode() if isinstance(stdin, str) else stdin
    out, err = io.StringIO(), io.StringIO()
    code: Any = 0
    with (
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(err),
        mock.patch.object(sys, "argv", ["suiro", *arguments]),
        mock.patch.object(sys, "stdin", io.TextIOWrapper(io.BytesIO(data), encoding="utf-8")),
        mock.patch.dict(os.environ, {**_NOBODY, **(env or {})}),
    ):
        try:
            main()
        except SystemExit as stop:
            code = stop.code
    return Done(0 if code is None else int(code), out.getvalue(), err.getvalue())


def suiro_process(*arguments: str, stdin: str = "", env: Mapping[str, str] | None = None) -> Done:
    done = subprocess.run(
        [sys.executable, "-m", "suiro", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
        env={**os.environ, **_NOBODY, **(env or {})},
    )
    return Done(done.returncode, done.stdout, done.stderr)


_NOBODY = {"XDG_CONFIG_HOME": "/nonexistent"}  # not the profiles of whoever runs the tests
