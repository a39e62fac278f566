"""Questions that commands ask before they do what cannot be undone."""

from __future__ import annotations

import io
import sys

import pytest

from suiro.cli.everyday import require_yes


class _Terminal:
    """Answers yes, and keeps what the output had when it was asked."""

    def __init__(self, output: io.BytesIO) -> None:
        self._output = output
        self.seen = b""

    def isatty(self) -> bool:
        return True

    def readline(self) -> str:
        self.seen = self._output.getvalue()
        return "y\n"


def test_what_a_question_is_about_is_there_before_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """`suiro view adopt | tee` asked for a signature, and showed what is signed when it was done."""
    output = io.BytesIO()
    terminal = _Terminal(output)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(output, encoding="utf-8"))
    monkeypatch.setattr(sys, "stdin", terminal)
    print("view orders, version 3: code 5f2a")
    require_yes("Sign this?", False)
    assert terminal.seen == b"view orders, version 3: code 5f2a\n"
