"""An archive of the classes that Apache Kafka loads, with which its brokers and tools start in less time.

Java reads and checks some thousand classes of Kafka at every start, of which a run of the tests has dozens. The
broker of a session writes them down where no session before has (class data sharing, JEP 350). Java itself compares the
jars and its own version, and goes on without an archive that is of others.
"""

from __future__ import annotations

import hashlib
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from suiro.kafka import KAFKA_VERSION, KafkaProcess, process
from support.waiting import wait_until

ENDED_AS_ASKED = 143
# Where an archive is of other jars, Java says so on standard output.
SILENT = ("-Xshare:auto", "-Xlog:cds=off", "-Xlog:cds+dynamic=off")


def options() -> tuple[str, ...]:
    """Of Java; none if there is no archive."""
    archive = _place()
    return (f"-XX:SharedArchiveFile={archive}", *SILENT) if archive.exists() else ()


def use() -> None:
    """From now on, in this process."""
    process.LOGGING_OPTIONS = (*process.LOGGING_OPTIONS, *options())


@contextmanager
def broker(folder: Path, settings: Mapping[str, str]) -> Iterator[KafkaProcess]:
    """A broker for a session, which leaves the archive to later ones where there is none."""
    archive = _place()
    if archive.exists():
        with killed(folder, settings=settings) as started:
            yield started
        return
    before, fresh = process.LOGGING_OPTIONS, archive.with_suffix(f".{os.getpid()}")
    process.LOGGING_OPTIONS = (*before, f"-XX:ArchiveClassesAtExit={fresh}", *SILENT)
    try:
        started = KafkaProcess.start(folder, settings=settings)
    finally:
        process.LOGGING_OPTIONS = before
    yield started
    started.ask_to_stop()
    wait_until(lambda: started.exit_code is not None, 60, "the archive of Kafka's classes")
    # Java crashes on a part of one.
    if started.exit_code == ENDED_AS_ASKED and fresh.exists():
        fresh.replace(archive)
    started.kill()


@contextmanager
def killed(folder: Path, **options: Any) -> Iterator[KafkaProcess]:
    """A broker that is killed in the end: a clean stop takes seconds, and nobody reads what it would write."""
    started = KafkaProcess.start(folder, **options)
    try:
        yield started
    finally:
        started.kill()


def _place() -> Path:
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suiro"
    java = shutil.which("java", path=f"{os.environ.get('JAVA_HOME', '')}/bin{os.pathsep}{os.environ['PATH']}")
    jars = cache / f"kafka-{KAFKA_VERSION}"
    made = jars.stat().st_mtime_ns if jars.exists() else 0
    of = hashlib.sha256(f"{os.path.realpath(java or '')} {jars} {made}".encode()).hexdigest()[:16]
    return cache / f"kafka-{KAFKA_VERSION}-{of}.jsa"
