"""How large an installation is, how long it takes, and how soon it answers: suiro's extras beside other packages.

    python tools/install_sizes.py [--installer uv] [--once] [NAME...]

Each is installed into an empty virtual environment, from the installer's cache: the first installation fills it, the
second is timed, with the making of the environment. With --once the first one is, with what it downloads. Sizes are
what the packages take on the disk with byte code, and neither pip nor Python. A node is started twice: the first start
of an environment may have to write byte code. Imports are the quickest of three, in processes of their own.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[1]
EXTRAS = (
    "",
    "telemetry",
    "oauth",
    "console-oidc",
    "registry",
    "lake",
    "capture",
    "connect",
    "spark",
    "demo",
    "all",
)
PEERS = {
    "quixstreams": "quixstreams",
    "faust-streaming": "faust",
    "bytewax": "bytewax.dataflow",
    "confluent-kafka pyspark": "confluent_kafka, pyspark.sql",
}
IMPORTS = ("suiro.streams", "suiro.client", "suiro.testing")
TRIES = 3


@dataclass(frozen=True, slots=True, kw_only=True)
class Measured:
    name: str
    size_mb: float
    install_s: float
    node_s: tuple[float, float] | None
    imports_s: dict[str, float]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--installer", choices=("pip", "uv"), default="pip")
    parser.add_argument("--once", action="store_true", help="time the first installation")
    parser.add_argument("names", nargs="*", metavar="NAME", help="suiro, suiro[EXTRA], or a package; default: all")
    options = parser.parse_args()
    names = [f"suiro[{extra}]" if extra else "suiro" for extra in EXTRAS] + list(PEERS)
    print(
        f"Python {platform.python_version()}, {options.installer}, {os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f}"
    )
    print("| installed | MB | seconds | node answers after (first, then) | imports |")
    print("|---|---|---|---|---|")
    with tempfile.TemporaryDirectory(prefix="suiro-sizes-") as folder:
        wheel = _wheel(Path(folder))
        for name in options.names or names:
            print(_row(_measured(name, wheel, Path(folder), options.installer, once=options.once)), flush=True)


def _row(found: Measured) -> str:
    node = "" if found.node_s is None else " s, ".join(f"{one:.2f}" for one in found.node_s) + " s"
    imports = ", ".join(f"`{name}` {seconds:.2f} s" for name, seconds in found.imports_s.items())
    size = f"{found.size_mb:.1f}" if found.size_mb < 100 else f"{found.size_mb:.0f}"
    return f"| {found.name} | {size} | {found.install_s:.0f} | {node} | {imports} |"


def _wheel(folder: Path) -> Path:
    build: list[str | Path] = [
        sys.executable,
        "-m",
        "build",
        "--wheel",
        "--no-isolation",
        "--outdir",
        folder,
        ROOT,
    ]
    subprocess.run(build, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    (wheel,) = folder.glob("*.whl")
    return wheel


def _measured(name: str, wheel: Path, folder: Path, installer: str, *, once: bool) -> Measured:
    wanted = [f"{wheel}{name.removeprefix('suiro')}"] if name.startswith("suiro") else name.split()
    for attempt in ("timed",) if once else ("first", "timed"):
        environment = folder / f"{attempt}-{abs(hash(name))}"
        begun = time.perf_counter()
        _install(wanted, environment, installer)
        seconds = time.perf_counter() - begun
    python = environment / "bin" / "python"
    modules = IMPORTS if name.startswith("suiro") else (PEERS.get(name, ""),)
    size = _size(environment)
    return Measured(
        name=name,
        size_mb=size / 1e6,
        install_s=seconds,
        node_s=(_answered(environment), _answered(environment)) if name.startswith("suiro") else None,
        imports_s={module: _imported(python, module) for module in modules if module},
    )


def _install(wanted: Sequence[str], environment: Path, installer: str) -> None:
    python = environment / "bin" / "python"
    if installer == "uv":
        uv = (sys.executable, "-m", "uv")
        commands: list[list[str | Path]] = [
            [*uv, "venv", "--quiet", "--python", sys.executable, environment],
            [*uv, "pip", "install", "--quiet", "--compile-bytecode", "--python", python, *wanted],
        ]
    else:
        commands = [
            [sys.executable, "-m", "venv", environment],
            [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *wanted],
        ]
    for command in commands:
        subprocess.run(command, check=True)


def _size(environment: Path) -> int:
    """Bytes on the disk of what was installed."""
    (packages,) = environment.glob("lib/python*/site-packages")
    not_ours = {"pip", "setuptools", "pkg_resources", "_distutils_hack"}
    return sum(
        path.lstat().st_blocks * 512
        for place in packages.iterdir()
        if place.name.split("-")[0] not in not_ours
        for path in (place, *place.rglob("*"))
    )


def _answered(environment: Path) -> float:
    """Seconds until a node says that it answers."""
    command: list[str | Path] = [environment / "bin" / "suiro", "node", "--listen", "127.0.0.1:0"]
    begun = time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL) as process:
        assert process.stdout is not None
        ready = process.stdout.readline()
        seconds = time.perf_counter() - begun
        process.terminate()
    assert json.loads(ready)["event"] == "ready"
    return seconds


def _imported(python: Path, modules: str) -> float:
    code = f"import time; begun = time.perf_counter(); import {modules}; print(time.perf_counter() - begun)"
    found = [subprocess.run([python, "-c", code], check=True, capture_output=True, text=True) for _ in range(TRIES)]
    return min(float(one.stdout.splitlines()[-1]) for one in found)


if __name__ == "__main__":
    main()
