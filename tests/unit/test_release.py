"""A release is made of a checkout that says what it is, and of no other; here without tests, tag, and network."""

from __future__ import annotations

import hashlib
import json
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest
from packaging.version import Version

from tools import licences, release
from tools.packages import BESIDE_SOURCES, ROOT
from tools.release import ReleaseError

VERSION = Version("97.0.0")


def _git(checkout: Path, *arguments: str) -> str:
    command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", "-c", "commit.gpgsign=false"]
    done = subprocess.run([*command, *arguments], cwd=checkout, check=True, capture_output=True, text=True)
    return done.stdout.strip()


def _commit(checkout: Path) -> None:
    _git(checkout, "add", "--all")
    _git(checkout, "commit", "--quiet", "--allow-empty", "--message", "A change.")


def _change(path: Path, old: str, new: str) -> None:
    text = path.read_text(encoding="utf-8")
    assert old in text
    path.write_text(text.replace(old, new, 1), encoding="utf-8")


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """What a release is made of, small, with a commit that is ready for VERSION."""
    folder = tmp_path / "checkout"
    (folder / "src" / "suiro").mkdir(parents=True)
    shutil.copy(ROOT / "src" / "suiro" / "__init__.py", folder / "src" / "suiro")
    changelog = "# Changelog\n\n## Unreleased\n\n- It is faster.\n\n## 96.0.0 (2026-01-01)\n\n- It is there.\n"
    (folder / "CHANGELOG.md").write_text(changelog)
    (folder / ".gitignore").write_text("dist/\nbuild/\n")
    _git(folder, "init", "--quiet")
    _commit(folder)
    assert release.main(["prepare", str(VERSION), "--source", str(folder)]) == 0
    _commit(folder)
    return folder


def test_a_dry_run_makes_every_file_of_a_release(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    # The tests also run with other versions than those that a release is made with.
    monkeypatch.setattr(release, "other_versions", lambda *_: [])
    whole = tmp_path / "whole"
    unwanted = shutil.ignore_patterns("__pycache__")
    for name in ("src", "packaging"):
        shutil.copytree(ROOT / name, whole / name, ignore=unwanted)
    for name in (*BESIDE_SOURCES, ".gitignore"):
        shutil.copy(ROOT / name, whole)
    _git(whole, "init", "--quiet")
    _change(whole / "CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- Something new.\n")
    assert release.main(["prepare", str(VERSION), "--source", str(whole)]) == 0
    _commit(whole)

    out = whole / "build" / "dry-run"
    out.mkdir(parents=True)
    (out / "of-an-earlier-run").touch()
    made = release.main(["make", str(VERSION), "--source", str(whole), "--dry-run", "--offline"])
    assert made == 0, capsys.readouterr().err
    names = {path.name for path in out.iterdir()}
    expected = {"suiro-97.0.0.tar.gz", "suiro-97.0.0-py3-none-any.whl", "suiro-97.0.0.cdx.json"}
    assert names == {*expected, "SHA256SUMS"}
    for line in (out / "SHA256SUMS").read_text().splitlines():
        digest, name = line.split("  ")
        assert hashlib.sha256((out / name).read_bytes()).hexdigest() == digest
    materials = json.loads((out / "suiro-97.0.0.cdx.json").read_text())
    assert materials["metadata"]["component"]["version"] == "97.0.0"
    assert _git(whole, "tag", "--list") == ""
    assert _git(whole, "status", "--porcelain") == ""
    assert "git push REMOTE v97.0.0" in capsys.readouterr().out


def test_prepare_writes_version_and_heading(checkout: Path) -> None:
    assert '__version__ = "97.0.0"' in (checkout / "src" / "suiro" / "__init__.py").read_text()
    changelog = (checkout / "CHANGELOG.md").read_text()
    assert release._section(changelog, "Unreleased") == ""
    heading = next(text for text in release._HEADING.findall(changelog) if text.startswith("97.0.0 ("))
    assert release._section(changelog, heading) == "- It is faster."
    assert release._section(changelog, "96.0.0 (2026-01-01)") == "- It is there."
    release.check_source(checkout, VERSION)


def test_the_version_between_releases_has_no_heading(checkout: Path) -> None:
    before = (checkout / "CHANGELOG.md").read_text()
    release.prepare(checkout, "98.0.0.dev0")
    assert (checkout / "CHANGELOG.md").read_text() == before
    assert '__version__ = "98.0.0.dev0"' in (checkout / "src" / "suiro" / "__init__.py").read_text()
    with pytest.raises(ReleaseError, match="between releases"):
        release.make(checkout, "98.0.0.dev0", out=None, is_dry=True, is_offline=True)


def test_a_release_of_nothing_is_not_prepared(checkout: Path) -> None:
    with pytest.raises(ReleaseError, match="nothing under Unreleased"):
        release.prepare(checkout, "98.0.0")


@pytest.mark.parametrize(
    ("path", "old", "new", "message"),
    [
        ("src/suiro/__init__.py", '"97.0.0"', '"97.0.1"', "the source says 97.0.1, not 97.0.0"),
        ("CHANGELOG.md", "## 97.0.0 (", "## 97.0.2 (", "has no section '## 97.0.0"),
        ("CHANGELOG.md", "- It is faster.", "", "says nothing under 97.0.0"),
        ("CHANGELOG.md", "## Unreleased\n", "## Unreleased\n\n- More.\n", "entries under Unreleased"),
    ],
    ids=["version", "heading", "entries", "unreleased"],
)
def test_a_commit_that_says_something_else_is_refused(
    checkout: Path, path: str, old: str, new: str, message: str
) -> None:
    _change(checkout / path, old, new)
    with pytest.raises(ReleaseError, match="in no commit"):
        release.check_source(checkout, VERSION)
    _commit(checkout)
    with pytest.raises(ReleaseError, match=message):
        release.check_source(checkout, VERSION)


def test_a_version_is_released_once(checkout: Path) -> None:
    _git(checkout, "tag", "v97.0.0")
    with pytest.raises(ReleaseError, match=r"v97\.0\.0 is a tag already"):
        release.check_source(checkout, VERSION)


@pytest.mark.parametrize("text", ["v97.0.0", "97.0.0-rc1", "97.0.0+mine", "next"])
def test_what_is_no_version_of_python_is_refused(text: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert release.main(["make", text, "--dry-run", "--offline"]) == 1
    assert capsys.readouterr().err.startswith("release: ")


def test_tests_that_passed_with_the_commit_are_not_run_again(checkout: Path) -> None:
    commit = _git(checkout, "rev-parse", "HEAD")
    (checkout / "Makefile").write_text("test:\n\techo run >> build-log\n")
    release._test(checkout, commit)
    release._test(checkout, commit)
    assert (checkout / "build-log").read_text() == "run\n"
    release._test(checkout, "another commit")
    assert (checkout / "build-log").read_text() == "run\nrun\n"
    (checkout / "Makefile").write_text("test:\n\tfalse\n")
    with pytest.raises(ReleaseError, match="the tests fail"):
        release._test(checkout, "a third commit")


def test_versions_that_the_tests_did_not_run_with_are_refused() -> None:
    required = licences.required()
    assert {text.split(" ")[0] for text in release.other_versions(required, ROOT)} <= {one.name for one in required}
    (found,) = (one for one in required if one.name == "kio")
    (wrong,) = release.other_versions([replace(found, version="0.0.1")], ROOT)
    assert wrong.startswith("kio 0.0.1 is installed here, and constraints.txt says ")
