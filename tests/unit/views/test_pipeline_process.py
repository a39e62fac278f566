"""What a host makes of a pipeline that ends without a word."""

from __future__ import annotations

import subprocess
import sys

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
