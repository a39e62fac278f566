"""Units of systemd and Kubernetes' manifests are valid, and call commands and options that there are."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import kubernetes_validate
import pytest
import yaml
from support.packaging import (
    IN_IMAGE,
    MANIFESTS,
    PACKAGING,
    UNITS,
    all_documents,
    check_call,
    container,
    documents,
    replaced,
    unit_command,
    workloads,
)

from suiro.cli.run import REPLACED
from suiro.config import NodeSettings, read_properties

CONTAINERS = ("application", "console", "node", "registry")
OLDEST_KUBERNETES = "1.29"
"""The first with access mode ReadWriteOncePod for everybody."""
EXPOSURE = 20
"""At most 2.0 of 10, as `systemd-analyze security` counts."""


def _here(words: list[str], tmp_path: Path) -> list[str]:
    """Files of applications have to be there when the command is parsed."""
    code = tmp_path / "app.py"
    code.touch()
    return [str(code) if word.endswith(".py") else word for word in words]


# --- the check itself


@pytest.mark.parametrize(
    "words",
    [
        ["node", "--no-such-option"],
        ["registry", "--listen-to", "127.0.0.1:1"],
        ["console", "--no-such-option"],
        ["cluster", "--no-such-option"],
        ["no-such-command"],
        ["view", "no-such-command"],
        ["connect", "run", "--no-such-option"],
    ],
    ids=" ".join,
)
def test_a_wrong_call_is_found(words: list[str]) -> None:
    with pytest.raises(ValueError, match=re.escape(words[-1 if words[0] != "registry" else 1])):
        check_call(words)


def test_a_right_call_is_let_through() -> None:
    check_call(["topic", "list", "--json"])
    check_call(["node", "--listen", "127.0.0.1:0"])


# --- systemd


@pytest.mark.parametrize("unit", UNITS, ids=lambda path: path.name)
def test_a_unit_calls_suiro_as_it_is(unit: Path, tmp_path: Path) -> None:
    command, *words = unit_command(unit)
    assert command == IN_IMAGE
    check_call(_here(words, tmp_path))


@pytest.fixture
def units(tmp_path: Path) -> Path:
    """As they would be installed, with the `suiro` of this environment."""
    installed = tmp_path / "units"
    shutil.copytree(PACKAGING / "systemd", installed)
    (installed / "suiro-app@.service").rename(installed / "suiro-app@delays.service")
    for unit in installed.glob("*.service"):
        suiro = str(Path(sys.executable).parent / "suiro")
        unit.write_text(unit.read_text(encoding="utf-8").replace(IN_IMAGE, suiro), encoding="utf-8")
    return installed


def _systemd(tool: str, *arguments: str, units: Path) -> str:
    if shutil.which(tool) is None:
        pytest.skip(f"no {tool} here")
    done = subprocess.run(
        [tool, *arguments],
        cwd=units,
        env={"PATH": "/usr/bin:/bin", "SYSTEMD_UNIT_PATH": f"{units}:", "SYSTEMD_COLORS": "0"},
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout + done.stderr


UNITS = ("suiro-node", "suiro-registry", "suiro-console", "suiro-connect", "suiro-views", "suiro-app@delays")


@pytest.mark.parametrize("name", UNITS)
def test_systemd_takes_the_unit_and_finds_it_guarded(name: str, units: Path) -> None:
    unit = f"{name}.service"
    said = _systemd("systemd-analyze", "verify", "--man=no", unit, units=units)
    assert unit not in said, said
    guarded = ("security", "--offline=true", f"--threshold={EXPOSURE}", "--no-pager")
    _systemd("systemd-analyze", *guarded, unit, units=units)


def test_all_units_are_checked(units: Path) -> None:
    assert {path.stem for path in units.glob("*.service")} == set(UNITS)


def test_an_application_that_was_replaced_is_not_started_again() -> None:
    unit = (PACKAGING / "systemd" / "suiro-app@.service").read_text(encoding="utf-8")
    assert f"RestartPreventExitStatus={REPLACED}\n" in unit


def test_systemd_makes_the_user_of_the_units(units: Path, tmp_path: Path) -> None:
    machine = tmp_path / "machine"
    (machine / "etc").mkdir(parents=True)
    (machine / "usr" / "lib" / "sysusers.d").mkdir(parents=True)
    shutil.copy(units / "suiro.sysusers.conf", machine / "usr" / "lib" / "sysusers.d" / "suiro.conf")
    said = _systemd("systemd-sysusers", "--dry-run", f"--root={machine}", units=units)
    assert "Creating user 'suiro'" in said
    common = (units / "suiro-.service.d" / "50-suiro.conf").read_text(encoding="utf-8")
    assert "User=suiro\nGroup=suiro\n" in common


def test_the_settings_of_the_unit_are_those_of_the_node() -> None:
    settings = read_properties(PACKAGING / "systemd" / "node.properties")
    assert NodeSettings().with_settings(settings, source="node.properties").listeners.startswith("PLAINTEXT://127")


# --- Kubernetes


@pytest.mark.parametrize("version", [OLDEST_KUBERNETES, kubernetes_validate.latest_version()])
@pytest.mark.parametrize("path", MANIFESTS, ids=lambda path: path.name)
def test_a_manifest_is_valid(path: Path, version: str) -> None:
    for document in documents(path):
        kubernetes_validate.validate(document, version, strict=True)


def test_what_is_wrong_with_a_manifest_is_found() -> None:
    node = next(one for one in workloads() if one["kind"] == "StatefulSet")
    node["spec"]["template"]["spec"]["containers"][0]["imagePullPolicies"] = "Always"
    with pytest.raises(kubernetes_validate.ValidationError):
        kubernetes_validate.validate(node, OLDEST_KUBERNETES, strict=True)


def test_kustomize_is_told_of_every_manifest() -> None:
    told = yaml.safe_load((PACKAGING / "kubernetes" / "kustomization.yaml").read_text(encoding="utf-8"))
    assert sorted(told["resources"]) == [path.name for path in MANIFESTS]


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_calls_suiro_as_it_is(name: str, tmp_path: Path) -> None:
    found = container(name)
    assert "command" not in found, "the image's entry point is suiro"
    check_call(_here(found["args"], tmp_path))
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        asked = found.get(probe, {})
        if "exec" in asked:
            command, *words = asked["exec"]["command"]
            assert command == IN_IMAGE
            check_call(words)
    declared = {one["name"] for one in found.get("env", ()) if "valueFrom" in one}
    assert {name for word in found["args"] for name in re.findall(r"\$\((\w+)\)", word)} == declared


@pytest.mark.parametrize("name", CONTAINERS)
def test_a_container_may_do_nothing_but_its_work(name: str) -> None:
    found = container(name)
    assert found["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    (pod,) = (
        one["spec"]["template"]["spec"] for one in workloads() if found in one["spec"]["template"]["spec"]["containers"]
    )
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert pod["automountServiceAccountToken"] is False
    assert pod["terminationGracePeriodSeconds"] >= 30
    assert found["resources"]["limits"]["memory"]
    ports = {port["name"] for port in found["ports"]}
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        for kind in ("tcpSocket", "httpGet"):
            if kind in found.get(probe, {}):
                assert found[probe][kind]["port"] in ports


def test_names_in_the_manifests_lead_somewhere() -> None:
    found = all_documents()
    named = {(one["kind"], one["metadata"]["name"]) for one in found}
    pods = {one["metadata"]["name"]: one["spec"]["template"] for one in workloads()}
    for one in workloads():
        assert one["spec"]["selector"]["matchLabels"].items() <= one["spec"]["template"]["metadata"]["labels"].items()
        pod = one["spec"]["template"]["spec"]
        claims = {claim["metadata"]["name"] for claim in one["spec"].get("volumeClaimTemplates", ())}
        volumes = {volume["name"]: volume for volume in pod["volumes"]}
        for mount in (mount for inner in pod["containers"] for mount in inner["volumeMounts"]):
            assert mount["name"] in volumes.keys() | claims
        for volume in volumes.values():
            if "configMap" in volume:
                assert ("ConfigMap", volume["configMap"]["name"]) in named
            if "persistentVolumeClaim" in volume:
                assert ("PersistentVolumeClaim", volume["persistentVolumeClaim"]["claimName"]) in named
    for service in (one for one in found if one["kind"] == "Service"):
        template = pods[service["metadata"]["name"]]
        assert service["spec"]["selector"].items() <= template["metadata"]["labels"].items()
        ports = {port["name"] for inner in template["spec"]["containers"] for port in inner["ports"]}
        assert {port["targetPort"] for port in service["spec"]["ports"]} <= ports
    (node,) = (one for one in workloads() if one["kind"] == "StatefulSet")
    assert node["spec"]["replicas"] == 1, "the node is one process"
    assert ("Service", node["spec"]["serviceName"]) in named


def test_the_guide_names_every_secret_of_the_manifests() -> None:
    guide = (PACKAGING.parent / "docs" / "guides" / "deploy.md").read_text(encoding="utf-8")
    text = "".join(path.read_text(encoding="utf-8") for path in MANIFESTS)
    secrets = set(re.findall(r"(?:secretName|secretKeyRef: \{name): ([\w-]+)", text))
    assert len(secrets) >= 4
    assert {name for name in secrets if f"generic {name} " not in guide and f"tls {name} " not in guide} == set()


def _config_map(name: str) -> dict[str, Any]:
    (found,) = (one for one in all_documents() if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name)
    return dict(found["data"])


def test_the_settings_in_the_manifest_are_those_of_the_node(tmp_path: Path) -> None:
    file = tmp_path / "node.properties"
    file.write_text(_config_map("suiro-node")["node.properties"], encoding="utf-8")
    settings = NodeSettings().with_settings(read_properties(file), source="the manifest")
    assert settings.advertised_listeners == "CLIENTS://suiro-node-0.suiro-node:9092"


def test_the_application_in_the_manifest_is_a_topology() -> None:
    from suiro.streams import StreamsBuilder

    names: dict[str, Any] = {}
    exec(compile(_config_map("suiro-app-delays")["delays.py"], "delays.py", "exec"), names)
    builder = StreamsBuilder()
    names["build"](builder)
    assert "late-flights" in builder.build().describe()


def test_replaced_takes_the_longest_name_first() -> None:
    assert replaced(["a:9092 b"], {"a": "x", "a:9092": "y"}) == ["y b"]
