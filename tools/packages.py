"""Builds the source distribution and the wheel, and holds what is in them to the source tree.

The same sources give the same bytes: times in the archives are those of the commit, and a wheel that is built from the
source distribution is the one that is built from the tree.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from dataclasses import dataclass
from email.parser import HeaderParser
from pathlib import Path

ROOT = Path(__file__).parents[1]
BUILD_TIMEOUT_S = 300
_FIRST_ZIP_TIME = 315_532_800
"""1980: a zip file has no times before."""

BESIDE_SOURCES = ("CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml")
"""What the source distribution has beside `src` and `packaging`."""


class PackageError(Exception):
    """What cannot be released, and why."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Packages:
    sdist: Path
    wheel: Path


def build(source: Path, out: Path, *, epoch: int) -> Packages:
    """Both, of the tree in `source`, into `out`. `epoch`: seconds since 1970, the time of all files in them.

    Raises `PackageError` also where the two ways to the wheel differ.
    """
    with tempfile.TemporaryDirectory() as folder:
        straight = Path(folder)
        _build(source, straight, "--wheel", epoch=epoch)
        _build(source, out, epoch=epoch)  # the wheel of this one is built from its source distribution
        (wheel,), (expected,) = out.glob("*.whl"), straight.glob("*.whl")
        if wheel.name != expected.name or wheel.read_bytes() != expected.read_bytes():
            raise PackageError(f"{wheel.name}: built from the source distribution it is another one")
    (sdist,) = out.glob("*.tar.gz")
    return Packages(sdist=sdist, wheel=wheel)


def _build(source: Path, out: Path, *options: str, epoch: int) -> None:
    if out.exists() and any(out.iterdir()):
        raise PackageError(f"{out} is not empty: remove what an earlier build left there")
    done = subprocess.run(
        [sys.executable, "-m", "build", "--no-isolation", "--outdir", out, *options, source],
        capture_output=True,
        text=True,
        check=False,
        timeout=BUILD_TIMEOUT_S,
        env={**os.environ, "SOURCE_DATE_EPOCH": str(max(epoch, _FIRST_ZIP_TIME))},
    )
    if done.returncode != 0:
        raise PackageError(f"{source} cannot be built:\n{done.stdout}{done.stderr}")


def version_of(wheel: Path) -> str:
    with zipfile.ZipFile(wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith(".dist-info/METADATA"))
        return str(HeaderParser().parsestr(archive.read(name).decode())["Version"])


def missing_and_unexpected(packages: Packages, source: Path) -> list[str]:
    """What the packages lack of the source tree, what they have that is not there, and what differs."""
    return [*_of_wheel(packages.wheel, source), *_of_sdist(packages.sdist, source)]


def _of_wheel(wheel: Path, source: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as archive:
        found = {name: archive.read(name) for name in archive.namelist() if ".dist-info/" not in name}
        about = {name.partition(".dist-info/")[2] for name in archive.namelist() if ".dist-info/" in name}
    expected = {
        path.relative_to(source / "src").as_posix(): path.read_bytes() for path in _sources(source / "src" / "suiro")
    }
    licences = {"licenses/LICENSE", "licenses/src/suiro/console/web/page/vendor/LICENSES"}
    lacks = [f"the wheel lacks {name} of its description" for name in sorted(licences - about)]
    return [*_differences("the wheel", found, expected), *lacks]


def _of_sdist(sdist: Path, source: Path) -> list[str]:
    found = {}
    with tarfile.open(sdist) as archive:
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                found[member.name.partition("/")[2]] = stream.read()
    for made in ("PKG-INFO", ".gitignore"):  # hatchling's own, and what it read
        found.pop(made, None)
    paths = [source / name for name in BESIDE_SOURCES]
    paths += [*_sources(source / "src"), *_sources(source / "packaging")]
    expected = {path.relative_to(source).as_posix(): path.read_bytes() for path in paths}
    return _differences("the source distribution", found, expected)


def _sources(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.is_file() and path.parent.name != "__pycache__"]


def _differences(where: str, found: dict[str, bytes], expected: dict[str, bytes]) -> list[str]:
    return [
        *(f"{where} lacks {name}" for name in sorted(expected.keys() - found.keys())),
        *(f"{where} has {name}, which is not of the sources" for name in sorted(found.keys() - expected.keys())),
        *(
            f"{where} has {name} with other content"
            for name in sorted(found.keys() & expected.keys())
            if found[name] != expected[name]
        ),
    ]
