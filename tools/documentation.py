"""The documentation site: `make site`. Pages are those of the repository; what is built is in build/site/html.

    python tools/documentation.py            build it, and check it
    python tools/documentation.py --serve    and serve it on 127.0.0.1, until Ctrl-C

Pages are copied to build/site/pages first: README becomes the first page, ARCHITECTURE and its like have a place beside
the others, and links follow. Links to source files become names. `llms.txt` lists the pages for language models, and
`llms-full.txt` has their text. A page that loads anything from another host is an error.
"""

from __future__ import annotations

import argparse
import http.server
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from functools import partial
from pathlib import Path

ROOT = Path(__file__).parents[1]

BESIDE = {
    "README.md": "index.md",
    "ARCHITECTURE.md": "architecture.md",
    "CONTRIBUTING.md": "contributing.md",
    "CHANGELOG.md": "changelog.md",
}
"""Pages that stand beside docs/, and their place in the site."""

TITLES = {
    "index.md": "What it is",
    "changelog.md": "Changelog",
    "contributing.md": "How to work on it",
    "tutorial.md": "Tutorial",
    "roles/README.md": "By role",
}
"""Where a page's own heading does not serve in a list."""

Section = tuple[str, list["str | Section"]]
SECTIONS: list[Section] = [
    ("Start", ["index.md", "demo.md", "tutorial.md", "guides/install.md", "roles", "changelog.md"]),
    (
        "Guides",
        [
            (
                "The log",
                [
                    "guides/commands.md",
                    "guides/security.md",
                    "guides/operations.md",
                    "guides/deploy.md",
                    "guides/telemetry.md",
                    "guides/tiering.md",
                    "guides/grow.md",
                ],
            ),
            ("Data in and out", ["guides/capture.md", "guides/connect.md", "guides/registry.md"]),
            (
                "Processing",
                [
                    "guides/streams.md",
                    "guides/asyncio.md",
                    "guides/batches.md",
                    "guides/testing.md",
                    "guides/spark.md",
                    "guides/throughput.md",
                    "guides/performance.md",
                ],
            ),
            ("Views", ["guides/views.md"]),
            ("Console", ["guides/console.md", "guides/console_services.md"]),
            "guides",
        ],
    ),
    ("Reference", ["reference/README.md", ("Python", ["reference/python"]), "reference"]),
    ("Explanation", ["explain", "glossary.md", ("Decisions", ["decisions"])]),
    ("Migration", ["migrate/README.md", "migrate/kafka-streams.md", "migrate"]),
    ("Contributing", ["architecture.md", "contributing.md", ("Tour", ["tour"])]),
]
"""A page, or a folder for all of its pages that are not named elsewhere. What is not there yet is left out."""

CONFIG = """\
[project]
site_name = "suiro"
site_description = "Event streaming in Python: a log that speaks the Kafka protocol, exactly-once pipelines on Spark"
docs_dir = "pages"
site_dir = "html"
use_directory_urls = false
nav = {nav}

[project.theme]
font = false
icon.logo = "lucide/waves"
features = [
    "content.code.copy",
    "navigation.indexes",
    "navigation.instant",
    "navigation.sections",
    "navigation.tabs",
    "navigation.top",
    "search.highlight",
    "toc.follow",
]

[[project.theme.palette]]
media = "(prefers-color-scheme)"
toggle.icon = "lucide/sun-moon"
toggle.name = "Switch to light mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: light)"
scheme = "default"
toggle.icon = "lucide/sun"
toggle.name = "Switch to dark mode"

[[project.theme.palette]]
media = "(prefers-color-scheme: dark)"
scheme = "slate"
toggle.icon = "lucide/moon"
toggle.name = "Switch to system preference"
"""

_LINK = re.compile(r"(!?)\[([^\]]*)\]\(([^)#\s]*)(#[^)\s]*)?\)")
_FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LOADED = re.compile(
    r"<(?:script|img|iframe|source|video|audio|object|embed)\b[^>]*?\b(?:src|data)=[\"']?(?P<from>(?:https?:)?//[^\"'\s>]+)"
    r"|<link\b(?=[^>]*\brel=[\"']?(?:stylesheet|icon|preload|preconnect|modulepreload))[^>]*?\bhref=[\"']?(?P<link>(?:https?:)?//[^\"'\s>]+)"
    r"|(?:url\(|@import\s+)[\"']?(?P<style>(?:https?:)?//[^\"')\s]+)"
)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--serve", action="store_true", help="serve it on 127.0.0.1 when it is built")
    parser.add_argument("--into", type=Path, default=ROOT / "build" / "site", metavar="DIR")
    options = parser.parse_args()
    print(f"{build(options.into)} pages in {options.into / 'html'}")
    if options.serve:
        serve(options.into / "html")


def build(place: Path) -> int:
    """How many pages it has. Ends the program where something is wrong with one."""
    html = place / "html"
    shutil.rmtree(place, ignore_errors=True)
    pages = stage(place / "pages")
    nav = navigation(pages)
    (place / "zensical.toml").write_text(CONFIG.format(nav=_toml(nav)), encoding="utf-8")
    done = subprocess.run(
        [Path(sys.executable).with_name("zensical"), "build"],
        cwd=place,
        env={**os.environ, "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    said = done.stdout + done.stderr
    if done.returncode or "Warning" in said:
        sys.exit(f"{said}\nthe site has warnings, or could not be built")
    for name, text in language_model_texts(pages, nav).items():
        (html / name).write_text(text, encoding="utf-8")
    foreign = sorted(loaded_from_elsewhere(html))
    if foreign:
        sys.exit("loaded from other hosts: " + "; ".join(foreign))
    return len(pages)


# -- pages --------------------------------------------------------------------------------------------------


def stage(place: Path) -> dict[str, str]:
    """Copies what the site is made of. The pages, by their place in the site."""
    sources = {ROOT / name: at for name, at in BESIDE.items()}
    for path in sorted((ROOT / "docs").rglob("*")):
        if path.is_file() and "__pycache__" not in path.parts and path.suffix != ".py":
            sources[path] = str(path.relative_to(ROOT / "docs"))
    pages = {}
    for path, at in sources.items():
        target = place / at
        target.parent.mkdir(parents=True, exist_ok=True)
        if path.suffix != ".md":
            shutil.copyfile(path, target)
            continue
        pages[at] = with_links(path.read_text(encoding="utf-8"), path, at, sources)
        target.write_text(pages[at], encoding="utf-8")
    return pages


def with_links(text: str, path: Path, at: str, places: dict[Path, str]) -> str:
    """Links as they are from the page's place in the site; those to files that the site lacks are only their text."""

    def moved(link: re.Match[str]) -> str:
        mark, words, target, anchor = link[1], link[2], link[3], link[4] or ""
        if not target or ":" in target:
            return link[0]
        found = (path.parent / target).resolve()
        if found.is_dir():
            found /= "README.md"
        if found not in places:
            return words
        return f"{mark}[{words}]({os.path.relpath(places[found], os.path.dirname(at) or '.')}{anchor})"

    parts, end = [], 0
    for fence in _FENCE.finditer(text):
        parts += [_LINK.sub(moved, text[end : fence.start()]), fence[0]]
        end = fence.end()
    return "".join([*parts, _LINK.sub(moved, text[end:])])


Nav = list[dict[str, "str | Nav"]]


def navigation(pages: dict[str, str]) -> Nav:
    named = {item for _, items in SECTIONS for item in _named(items)}
    nav: Nav = [{title: _entries(items, pages, named)} for title, items in SECTIONS]
    left = sorted(set(pages) - set(_places(nav)))
    if left:
        sys.exit(f"pages that are in no section of tools/documentation.py: {', '.join(left)}")
    return [section for section in nav if all(section.values())]


def _named(items: list[str | Section]) -> Iterator[str]:
    for item in items:
        if isinstance(item, str):
            yield item
        else:
            yield from _named(item[1])


def _entries(items: list[str | Section], pages: dict[str, str], named: set[str]) -> Nav:
    found: Nav = []
    for item in items:
        if not isinstance(item, str):
            inner = _entries(item[1], pages, named)
            found += [{item[0]: inner}] if inner else []
        elif item in pages:
            found.append({title_of(item, pages[item]): item})
        else:
            inside = [at for at in pages if os.path.dirname(at) == item and at not in named]
            inside.sort(key=lambda at: (not at.endswith("README.md"), at))
            found += [{title_of(at, pages[at]): at} for at in inside]
    return found


def _places(nav: Nav) -> Iterator[str]:
    for entry in nav:
        for item in entry.values():
            if isinstance(item, str):
                yield item
            else:
                yield from _places(item)


def title_of(at: str, text: str) -> str:
    heading = re.search(r"^# (.+)$", text, re.MULTILINE)
    title = TITLES.get(at) or (heading[1] if heading else Path(at).stem)
    return re.sub(r"[`*]", "", title)


def _toml(nav: Nav) -> str:
    inner = ", ".join(
        f"{{ {json.dumps(title)} = {json.dumps(item) if isinstance(item, str) else _toml(item)} }}"
        for entry in nav
        for title, item in entry.items()
    )
    return f"[{inner}]"


# -- what is made of them -----------------------------------------------------------------------------------


def language_model_texts(pages: dict[str, str], nav: Nav) -> dict[str, str]:
    """`llms.txt` as llmstxt.org describes it, and all pages in one file."""
    lines = ["# suiro", "", "> " + _first_paragraph(pages["index.md"]), ""]
    whole = []
    for section in nav:
        for title, items in section.items():
            lines += [f"## {title}", ""]
            for at in _places(items if isinstance(items, list) else [{title: items}]):
                page = re.sub(r"(README)?\.md$", lambda it: "index.html" if it[1] else ".html", at)
                lines.append(f"- [{title_of(at, pages[at])}]({page}): {_first_paragraph(pages[at])}")
                whole.append(f"<!-- {at} -->\n\n{pages[at]}")
            lines.append("")
    return {"llms.txt": "\n".join(lines), "llms-full.txt": "\n".join(whole)}


def _first_paragraph(text: str) -> str:
    for part in re.split(r"\n\s*\n", _FENCE.sub("", text)):
        if not part.lstrip().startswith(("#", "|", "<", "!", "-", ">")) and part.strip():
            plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", " ".join(part.split()))
            return re.split(r"(?<=[.:]) ", plain)[0]
    return ""


def loaded_from_elsewhere(html: Path) -> Iterator[str]:
    """What the built pages and styles load by themselves from other hosts; links are what readers follow."""
    for path in html.rglob("*"):
        if path.suffix in (".html", ".css"):
            for match in _LOADED.finditer(path.read_text(encoding="utf-8")):
                yield f"{path.relative_to(html)}: {match['from'] or match['link'] or match['style']}"


def serve(html: Path) -> None:
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=html)
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        print(f"http://127.0.0.1:{server.server_port}/", flush=True)
        server.serve_forever()


if __name__ == "__main__":
    main()
