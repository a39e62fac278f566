"""Memory and open files of processes while they live: what each had when it was warm, at most and last. Reads /proc."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from suiro.demo.processes import Session

WARM_S = 90
"""So long a process takes what it needs: imports, the JVM's heap, buffers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sample:
    memory_mb: float
    files: int


@dataclass(slots=True, kw_only=True)
class Life:
    """Of one process, or of all the Python workers of one driver."""

    who: str
    pid: int
    born: float
    warm: Sample | None = None
    warm_at: float = 0.0
    last: Sample | None = None
    last_at: float = 0.0
    most_mb: float = 0.0

    def add(self, sample: Sample, now: float) -> None:
        if self.warm is None and now - self.born >= WARM_S:
            self.warm, self.warm_at = sample, now
        self.last, self.last_at = sample, now
        self.most_mb = max(self.most_mb, sample.memory_mb)

    @property
    def watched_s(self) -> float:
        return self.last_at - self.warm_at if self.warm is not None else 0.0


class Lives:
    def __init__(self) -> None:
        self._lives: dict[tuple[str, int], Life] = {}

    def add(self, who: str, pid: int, sample: Sample | None, now: float) -> None:
        if sample is not None:
            self._lives.setdefault((who, pid), Life(who=who, pid=pid, born=now)).add(sample, now)

    def longest(self) -> list[Life]:
        """The one of each kind that was watched for longest."""
        found: dict[str, Life] = {}
        for life in self._lives.values():
            if life.warm is not None and life.watched_s > getattr(found.get(life.who), "watched_s", -1):
                found[life.who] = life
        return [found[who] for who in sorted(found)]


def sample_of(pids: Iterable[int]) -> Sample | None:
    """Their sum, what they share counted once (PSS); None where none of them is there."""
    memory, files, there = 0, 0, False
    for pid in pids:
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
            files += len(os.listdir(f"/proc/{pid}/fd"))
        except OSError:
            continue
        memory += next((int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")), 0)
        there = True
    return Sample(memory_mb=memory / 1024, files=files) if there else None


def members(session: Session) -> dict[str, list[int]]:
    """The processes of a driver's session: "driver" (its Python), "jvm", "daemon" (which forks others)
    and "worker" (of tasks, of commits, of planning)."""
    found: dict[str, list[int]] = {"driver": [], "jvm": [], "daemon": [], "worker": []}
    parents: dict[int, int] = {}
    forked = []
    for pid in session.members():
        try:
            command = Path(f"/proc/{pid}/cmdline").read_bytes()
            parents[pid] = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
        if pid == session.pid:
            found["driver"].append(pid)
        elif b"org.apache.spark.deploy.SparkSubmit" in command:
            found["jvm"].append(pid)
        elif b"python_stub" in command:
            continue
        elif any(name in command for name in (b"python_server", b"_daemon", b"pyspark.daemon", b"sql.streaming")):
            forked.append(pid)  # or started plainly, where the server was killed
    forking = {parents[pid] for pid in forked}
    for pid in forked:
        found["daemon" if pid in forking else "worker"].append(pid)
    return found
