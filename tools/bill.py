"""The bill of materials of a release, in CycloneDX' JSON: what somebody installs with suiro and all extras.

Versions are those that are installed here, which `constraints.txt` pins: the set that the tests ran with. The libraries
of the console's page are in it, though no installer knows them. The same set gives the same bytes.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from datetime import UTC, datetime
from uuid import NAMESPACE_URL, uuid5

from cyclonedx.contrib.license.factories import LicenseFactory
from cyclonedx.model.bom import Bom, BomMetaData
from cyclonedx.model.component import Component, ComponentScope, ComponentType
from cyclonedx.output.json import JsonV1Dot6
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator
from packageurl import PackageURL

from tools.licences import Package, vendored

OWN_LICENCE = "Apache-2.0 AND MIT"


def bill_of_materials(version: str, packages: Iterable[Package], *, epoch: int) -> str:
    """Of the release `version`. `epoch`: seconds since 1970, the time of its commit."""
    packages = list(packages)
    itself = _component("pypi", "suiro", version, OWN_LICENCE)
    # One of a class of its own: a random number would make each build another one.
    number = uuid5(NAMESPACE_URL, f"pkg:pypi/suiro@{version}")
    bom = Bom(serial_number=number)
    bom.metadata = BomMetaData(component=itself, timestamp=datetime.fromtimestamp(epoch, UTC))
    found = {package.name: _of_package(package) for package in packages}
    for component in found.values():
        bom.components.add(component)
    page = [_component("npm", one["name"], one["version"], one["licence"]) for one in vendored()]
    for component in page:
        bom.components.add(component)
    asked_for = [found[package.name] for package in packages if package.is_asked_for]
    bom.register_dependency(itself, [*asked_for, *page])
    for package in packages:
        bom.register_dependency(found[package.name], [found[name] for name in package.needs])
    return JsonV1Dot6(bom).output_as_string(indent=2) + "\n"


def problems(text: str) -> list[str]:
    """Where it breaks the format's schema, or says nothing of a licence."""
    error = JsonStrictValidator(SchemaVersion.V1_6).validate_str(text)
    if error is not None:
        return [f"the bill of materials breaks its schema: {error}"]
    return [
        f"{component['name']} has no licence in the bill of materials"
        for component in json.loads(text)["components"]
        if not component.get("licenses")
    ]


def _of_package(package: Package) -> Component:
    component = _component("pypi", package.name, package.version, package.licence or "")
    component.scope = ComponentScope.OPTIONAL if package.extras else ComponentScope.REQUIRED
    return component


def _component(kind: str, name: str, version: str, licence: str) -> Component:
    group, _, short = name.rpartition("/")  # @preact/signals
    url = PackageURL(kind, group or None, short, version)
    return Component(
        type=ComponentType.LIBRARY,
        bom_ref=str(url),
        group=group or None,
        name=short,
        version=version,
        purl=url,
        licenses=[LicenseFactory().make_from_string(licence)] if licence else None,
    )
