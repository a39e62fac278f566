"""Renews the libraries of the console's page and of the documentation site: `python tools/vendor_page.py page|site`.

They are taken from their npm packages by `npm pack`. Those of the page are written as native ES modules with relative
imports, because its content security policy allows no import map and no other host; those of the site as they are.
`manifest.json` beside them says the version, the licence and the SHA-256 of every file; a test holds the files to it.
Node and npm are needed here and nowhere else.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
import sys
import tarfile
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

ROOT = Path(__file__).parents[1]
MANIFEST, LICENCES = "manifest.json", "LICENSES"

_IMPORT = re.compile(r"""\b(from|import)\s*(["'])([^"'.][^"']*)\2""")
_SOURCE_MAP = re.compile(r"^(//# sourceMappingURL=.*|/\*# sourceMappingURL=.*\*/)$\n?", re.MULTILINE)


@dataclass(frozen=True, slots=True, kw_only=True)
class Package:
    """`files`: path in the package, to the name here. `export`: a global of a file that is no module; it becomes the
    module's default export. `notices`: files with the licences of what the package has in it."""

    name: str
    files: Mapping[str, str]
    exports: Mapping[str, str] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    is_module: bool = True


_LOSSLESS = (
    "LosslessNumber",
    "config",
    "index",
    "numberParsers",
    "parse",
    "revive",
    "reviveDate",
    "stringify",
    "utils",
)

PACKAGES = (
    Package(
        name="preact",
        files={"dist/preact.mjs": "preact.js", "hooks/dist/hooks.mjs": "preact-hooks.js"},
    ),
    Package(name="htm", files={"dist/htm.mjs": "htm.js"}),
    Package(name="@preact/signals-core", files={"dist/signals-core.mjs": "signals-core.js"}),
    Package(name="@preact/signals", files={"dist/signals.mjs": "signals.js"}),
    Package(
        name="uplot",
        files={"dist/uPlot.iife.min.js": "uplot.js", "dist/uPlot.min.css": "uplot.css"},
        exports={"uplot.js": "uPlot"},
    ),
    Package(
        name="@dagrejs/dagre",
        files={"dist/dagre.esm.js": "dagre.js"},
        notices=("dist/dagre.esm.js.LEGAL.txt",),
    ),
    Package(
        name="lossless-json",
        files={f"lib/esm/{name}.js": f"lossless-json/{name}.js" for name in (*_LOSSLESS, "types")},
    ),
)
PLAYER = Package(
    name="asciinema-player",
    files={
        "dist/bundle/asciinema-player.min.js": "asciinema-player.js",
        "dist/bundle/asciinema-player.css": "asciinema-player.css",
    },
    is_module=False,
)
PLACES: Mapping[str, tuple[Path, tuple[Package, ...]]] = {
    "page": (ROOT / "src" / "suiro" / "console" / "web" / "page" / "vendor", PACKAGES),
    "site": (ROOT / "docs" / "vendor", (PLAYER,)),
}
MODULES = {
    "preact": "preact.js",
    "preact/hooks": "preact-hooks.js",
    "@preact/signals-core": "signals-core.js",
}
"""What the packages import by name, and the file here that is it."""


def main() -> None:
    if len(sys.argv) != 2 or sys.argv[1] not in PLACES:
        sys.exit(__doc__)
    renew(*PLACES[sys.argv[1]])


def renew(place: Path, packages: tuple[Package, ...]) -> None:
    written: dict[str, bytes] = {}
    entries, notices = [], []
    with tempfile.TemporaryDirectory() as folder:
        for package in packages:
            about, content = _packed(package.name, Path(folder))
            licence = next(name for name in content if name.upper().startswith("LICENSE"))
            notices.append(f"{package.name} {about['version']} ({about['license']})\n\n{_text(content[licence])}")
            notices += [
                f"{package.name} {about['version']}: what is in it\n\n{_text(content[name])}"
                for name in package.notices
            ]
            files = {
                here: _module(content[there].decode(), package.exports.get(here))
                if package.is_module
                else content[there]
                for there, here in package.files.items()
            }
            written |= files
            entries.append(
                {
                    "name": package.name,
                    "version": about["version"],
                    "licence": about["license"],
                    "files": {name: hashlib.sha256(data).hexdigest() for name, data in sorted(files.items())},
                }
            )
    for old in place.rglob("*"):
        if old.is_file():
            old.unlink()
    for name, data in written.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_bytes(data)
    (place / MANIFEST).write_text(json.dumps({"packages": entries}, indent=2) + "\n")
    (place / LICENCES).write_text(("\n\n" + "-" * 80 + "\n\n").join(notices) + "\n")
    for entry in entries:
        print(entry["name"], entry["version"], entry["licence"])


def _packed(name: str, folder: Path) -> tuple[dict[str, str], dict[str, bytes]]:
    """Its package.json, and its files by path."""
    done = subprocess.run(["npm", "pack", "--silent", name], cwd=folder, check=True, stdout=subprocess.PIPE, text=True)
    with tarfile.open(folder / done.stdout.strip()) as archive:
        content = {}
        for member in archive:
            stream = archive.extractfile(member)
            if stream is not None:
                content[member.name.partition("/")[2]] = stream.read()
    return json.loads(content["package.json"]), content


def _module(text: str, export: str | None) -> bytes:
    def relative(found: re.Match[str]) -> str:
        if found[3] not in MODULES:
            raise SystemExit(f"a package imports {found[3]!r}, which is not among the files here; add it to MODULES")
        return f"{found[1]} {found[2]}./{MODULES[found[3]]}{found[2]}"

    text = _IMPORT.sub(relative, _SOURCE_MAP.sub("", text)).rstrip() + "\n"
    return (text if export is None else f"{text}export default {export};\n").encode()


def _text(data: bytes) -> str:
    return data.decode().strip()


if __name__ == "__main__":
    main()
