"""Passwords that commands ask for, on a terminal and elsewhere."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from support.commands import suiro

TIMEOUT_S = 60


class _AtATerminal:
    """`suiro registry --hash-password` before a terminal, up to its first question."""

    def __init__(self) -> None:
        self._terminal, theirs = os.openpty()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "suiro", "registry", "--hash-password"],
            stdin=theirs,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        os.close(theirs)
        assert self.process.stderr.read(len("password: ")) == b"password: "

    def ended(self, typed: bytes, again: bytes | None = None) -> tuple[int, bytes, bytes]:
        assert self.process.stderr is not None
        try:
            os.write(self._terminal, typed)
            if again is not None:  # what is typed before the question is thrown away
                assert self.process.stderr.read(len("\nagain: ")) == b"\nagain: "
                os.write(self._terminal, again)
            out, err = self.process.communicate(timeout=TIMEOUT_S)
        finally:
            self.process.kill()
            os.close(self._terminal)
        return self.process.returncode, out, err.strip()


def test_a_password_that_is_hashed_is_asked_for_twice() -> None:
    code, out, err = _AtATerminal().ended(b"one\n", b"two\n")
    assert (code, out) == (1, b"")
    assert err.endswith(b"suiro registry: the two passwords differ; nothing was done")
    code, out, _ = _AtATerminal().ended(b"one\n", b"one\n")
    assert (code, out[:7]) == (0, b"scrypt:")


def test_the_end_of_input_is_no_password() -> None:
    code, out, err = _AtATerminal().ended(b"\x04")
    assert (code, out) == (1, b"")
    assert err.endswith(b"suiro registry: no password was given; nothing was done")


def test_ctrl_c_at_the_question_is_no_success() -> None:
    asked = _AtATerminal()
    asked.process.send_signal(signal.SIGINT)
    code, out, err = asked.ended(b"")
    assert (code, out, err) == (130, b"", b"")


@pytest.mark.parametrize(("given", "said"), [(b"", "empty"), (b"\n", "empty"), (b"\xff\n", "not UTF-8")])
def test_what_is_no_password_is_not_hashed(given: bytes, said: str) -> None:
    done = suiro("registry", "--hash-password", stdin=given)
    assert (done.code, done.out) == (1, "")
    assert said in done.err


def test_blanks_belong_to_a_password(tmp_path: Path) -> None:
    from base64 import b64encode

    from suiro.foundation.http import Users

    path = tmp_path / "users"
    path.write_text("ada:" + suiro("registry", "--hash-password", stdin=" two words \n").out)
    users = Users(path)
    assert users.verify("Basic " + b64encode(b"ada: two words ").decode()).name
    assert not users.verify("Basic " + b64encode(b"ada:two words").decode()).name
