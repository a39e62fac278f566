"""The documentation site: built without a warning, with every page, and nothing of it from another host."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

from tests.docs.test_documents import PAGES, ROOT

FENCE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)


def test_the_site_is_built(tmp_path: Path) -> None:
    command = [sys.executable, str(ROOT / "tools" / "documentation.py"), "--into", str(tmp_path / "site")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    html = tmp_path / "site" / "html"
    built = {str(path.relative_to(html)) for path in html.rglob("*.html")}
    assert {
        "index.html",
        "architecture.html",
        "guides/streams.html",
        "reference/python/streams.html",
    } <= built
    assert len(built) == len(PAGES) + 1  # and a page for what is not found
    listed = re.findall(r"^- \[[^\]]+\]\(([^)]+)\)", (html / "llms.txt").read_text(), re.MULTILINE)
    assert sorted([*listed, "404.html"]) == sorted(built)
    assert "format suiro" in (html / "llms-full.txt").read_text().lower().replace('"', "")


def test_what_a_page_loads_from_elsewhere_is_found(tmp_path: Path) -> None:
    sys.path.insert(0, str(ROOT))
    from tools.documentation import loaded_from_elsewhere

    (tmp_path / "a.html").write_text(
        '<a href="https://other.example/read">x</a><script async src="https://other.example/a.js"></script>'
        '<link href="//other.example/a.css" rel="stylesheet"><link rel=canonical href="https://own.example/">'
    )
    (tmp_path / "b.css").write_text('@import "https://other.example/b.css"; p {background: url(/own.png)}')
    assert sorted(loaded_from_elsewhere(tmp_path)) == [
        "a.html: //other.example/a.css",
        "a.html: https://other.example/a.js",
        "b.css: https://other.example/b.css",
    ]


def test_links_lead_to_headings_that_are_there() -> None:
    wrong = []
    for page in PAGES:
        for target, anchor in re.findall(r"\]\(([^)#\s]*)#([^)\s]+)\)", without_code(page)):
            if target.startswith("http"):
                continue
            found = (page.parent / target) if target else page
            if found.suffix == ".md" and anchor not in anchors(found):
                wrong.append(f"{page.relative_to(ROOT)}: {target}#{anchor}")
    assert wrong == []


def anchors(page: Path) -> set[str]:
    """As repository browsers and the site make them of headings."""
    found: set[str] = set()
    for heading in re.findall(r"^#+ (.+)$", without_code(page), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).lower()
        name = re.sub(r"[^\w\- ]", "", text).strip().replace(" ", "-")
        found.add(name if name not in found else f"{name}-1")
    return found


def without_code(page: Path) -> str:
    return FENCE.sub("", page.read_text(encoding="utf-8"))
