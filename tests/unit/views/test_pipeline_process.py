"""What a host makes of a pipeline that ends without a word."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from support.waiting import wait_until

from suiro.views.pipeline.process import PipelineProcess


@pytest.mark.parametrize(
    ("ending", "said", "is_transient"),
    [
        (
            "os.kill(os.getpid(), signal.SIGKILL)",
            "was ended by signal 9",
            True,
        ),  # says nothing about the version
        ("sys.exit(3)", "ended with code 3", False),
    ],
)
def test_it_failed_but_only_its_own_end_counts(ending: str, said: str, is_transient: bool) -> None:
    process = subprocess.Popen(
        [sys.executable, "-c", f"import os, signal, sys; {ending}"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
    )
    pipeline = PipelineProcess(process)
    wait_until(lambda: pipeline.status.state == "failed", what="its end to be heard of")
    assert said in (pipeline.status.error or "")
    assert pipeline.status.is_transient is is_transient
    pipeline.stop()


def test_what_the_code_has_forked_keeps_no_pipeline(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """In a session of its own, it has the pipe of the events. The host could not stop the version."""
    monkeypatch.setattr("suiro.views.pipeline.supervision.LAST_EVENT_S", 0.1)
    script = "setsid sh -c 'echo $$ > alone; exec sleep 600' & exec sleep 600"
    pipeline = PipelineProcess(
        subprocess.Popen(
            ["sh", "-c", script],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            cwd=tmp_path,
            start_new_session=True,
        )
    )
    alone = int(wait_until(lambda: (tmp_path / "alone").exists() and (tmp_path / "alone").read_text()))
    stopping = threading.Thread(target=pipeline.stop, daemon=True)
    try:
        stopping.start()
        stopping.join(20)
        assert not stopping.is_alive()
        assert (pipeline.status.state, pipeline.status.is_transient) == ("failed", True)
    finally:
        os.kill(alone, signal.SIGKILL)
