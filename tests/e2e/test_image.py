"""The image is built and started as a cluster would start it: another user, a read-only root, no capabilities."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tarfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from support.packaging import PACKAGING
from support.waiting import wait_until

from tools import packages
from tools.packages import ROOT
from tools.smoke import round_trip

pytestmark = pytest.mark.soak  # a Debian is put together: minutes of CI's

SUITES = {(3, 11): "bookworm", (3, 13): "trixie"}
"""Of Debian, by the Python that it has."""
TOOLS = ("mmdebstrap", "buildah", "umoci", "runc")
SUIRO = "/opt/suiro/bin/suiro"
USER = 10_001
TIMEOUT_S = 1_800
START_TIMEOUT_S = 120.0


@pytest.fixture(scope="module")
def image(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The OCI archive."""
    suite = SUITES.get(sys.version_info[:2])
    missing = [tool for tool in TOOLS if shutil.which(tool) is None]
    if suite is None or missing or os.geteuid() != 0:
        pytest.skip(f"needs root, {', '.join(TOOLS)} and the Python of a Debian; missing: {missing or 'those'}")
    folder = tmp_path_factory.mktemp("image")
    built = packages.build(ROOT, folder / "dist", epoch=0)
    storage = folder / "storage.conf"
    storage.write_text(f'[storage]\ndriver = "vfs"\ngraphroot = "{folder}/graph"\nrunroot = "{folder}/run"\n')
    done = subprocess.run(
        [str(PACKAGING / "image" / "build.sh"), str(built.wheel), str(folder / "suiro.tar")],
        env={**os.environ, "CONTAINERS_STORAGE_CONF": str(storage), "PYTHON": sys.executable, "SUITE": suite},
        capture_output=True,
        text=True,
        check=False,
        timeout=TIMEOUT_S,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return folder / "suiro.tar"


@pytest.fixture(scope="module")
def bundle(image: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The image laid out, with its own command, user and environment, and what a cluster adds."""
    folder = tmp_path_factory.mktemp("bundle")
    with tarfile.open(image) as archive:
        archive.extractall(folder / "oci", filter="data")
    (found,) = json.loads((folder / "oci" / "index.json").read_text())["manifests"]
    tag = found["annotations"]["org.opencontainers.image.ref.name"]
    unpack = ["umoci", "unpack", "--image", f"{folder}/oci:{tag}", str(folder / "bundle")]
    subprocess.run(unpack, check=True, capture_output=True, timeout=TIMEOUT_S)
    data = folder / "data"
    data.mkdir()
    os.chown(data, USER, USER)
    path = folder / "bundle" / "config.json"
    config = _guarded(json.loads(path.read_text()), data)
    _need_containers(folder / "bundle", config, folder / "state")
    path.write_text(json.dumps(config))
    return folder / "bundle"


def _need_containers(bundle: Path, config: dict[str, Any], state: Path) -> None:
    """Within a container, runc may not be allowed to make another one."""
    nothing = config | {"process": config["process"] | {"args": ["/bin/true"]}}
    (bundle / "config.json").write_text(json.dumps(nothing))
    run = ["runc", "--root", str(state), "run", "--bundle", str(bundle), f"suiro-probe-{os.getpid()}"]
    done = subprocess.run(run, stdin=subprocess.DEVNULL, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        pytest.skip(f"runc starts nothing on this machine: {done.stderr}")


def _guarded(config: dict[str, Any], data: Path) -> dict[str, Any]:
    process = config["process"]
    assert process["user"] == {"uid": USER, "gid": USER}
    assert process["args"][-4:] == [SUIRO, "node", "--data", "/var/lib/suiro/node"]
    process |= {"terminal": False, "capabilities": {}, "noNewPrivileges": True}
    process["args"] += ["--listen", "127.0.0.1:0"]  # the network is this machine's, so that nothing is set up
    linux = config["linux"]
    linux["namespaces"] = [one for one in linux["namespaces"] if one["type"] != "network"]
    linux.pop("resources", None)
    config["root"]["readonly"] = True
    made = ("/etc/resolv.conf", "/sys", "/sys/fs/cgroup", "/var/lib/suiro")
    config["mounts"] = [one for one in config["mounts"] if one["destination"] not in made]
    config["mounts"] += [
        {
            "destination": "/tmp",
            "type": "tmpfs",
            "source": "tmpfs",
            "options": ["mode=1777", "nosuid", "nodev"],
        },
        {"destination": "/var/lib/suiro", "type": "bind", "source": str(data), "options": ["rbind", "rw"]},
    ]
    return config


@contextmanager
def _started(bundle: Path, folder: Path) -> Iterator[tuple[list[str], str, subprocess.Popen[bytes]]]:
    """What runs a command in the container, where its node is, and the process of its runtime."""
    name = f"suiro-{os.getpid()}"
    runc = ["runc", "--root", str(folder / "state")]
    out, errors = folder / "out", folder / "err"
    with out.open("wb") as said, errors.open("wb") as logged:
        process = subprocess.Popen(
            [*runc, "run", "--bundle", str(bundle), name],
            stdin=subprocess.DEVNULL,
            stdout=said,
            stderr=logged,
        )
    try:

        def ready() -> str:
            assert process.poll() is None, errors.read_text()
            return out.read_text().partition("\n")[0]

        line = wait_until(ready, START_TIMEOUT_S, what="the node in the container")
        yield [*runc, "exec", name], json.loads(line)["bootstrap"], process
    finally:
        subprocess.run([*runc, "delete", "--force", name], capture_output=True, check=False)
        process.kill()
        process.wait()


@pytest.mark.timeout(2 * TIMEOUT_S)
def test_a_node_of_the_image_works_and_may_do_nothing_else(bundle: Path, tmp_path: Path) -> None:
    with _started(bundle, tmp_path) as (run, at, process):
        round_trip([*run, SUIRO], at, tmp_path, dict(os.environ))
        health = [*run, SUIRO, "cluster", "--bootstrap-servers", at, "--json"]
        done = subprocess.run(health, capture_output=True, text=True, check=True, timeout=START_TIMEOUT_S)
        assert json.loads(done.stdout)["topics"] == 1
        script = "id -u; for at in / /opt/suiro /etc; do touch $at/x && echo wrote $at; done; touch /tmp/x; echo end"
        done = subprocess.run([*run, "sh", "-c", script], capture_output=True, text=True, check=False)
        assert done.stdout.split("\n")[:2] == [str(USER), "end"], done.stdout
        served = [*run, "/opt/suiro/bin/python", "-c", "import suiro.registry.server, suiro.console.web"]
        subprocess.run(served, check=True, timeout=START_TIMEOUT_S)
        dead = [*run, SUIRO, "cluster", "--bootstrap-servers", "127.0.0.1:1"]
        assert subprocess.run(dead, capture_output=True, check=False).returncode == 1
        subprocess.run([*run[:3], "kill", run[-1], "TERM"], check=True)
        assert process.wait(START_TIMEOUT_S) == 0, (tmp_path / "err").read_text()
    with _started(bundle, tmp_path) as (run, at, process):  # with the data that it kept
        read = [
            *run,
            SUIRO,
            "topic",
            "records",
            "smoke",
            "--from",
            "earliest",
            "--json",
            "--bootstrap-servers",
            at,
        ]
        done = subprocess.run(read, capture_output=True, text=True, check=True, timeout=START_TIMEOUT_S)
        assert json.loads(done.stdout)["value"] == "record"
        process.send_signal(signal.SIGTERM)  # runc hands it on
        assert process.wait(START_TIMEOUT_S) == 0, (tmp_path / "err").read_text()


def test_the_image_says_what_it_is(image: Path) -> None:
    with tarfile.open(image) as archive:

        def content(digest: str) -> Any:
            stream = archive.extractfile("blobs/" + digest.replace(":", "/"))
            assert stream is not None
            return json.loads(stream.read())

        index = archive.extractfile("index.json")
        assert index is not None
        (found,) = json.loads(index.read())["manifests"]
        manifest = content(found["digest"])
        config = content(manifest["config"]["digest"])["config"]
    assert config["User"] == f"{USER}:{USER}"
    assert config["Entrypoint"] == ["/usr/bin/tini", "--", SUIRO]
    assert config["StopSignal"] == "SIGTERM"
    assert config["Labels"]["org.opencontainers.image.title"] == "suiro"
    assert len(manifest["layers"]) == 1, "nothing below it"
