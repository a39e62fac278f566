"""The console's page: what comes from elsewhere is what the manifest says, and nothing names another host."""

from __future__ import annotations

import gzip
import hashlib
import json
import re
from pathlib import Path

import pytest

import suiro
from suiro.cli.command_groups import group_of
from suiro.console.web.application import PageFiles

PAGE = Path(suiro.__file__).parent / "console" / "web" / "page"
VENDOR = PAGE / "vendor"
SITE = Path(__file__).parents[4] / "docs" / "vendor"
SOURCES = sorted(path.relative_to(PAGE) for path in PAGE.rglob("*") if path.suffix in (".js", ".css", ".html", ".svg"))
OURS = [path for path in SOURCES if path.parts[0] != "vendor"]

_COMMENTS = re.compile(r"/\*.*?\*/|^\s*//[^\n]*", re.DOTALL | re.MULTILINE)
_HOST = re.compile(r"""(?:https?:|wss?:|["'(])//[\w.-]+[^\s"'`)]*""")
ALLOWED = {
    "http://www.w3.org/2000/svg",
    "http://www.w3.org/1999/xhtml",
    "http://www.w3.org/1998/Math/MathML",
}


def _text(path: Path) -> str:
    return (PAGE / path).read_text(encoding="utf-8")


@pytest.mark.parametrize("place", [VENDOR, SITE], ids=["page", "site"])
def test_vendored_files_are_those_of_the_manifest(place: Path) -> None:
    packages = json.loads((place / "manifest.json").read_text())["packages"]
    expected = {name: digest for package in packages for name, digest in package["files"].items()}
    found = {
        str(path.relative_to(place)): hashlib.sha256(path.read_bytes()).hexdigest()
        for path in place.rglob("*")
        if path.is_file() and path.name not in ("manifest.json", "LICENSES")
    }
    assert found == expected
    licences = (place / "LICENSES").read_text()
    for package in packages:
        assert f"{package['name']} {package['version']} ({package['licence']})" in licences


def test_no_file_names_another_host() -> None:
    named = {(str(path), host) for path in SOURCES for host in _HOST.findall(_COMMENTS.sub("", _text(path)))}
    # This machine is in the commands that empty pages give to copy.
    others = {one for one in named if one[1] not in ALLOWED and not one[1].startswith("http://127.0.0.1:")}
    assert others == set()
    assert any(path == "vendor/preact.js" for path, _ in named), "the pattern finds hosts"


def test_imports_are_relative_and_there() -> None:
    """The content security policy allows no import map, so a bare name finds nothing."""
    for path in SOURCES:
        if path.suffix != ".js":
            continue
        for name in re.findall(r"""\bfrom\s*["']([\w@./-]+)["']""", _COMMENTS.sub("", _text(path))):
            assert name.startswith("."), f"{path} imports {name!r}"
            assert (PAGE / path).parent.joinpath(name).is_file(), f"{path} imports {name!r}, which is not there"


def test_nothing_becomes_markup_or_code() -> None:
    """What records, names and schemas say is text nodes, and never anything else."""
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\b|new Function|srcdoc|style=\"|javascript:"
    )
    for path in OURS:
        assert forbidden.findall(_text(path)) == [], path


# -- colours -----------------------------------------------------------------------------------------------------

GROUNDS = ("ground", "surface", "raised", "sunken", "hover")
READABLE = 4.5
"""WCAG 2.1, 1.4.3: of text this small."""
ON = [(text, ground) for text in ("text", "muted", "accent", "good", "warn", "bad", "second") for ground in GROUNDS] + [
    ("on-accent", "accent"),
    ("on-accent", "accent-strong"),
    ("surface", "bad"),
    ("text", "accent-soft"),
    ("muted", "accent-soft"),
    ("accent", "accent-soft"),
    ("accent-strong", "accent-soft"),
    ("good", "good-soft"),
    ("warn", "warn-soft"),
    ("bad", "bad-soft"),
]


def _luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    red, green, blue = [part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts]
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def test_text_can_be_read_in_both_themes() -> None:
    style = _text(Path("style.css"))
    light, dark = re.findall(r":root \{(.*?)\}", style, re.DOTALL)
    for theme, block in (("light", light), ("dark", dark)):
        colours = dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6});", block))
        for text, ground in ON:
            brighter, darker = sorted((_luminance(colours[text]), _luminance(colours[ground])), reverse=True)
            contrast = (brighter + 0.05) / (darker + 0.05)
            assert contrast >= READABLE, f"{theme}: {text} on {ground} has a contrast of {contrast:.2f}"


@pytest.mark.parametrize(
    ("accepted", "packed"),
    [
        ("gzip, deflate, br", True),
        ("*", True),
        ("GZIP;q=0.5", True),
        ("", False),
        ("identity", False),
        ("br, gzip;q=0", False),
    ],
)
def test_files_are_compressed_for_those_who_take_it(accepted: str, packed: bool) -> None:
    answer = PageFiles().answer("GET", "/", "", accepted)
    assert answer.headers.get("content-encoding") == ("gzip" if packed else None)
    content = gzip.decompress(answer.body) if packed else bytes(answer.body)
    assert content == (PAGE / "index.html").read_bytes()
    assert answer.headers["vary"] == "accept-encoding", "a cache keeps both apart"


def test_commands_of_the_page_are_commands() -> None:
    """Two had options that there are not."""
    texts = [found for path in OURS for found in re.findall(r"command=(?:\"|\$\{`)(suiro [^\"`]+)", _text(path))]
    assert len(texts) > 10
    for text in texts:
        _, group, *words = re.sub(r"\$\{.+\}", "orders", text).split()
        parsers = group_of(group).parsers()
        parser = parsers[""] if "" in parsers else parsers[words.pop(0)]
        parser.parse_intermixed_args(words)  # an error ends the test
