"""What suiro needs is under licences that somebody agreed to, and a page and a bill of materials say which."""

from __future__ import annotations

import json
import sys
from dataclasses import replace

import pytest

from tools import bill, licences
from tools.licences import ROOT, Package

ODD = Package(name="odd", version="1", licence=None, said="Do what you like", extras=(), needs=(), is_asked_for=True)


@pytest.fixture(scope="module")
def required() -> list[Package]:
    return licences.required()


def test_every_licence_is_allowed_or_explained(required: list[Package]) -> None:
    assert list(licences.problems(required)) == []


def test_no_explanation_is_left_behind(required: list[Package]) -> None:
    names = {package.name for package in required}
    assert licences.COPYLEFT.keys() - names == set()
    assert licences.TRANSLATED.keys() - names == set()


@pytest.mark.parametrize(
    ("package", "problem"),
    [
        (ODD, "says 'Do what you like'"),
        (replace(ODD, licence="AGPL-3.0-only"), "AGPL-3.0-only, which is not in ALLOWED"),
        (replace(ODD, licence="MIT AND GPL-3.0-only"), "not in ALLOWED"),
        (replace(ODD, name="crc32c", licence="GPL-3.0-only"), "renew what COPYLEFT says"),
    ],
    ids=["unknown", "strong", "together", "changed"],
)
def test_what_nobody_agreed_to_is_a_problem(package: Package, problem: str) -> None:
    (found,) = licences.problems([package])
    assert problem in found


@pytest.mark.parametrize("licence", ["MIT OR GPL-3.0-only", "BSD-2-Clause AND Apache-2.0 WITH LLVM-exception"])
def test_one_of_alternatives_is_enough(licence: str) -> None:
    assert licences.is_allowed(licence)


def test_all_that_is_asked_for_is_there(required: list[Package]) -> None:
    by_name = {package.name: package for package in required}
    assert by_name["kio"].is_asked_for
    assert by_name["kio"].extras == ()
    assert by_name["deltalake"].extras == ("lake",)
    assert not by_name["h11"].is_asked_for
    assert "pytest" not in by_name
    assert all(needed in by_name for package in required for needed in package.needs)


def test_the_page_says_what_is_installed(required: list[Package]) -> None:
    """Later Pythons need less, so the page is made with the oldest."""
    page = (ROOT / "docs" / "reference" / "licences.md").read_text(encoding="utf-8")
    if sys.version_info[:2] == (3, 11):
        assert page == licences.page(), "run: make reference"
    for package in required:
        assert f"| {package.name} | {package.licence} |" in page, "run: make reference with Python 3.11"


def test_the_bill_of_materials_names_all_of_it(required: list[Package]) -> None:
    text = bill.bill_of_materials("1.2.3", required, epoch=1_700_000_000)
    assert bill.problems(text) == []
    assert text == bill.bill_of_materials("1.2.3", reversed(required), epoch=1_700_000_000)
    found = json.loads(text)
    assert found["metadata"]["component"]["purl"] == "pkg:pypi/suiro@1.2.3"
    urls = {component["purl"] for component in found["components"]}
    assert {f"pkg:pypi/{package.name}@{package.version}" for package in required} <= urls
    assert any(url.startswith("pkg:npm/preact@") for url in urls)
    (itself,) = (one for one in found["dependencies"] if one["ref"] == "pkg:pypi/suiro@1.2.3")
    assert any(url.startswith("pkg:pypi/kio@") for url in itself["dependsOn"])
    assert not any(url.startswith("pkg:pypi/h11@") for url in itself["dependsOn"])


def test_a_bill_of_materials_that_lacks_something_is_refused() -> None:
    assert bill.problems(bill.bill_of_materials("1.2.3", [ODD], epoch=0)) == [
        "odd has no licence in the bill of materials"
    ]
    (broken,) = bill.problems('{"bomFormat": "CycloneDX", "specVersion": "1.6", "components": {}}')
    assert "breaks its schema" in broken
