"""The suites on every Python that this machine has, and with the oldest dependencies that we claim to work with.

    make pythons                  all of it, which takes an hour or two: it is not part of `make test`
    nox -s tests-3.13             unit, property and contract suites on one Python
    nox -s spark-3.11 spark-3.14  Spark's on the oldest and the newest
    nox -s lowest                 each direct dependency in the lowest version that pyproject.toml allows

A Python that is not there is skipped, and said so. Arguments behind `--` go to pytest.
"""

from __future__ import annotations

import re
import shutil
from pathlib import Path

import nox

PYTHONS = ["3.11", "3.12", "3.13", "3.14"]
SUITES = ("tests/unit", "tests/properties", "tests/contract")
LOWEST = Path("build") / "lowest.txt"
# What runs the suites. It is not what users install, so it has no lowest versions to prove.
TOOLS = (
    *(
        "aiokafka",
        "authlib",
        "cachetools",
        "flask",
        "flask-cors",
        "greenlet",
        "grpcio",
        "grpcio-status",
        "hypothesis",
    ),
    *(
        "build",
        "hatchling",
        "import-linter",
        "kubernetes-validate",
        "lz4",
        "moto[s3]",
        "pytest",
        "pytest-timeout",
    ),
    *("pytest-xdist", "python-snappy"),
)
# Their tools require later versions of what the project requires, and a release is made with the latest anyway.
OF_RELEASES = ("tests/unit/test_licences.py", "tests/unit/test_release.py")

nox.options.default_venv_backend = "uv" if shutil.which("uv") else "virtualenv"
nox.options.error_on_missing_interpreters = False
nox.options.reuse_existing_virtualenvs = True
nox.options.sessions = ["tests", "spark", "lowest"]


@nox.session(python=PYTHONS)
def tests(session: nox.Session) -> None:
    session.install("-c", "constraints.txt", "-e", ".[dev]")
    _pytest(session, "-m", "not soak and not spark and not kafka", *SUITES)


@nox.session(python=[PYTHONS[0], PYTHONS[-1]])
def spark(session: nox.Session) -> None:
    """On the oldest and the newest."""
    session.install("-c", "constraints.txt", "-e", ".[dev]")
    _pytest(session, "tests/spark")


@nox.session(python=PYTHONS[0])
def lowest(session: nox.Session) -> None:
    LOWEST.parent.mkdir(exist_ok=True)
    resolve = ["pip", "compile", "--quiet", "--no-header", "--resolution", "lowest-direct", "--all-extras"]
    resolve += ["--annotation-style", "line", "--python-version", PYTHONS[0]]
    described = _without_dev(LOWEST.parent)
    session.run("uv", *resolve, "--output-file", str(LOWEST), str(described), external=True)
    # What the project itself requires is at its lowest. What that and the tools require in turn is of today.
    lines = LOWEST.read_text(encoding="utf-8").splitlines()
    direct = [line.split()[0] for line in lines if "suiro" in line.partition("#")[2]]
    LOWEST.write_text("\n".join(re.sub(r"\[.*?\]", "", line) for line in direct), encoding="utf-8")
    session.install("-c", str(LOWEST), "-e", ".[all]", *TOOLS)
    without = [f"--ignore={name}" for name in OF_RELEASES]
    _pytest(session, "-m", "not soak and not spark and not kafka", *without, *SUITES)


def _without_dev(folder: Path) -> Path:
    """The project's description without what only development needs."""
    lines = Path("pyproject.toml").read_text(encoding="utf-8").splitlines(keepends=True)
    begin = lines.index("dev = [\n")
    end = lines.index("]\n", begin)
    made = folder / "lowest"
    made.mkdir(exist_ok=True)
    (made / "pyproject.toml").write_text("".join(lines[:begin] + lines[end + 1 :]), encoding="utf-8")
    return made / "pyproject.toml"


def _pytest(session: nox.Session, *arguments: str) -> None:
    session.run("python", "-m", "pytest", "-q", *arguments, *session.posargs)
