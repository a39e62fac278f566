"""kafka-python's own integration suite against the node: what passes on Apache Kafka 4.3 passes here.

The suite comes with kafka-python's source distribution. It is downloaded by name and version when it is first needed,
kept beside Kafka's jars in the cache, and run in a process of its own, as it is;
`support/kafka_python_broker.py` puts our broker in the place of the one that it would start.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
from importlib.metadata import version
from pathlib import Path
from xml.etree import ElementTree

import pytest
from support.share import IS_WHOLE

TESTS = Path(__file__).parent.parent
SUITE_TIMEOUT_S = 600

STRUCK: dict[str, str] = {}
"""Tests that pass on Apache Kafka and not on the node, each with its reason."""


@pytest.fixture(scope="module")
def suite() -> Path:
    """The unpacked source distribution."""
    release = version("kafka-python")
    cache = Path.home() / ".cache" / "suiro"
    folder = cache / f"kafka-python-{release}"
    if (folder / "test" / "integration").is_dir():
        return folder
    download = cache / f"kafka-python-{release}.{os.getpid()}"
    command = [sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check"]
    command += ["--no-deps", "--no-binary", "kafka-python", "--dest", str(download)]
    done = subprocess.run(
        [*command, f"kafka-python=={release}"], capture_output=True, text=True, timeout=300, check=False
    )
    if done.returncode != 0:
        pytest.skip(f"kafka-python's source distribution cannot be downloaded here: {done.stderr[-300:]}")
    (archive,) = download.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        packed.extractall(download, filter="data")
    (unpacked,) = (path for path in download.iterdir() if path.is_dir())
    shutil.rmtree(folder, ignore_errors=True)
    unpacked.rename(folder)
    shutil.rmtree(download)
    return folder


def run(suite: Path, subject: str, report: Path) -> tuple[dict[str, str], str]:
    """Each test's outcome ("passed", "skipped", or the first line of its failure), and what pytest printed.

    Those that failed are run a second time, alone: some give a consumer 2 s of wall time to join and to read, which
    is little on a machine that runs other tests beside.
    """
    outcomes, printed = _run(suite, subject, report)
    if any(told not in ("passed", "skipped") for told in outcomes.values()):
        again, printed = _run(suite, subject, report.with_suffix(".again.xml"), "--last-failed")
        outcomes |= again
    return outcomes, printed


def _run(suite: Path, subject: str, report: Path, *only: str) -> tuple[dict[str, str], str]:
    command = [sys.executable, "-m", "pytest", "-p", "support.kafka_python_broker"]
    command += ["-o", f"cache_dir={report.parent / 'cache'}", *only]
    if not IS_WHOLE:  # one of three mechanisms, each of which starts commands
        command += ["-k", "not SCRAM-SHA-512 and not PLAIN"]
    command += ["test/integration", "-q", "--show-capture=no", "--timeout=90", f"--junitxml={report}"]
    done = subprocess.run(
        command,
        cwd=suite,
        env={
            **os.environ,
            "SUIRO_SUBJECT": subject,
            "KAFKA_VERSION": "4.3.1",
            "PYTHONPATH": os.pathsep.join((str(suite), str(TESTS))),
        },
        capture_output=True,
        text=True,
        timeout=SUITE_TIMEOUT_S,
        check=False,
    )
    assert report.exists(), done.stdout[-3000:] + done.stderr[-3000:]
    outcomes = {}
    for case in ElementTree.parse(report).iter("testcase"):
        bad = [entry for entry in case if entry.tag in ("failure", "error")]
        skipped = any(entry.tag == "skipped" for entry in case)
        told = (bad[0].get("message") or "failed").splitlines()[0] if bad else ""
        name = f"{case.get('classname', '').rpartition('integration.')[2]}::{case.get('name')}"
        outcomes[name] = told or ("skipped" if skipped else "passed")
    return outcomes, done.stdout


def check(outcomes: dict[str, str], printed: str) -> None:
    failed = {name: told for name, told in outcomes.items() if told not in ("passed", "skipped")}
    passed = [name for name, told in outcomes.items() if told == "passed"]
    assert not set(failed) - set(STRUCK), f"{failed}\n{printed[-6000:]}"
    assert not set(passed) & set(STRUCK), "struck off, and passing: take it off the list"
    assert len(passed) >= (60 if IS_WHOLE else 50), f"the suite has shrunk: {outcomes}"


@pytest.mark.sampled
@pytest.mark.timeout(SUITE_TIMEOUT_S)
def test_on_the_node(suite: Path, tmp_path: Path) -> None:
    check(*run(suite, "node", tmp_path / "report.xml"))


@pytest.mark.soak
@pytest.mark.kafka
def test_on_apache_kafka(suite: Path, tmp_path: Path) -> None:
    """The reference run: it tells a change of the suite from a fault of ours."""
    outcomes, printed = run(suite, "kafka", tmp_path / "report.xml")
    check({name: told for name, told in outcomes.items() if name not in STRUCK}, printed)
