"""The whole story on a slice of the year, with all kills; and what it answers to wrong calls."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from suiro.kafka import java_command, kafka_classpath

FLIGHTS = 12_000
REJECTED = 40  # of them; counted in the CSV file
ALERTS = 14
CARRIERS = 15  # one of the 16 flies later in the year
TIMEOUT_S = 1_800


def _demo(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "suiro", "demo", "--plain", *arguments]
    return subprocess.run(command, capture_output=True, text=True, timeout=TIMEOUT_S, check=False)


@pytest.mark.spark
@pytest.mark.timeout(TIMEOUT_S)
@pytest.mark.soak  # `.ci/run` runs the demo on a sample anyway
@pytest.mark.parametrize("log", ["node", pytest.param("kafka", marks=pytest.mark.kafka)])
def test_every_count_adds_up_with_all_kills(log: str, tmp_path: Path) -> None:
    if log == "kafka":
        java_command(), kafka_classpath()
    chosen = ("--kafka",) if log == "kafka" else ()
    done = _demo("--flights", str(FLIGHTS), "--data", str(tmp_path / "demo"), *chosen)
    assert done.returncode == 0, done.stdout + done.stderr
    last = json.loads(done.stdout.splitlines()[-1])
    assert last["ok"] is True
    assert (last["raw"], last["validated"], last["rejected"]) == (FLIGHTS, FLIGHTS - REJECTED, REJECTED)
    assert last["enriched"] == FLIGHTS - REJECTED
    assert (last["lost"], last["duplicates"], last["differences"]) == (0, 0, 0)
    assert last["weather"] == 26_115
    assert last["inserted_live"] == FLIGHTS / 2
    assert last["alerts"] == last["alerts_delivered"] == ALERTS < last["alert_posts"], "an answer gets lost"
    assert (last["capture_kills"], last["driver_kills"], last["node_kills"], last["view_kills"]) == (
        1,
        1,
        1,
        1,
    )
    assert last["rows_equal"] + last["rows_differing"] == last["carriers"] == CARRIERS
    assert last["rows_differing"] >= last["differences_explained"] == last["differences_to_explain"] > 0
    assert last["rebuilt_records"] >= FLIGHTS * 0.85
    assert last["rollback_ms"] < 1_000
    assert last["reads"] > 0
    assert last["read_errors"] == 0
    assert last["aborted_never_seen"] > 0, "a kill in a transaction leaves aborted records behind"
    data = tmp_path / "demo" / ("kafka/data" if log == "kafka" else "node")
    assert (data / "nyc.public.flights-0").is_dir()
    assert "Where to look next" in done.stdout


def test_a_directory_in_use_is_refused(tmp_path: Path) -> None:
    (tmp_path / "something").touch()
    done = _demo("--data", str(tmp_path))
    assert done.returncode == 1
    assert "is not empty" in done.stderr


def test_two_logs_at_once_are_refused() -> None:
    done = _demo("--kafka", "--bootstrap-servers", "127.0.0.1:1")
    assert done.returncode == 2
    assert "not both" in " ".join(done.stderr.replace("│", " ").split())
