"""A release, from the version in the source to the files that an index takes: `make release VERSION=0.2.0 DRY_RUN=1`.

    python -m tools.release prepare 0.2.0    writes the version and the heading of CHANGELOG.md; look at it and commit
    python -m tools.release make 0.2.0       checks, builds, tries, tags; says what is left to upload

Nothing is uploaded, and the tag is made last, of the very commit that all before was checked with. A step that fails
leaves nothing behind that keeps the next run from beginning again. A dry run does all but the tests and the tag;
`--offline` leaves out what asks an index: the installation into an empty environment.
"""

from __future__ import annotations

import argparse
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import venv
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

from packaging.version import InvalidVersion, Version

from tools import bill, licences, packages
from tools.packages import PackageError
from tools.smoke import SmokeError, smoke

COMMAND_TIMEOUT_S = 120
INSTALL_TIMEOUT_S = 900
TESTS_TIMEOUT_S = 7_200
TESTED = Path("build") / "tested"
"""Holds the commit that `make test` passed with, so that a run that failed later does not test it again."""

_VERSION = re.compile(r'^__version__ = "(.*)"$', re.MULTILINE)
_HEADING = re.compile(r"^## (.+)$", re.MULTILINE)


class ReleaseError(Exception):
    """Why it cannot be released, and what to do."""


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tools.release", description=__doc__.partition("\n")[0])
    commands = parser.add_subparsers(dest="command", required=True)
    prepare_ = commands.add_parser("prepare", help="write the version into the source and CHANGELOG.md")
    make_ = commands.add_parser("make", help="check, build, try, tag")
    for one in (prepare_, make_):
        one.add_argument("version")
        one.add_argument("--source", type=Path, default=packages.ROOT, help="the checkout; default: this one")
    make_.add_argument("--out", type=Path, help="a new folder; default: dist/VERSION, build/dry-run")
    make_.add_argument("--dry-run", action="store_true", help="run no tests and make no tag")
    make_.add_argument("--offline", action="store_true", help="do not install it into an empty environment")
    options = parser.parse_args(arguments)
    try:
        if options.command == "prepare":
            prepare(options.source, options.version)
        else:
            make(
                options.source,
                options.version,
                out=options.out,
                is_dry=options.dry_run,
                is_offline=options.offline,
            )
    except (ReleaseError, PackageError, SmokeError, licences.LicenceError) as error:
        print(f"release: {error}", file=sys.stderr)
        return 1
    return 0


def prepare(source: Path, text: str) -> None:
    """Writes `__version__`, and for a release gives what CHANGELOG.md has under Unreleased its heading."""
    version = _version(text)
    path = source / "src" / "suiro" / "__init__.py"
    path.write_text(_VERSION.sub(f'__version__ = "{version}"', path.read_text(encoding="utf-8")), encoding="utf-8")
    if not version.is_devrelease:
        changelog = source / "CHANGELOG.md"
        said = changelog.read_text(encoding="utf-8")
        if not _section(said, "Unreleased"):
            raise ReleaseError("CHANGELOG.md has nothing under Unreleased: say what users notice of this release")
        heading = f"## {version} ({datetime.now(UTC).date().isoformat()})"
        changelog.write_text(said.replace("## Unreleased\n", f"## Unreleased\n\n{heading}\n", 1), encoding="utf-8")
    print(f"The source says {version} now. Look at it (git diff), and commit it.")


def make(source: Path, text: str, *, out: Path | None, is_dry: bool, is_offline: bool) -> None:
    """Raises `ReleaseError` and others of `main` with the first thing that is wrong."""
    version = _version(text)
    if out is None and is_dry:
        out = source / "build" / "dry-run"
        shutil.rmtree(out, ignore_errors=True)
    out = out or source / "dist" / str(version)
    if out.exists():
        raise ReleaseError(f"{out} is there already: an earlier release? Move it away")
    if version.is_devrelease:
        raise ReleaseError(f"{version} is a version between releases: prepare one without .dev")
    _step("version, changelog, checkout")
    check_source(source, version)
    commit = _git(source, "rev-parse", "HEAD")
    epoch = int(_git(source, "show", "--no-patch", "--format=%ct", "HEAD"))
    if is_dry:
        _step("tests: not in a dry run")
    else:
        _step("tests")
        _test(source, commit)
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent) as folder:
        made = Path(folder) / out.name
        sums = _make_files(source, version, made, epoch=epoch, is_offline=is_offline)
        made.rename(out)
    if not is_dry:
        _git(source, "tag", "--annotate", f"v{version}", "--message", f"suiro {version}", commit)
    print(f"\nsuiro {version} of {commit[:12]}, in {out}:\n{sums}")
    print("It would be tagged, and uploaded by:" if is_dry else f"Tagged v{version}. To upload it:")
    print(f"  git push REMOTE v{version}")
    print(f"  twine upload {out}/*.whl {out}/*.tar.gz")


def _make_files(source: Path, version: Version, out: Path, *, epoch: int, is_offline: bool) -> str:
    """All files of the release; returns what SHA256SUMS says of them."""
    _step("source distribution and wheel")
    built = packages.build(source, out, epoch=epoch)
    wrong = packages.missing_and_unexpected(built, source)
    if packages.version_of(built.wheel) != str(version):
        wrong.append(f"the wheel is of version {packages.version_of(built.wheel)}")
    _refuse(wrong)
    _run([sys.executable, "-m", "twine", "check", "--strict", built.sdist, built.wheel], cwd=source)
    _step("licences and bill of materials")
    required = licences.required(source / "pyproject.toml")
    materials = bill.bill_of_materials(str(version), required, epoch=epoch)
    _refuse([*licences.problems(required), *other_versions(required, source), *bill.problems(materials)])
    (out / f"suiro-{version}.cdx.json").write_text(materials, encoding="utf-8")
    if is_offline:
        _step("an empty environment: not offline")
    else:
        _step("an empty environment")
        try_wheel(built.wheel, source / "constraints.txt", str(version))
    files = sorted(out.iterdir())
    sums = "".join(f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files)
    (out / "SHA256SUMS").write_text(sums, encoding="utf-8")
    return sums


def check_source(source: Path, version: Version) -> None:
    """What the commit has to say of itself. Raises `ReleaseError`."""
    changed = _git(source, "status", "--porcelain")
    if changed:
        raise ReleaseError(f"the checkout has changes that are in no commit; commit or remove them:\n{changed}")
    if _git(source, "tag", "--list", f"v{version}"):
        raise ReleaseError(f"v{version} is a tag already: a version is released once; take the next one")
    found = _VERSION.search((source / "src" / "suiro" / "__init__.py").read_text(encoding="utf-8"))
    if found is None or found[1] != str(version):
        said = "nothing" if found is None else found[1]
        raise ReleaseError(
            f"the source says {said}, not {version}; run `python -m tools.release prepare {version}` and commit it"
        )
    changelog = (source / "CHANGELOG.md").read_text(encoding="utf-8")
    heading = next((text for text in _HEADING.findall(changelog) if text.split(" ")[0] == str(version)), None)
    if heading is None or not re.fullmatch(r"\S+ \(\d{4}-\d\d-\d\d\)", heading):
        raise ReleaseError(f"CHANGELOG.md has no section '## {version} (YYYY-MM-DD)'")
    if not _section(changelog, heading):
        raise ReleaseError(f"CHANGELOG.md says nothing under {heading}")
    if _section(changelog, "Unreleased"):
        raise ReleaseError(f"CHANGELOG.md has entries under Unreleased: what is in the release belongs to {heading}")


def other_versions(required: Sequence[licences.Package], source: Path) -> list[str]:
    """The bill of materials names what the tests ran with, and that is what constraints.txt pins."""
    pinned = {
        licences.canonicalize_name(name): version
        for name, found, version in (
            line.partition("==") for line in (source / "constraints.txt").read_text(encoding="utf-8").splitlines()
        )
        if found
    }
    return [
        f"{one.name} {one.version} is installed here, and constraints.txt says {pinned.get(one.name, 'nothing')}: "
        "install with `-c constraints.txt`, or renew that file (`make constraints`)"
        for one in required
        if pinned.get(one.name) != one.version
    ]


def try_wheel(wheel: Path, constraints: Path, version: str) -> None:
    """Installs it into an empty environment, and uses it there. Raises `ReleaseError`, `SmokeError`."""
    with tempfile.TemporaryDirectory() as folder:
        empty = Path(folder) / "venv"
        venv.create(empty, with_pip=True)
        python = empty / "bin" / "python"
        install = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check"]
        _run([*install, "-c", constraints, wheel], cwd=Path(folder), timeout_s=INSTALL_TIMEOUT_S)
        _run([python, "-m", "pip", "check"], cwd=Path(folder))
        smoke(empty / "bin" / "suiro", version=version, folder=Path(folder))


def _test(source: Path, commit: str) -> None:
    marker = source / TESTED
    if marker.exists() and marker.read_text(encoding="utf-8").strip() == commit:
        return
    done = subprocess.run(["make", "test"], cwd=source, check=False, timeout=TESTS_TIMEOUT_S)
    if done.returncode != 0:
        raise ReleaseError("the tests fail (make test)")
    marker.parent.mkdir(exist_ok=True)
    marker.write_text(commit + "\n", encoding="utf-8")


def _version(text: str) -> Version:
    try:
        version = Version(text)
    except InvalidVersion:
        raise ReleaseError(f"{text} is no version; one is 0.2.0, 0.2.0rc1 or, between releases, 0.3.0.dev0") from None
    if str(version) != text or version.local is not None:
        raise ReleaseError(f"write {version.public} for {text}")
    return version


def _section(changelog: str, heading: str) -> str:
    """What stands below a heading, up to the next."""
    after = changelog.partition(f"## {heading}\n")[2]
    found = _HEADING.search(after)
    return (after if found is None else after[: found.start()]).strip()


def _refuse(wrong: Sequence[str]) -> None:
    if wrong:
        raise ReleaseError("\n".join(wrong))


def _step(name: str) -> None:
    print(f"== {name}", flush=True)


def _git(source: Path, *arguments: str) -> str:
    return _run(["git", *arguments], cwd=source).strip()


def _run(command: Sequence[str | Path], *, cwd: Path, timeout_s: float = COMMAND_TIMEOUT_S) -> str:
    done = subprocess.run(
        [str(word) for word in command],
        cwd=cwd,
        capture_output=True,
        text=True,
        check=False,
        timeout=timeout_s,
        env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
    )
    if done.returncode != 0:
        raise ReleaseError(f"{' '.join(map(str, command))} failed:\n{done.stdout}{done.stderr}")
    return done.stdout


if __name__ == "__main__":
    sys.exit(main())
