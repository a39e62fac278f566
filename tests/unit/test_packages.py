"""What a release consists of: the wheel, the source distribution, and what is in them."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tarfile
import tomllib
import zipfile
from email.parser import HeaderParser
from pathlib import Path

import pyspark
import pytest

import suiro
from tools import packages
from tools.packages import ROOT, PackageError, Packages

EPOCH = 1_700_000_000


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Packages:
    return packages.build(ROOT, tmp_path_factory.mktemp("built"), epoch=EPOCH)


def test_the_packages_hold_the_sources_and_nothing_else(built: Packages) -> None:
    assert packages.missing_and_unexpected(built, ROOT) == []


@pytest.mark.parametrize(
    "name",
    [
        "suiro/py.typed",
        "suiro/spark/log4j2.properties",
        "suiro/console/web/page/index.html",
        "suiro/console/web/page/vendor/preact.js",
        "suiro/console/web/page/vendor/LICENSES",
        "suiro/log/cleaning_kernels.py",
        "suiro/registry/formats/protos/confluent/meta.proto",
    ],
)
def test_the_wheel_has_what_is_no_module_of_python(built: Packages, name: str) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        assert archive.getinfo(name) is not None


def test_a_file_that_is_lost_on_the_way_is_named(built: Packages, tmp_path: Path) -> None:
    wheel = tmp_path / built.wheel.name
    with zipfile.ZipFile(built.wheel) as archive, zipfile.ZipFile(wheel, "w") as changed:
        for name in archive.namelist():
            if name != "suiro/py.typed" and not name.endswith("/licenses/LICENSE"):
                changed.writestr(name, archive.read(name) + b"#" * (name == "suiro/clock.py"))
        changed.writestr("suiro/notes.txt", b"")
    assert packages.missing_and_unexpected(Packages(sdist=built.sdist, wheel=wheel), ROOT) == [
        "the wheel lacks suiro/py.typed",
        "the wheel has suiro/notes.txt, which is not of the sources",
        "the wheel has suiro/clock.py with other content",
        "the wheel lacks licenses/LICENSE of its description",
    ]


def test_times_in_the_packages_are_those_of_the_commit(built: Packages) -> None:
    with zipfile.ZipFile(built.wheel) as archive:
        assert {entry.date_time[:3] for entry in archive.infolist()} == {(2023, 11, 14)}
    with tarfile.open(built.sdist) as archive:
        assert {member.mtime for member in archive} == {EPOCH}


def test_the_version_has_one_source(built: Packages, tmp_path: Path) -> None:
    printed = subprocess.run([sys.executable, "-m", "suiro", "--version"], capture_output=True, text=True, check=True)
    assert printed.stdout.strip() == suiro.__version__ == packages.version_of(built.wheel)
    assert f"suiro-{suiro.__version__}" in built.sdist.name
    assert suiro.__version__ not in (ROOT / "pyproject.toml").read_text(encoding="utf-8")


def test_the_description_is_one_that_an_index_shows(built: Packages) -> None:
    check = [sys.executable, "-m", "twine", "check", "--strict", built.sdist, built.wheel]
    done = subprocess.run(check, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    with zipfile.ZipFile(built.wheel) as archive:
        (name,) = (name for name in archive.namelist() if name.endswith("/METADATA"))
        about = HeaderParser().parsestr(archive.read(name).decode())
    assert about["License-Expression"] == "Apache-2.0 AND MIT"
    assert about["Requires-Python"] == ">=3.11"


def test_a_build_does_not_mix_with_an_earlier_one(built: Packages, tmp_path: Path) -> None:
    shutil.copy(built.wheel, tmp_path)
    with pytest.raises(PackageError, match="is not empty"):
        packages._build(ROOT, tmp_path, epoch=EPOCH)


def test_the_oldest_protobuf_runs_the_code_that_pyspark_brings() -> None:
    """Code that protoc has made refuses a runtime that is older than the compiler."""
    generated = Path(pyspark.__file__).parent / "sql" / "streaming" / "proto" / "StateMessage_pb2.py"
    made_by = re.search(r"ValidateProtobufRuntimeVersion\(\s*[\w.]+,\s*(\d+),\s*(\d+),\s*(\d+)", generated.read_text())
    assert made_by is not None
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (lowest,) = (re.search(r">=([\d.]+)", entry) for entry in extras["spark"] if entry.startswith("protobuf"))
    assert lowest is not None
    assert tuple(map(int, lowest[1].split("."))) >= tuple(map(int, made_by.groups()))
