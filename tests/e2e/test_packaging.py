"""What is below `packaging` runs: a node tells systemd that it answers, and what the manifests start works together."""

from __future__ import annotations

import json
import os
import signal
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
from support.certificates import Authority
from support.packaging import PACKAGING, all_documents, container, replaced, unit_command
from support.waiting import wait_until

from suiro.foundation.readiness import NOTIFY_SOCKET

NODE = "suiro-node-0.suiro-node:9092"
PASSWORD = "of-a-secret"
TIMEOUT_S = 120.0
_CREDENTIALS = struct.Struct("3i")


@contextmanager
def _running(
    words: list[str], log: Path, env: Mapping[str, str] | None = None
) -> Iterator[tuple[subprocess.Popen[bytes], dict[str, Any]]]:
    """`suiro WORDS` and what it said when it was ready; it ends with SIGTERM, and with 0."""
    with log.open("wb") as errors, log.with_suffix(".out").open("wb") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "suiro", *words],
            stdout=out,
            stderr=errors,
            env={**os.environ, **(env or {})},
        )
    try:

        def ready() -> str:
            assert process.poll() is None, log.read_text()
            return log.with_suffix(".out").read_text().partition("\n")[0]

        yield process, json.loads(wait_until(ready, TIMEOUT_S, what=f"suiro {words[0]}"))
        process.send_signal(signal.SIGTERM)
        assert process.wait(TIMEOUT_S) == 0, log.read_text()
    finally:
        process.kill()
        process.wait()


def test_the_unit_of_the_node_hears_once_and_from_the_node(tmp_path: Path) -> None:
    _, *words = unit_command(PACKAGING / "systemd" / "suiro-node.service")
    settings = (PACKAGING / "systemd" / "node.properties").read_text()
    (tmp_path / "node.properties").write_text(settings.replace("127.0.0.1:9092", "127.0.0.1:0"))
    words = replaced(words, {"/etc/suiro": str(tmp_path), "/var/lib/suiro": str(tmp_path)})
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as systemd:
        systemd.bind(str(tmp_path / "notify"))
        systemd.setsockopt(socket.SOL_SOCKET, socket.SO_PASSCRED, 1)
        systemd.settimeout(TIMEOUT_S)
        env = {NOTIFY_SOCKET: str(tmp_path / "notify")}
        with _running([*words, "--registry", "127.0.0.1:0"], tmp_path / "node.log", env) as (node, ready):
            told, extra, _, _ = systemd.recvmsg(100, socket.CMSG_SPACE(_CREDENTIALS.size))
            assert told == b"READY=1"
            assert _CREDENTIALS.unpack(extra[0][2])[0] == node.pid
            assert httpx.get(f"{ready['registry']}/subjects", timeout=TIMEOUT_S).json() == []
        systemd.setblocking(False)
        with pytest.raises(BlockingIOError):  # the registry is ready, too, and systemd did not ask it
            systemd.recv(100)


def _file_of(name: str) -> str:
    return next(
        text
        for one in all_documents()
        if one["kind"] == "ConfigMap"
        for file, text in one["data"].items()
        if file == name
    )


def test_what_the_manifests_start_works_together(tmp_path: Path) -> None:
    """With the secrets that the guide makes, and this machine's address in place of the cluster's names."""
    authority = Authority(tmp_path / "authority")
    folders = {name: tmp_path / name for name in ("node", "client", "tls", "users", "data")}
    for folder in folders.values():
        folder.mkdir()
    authority.sign("node", subject="/CN=node").rename(folders["tls"] / "node.pem")
    whole = authority.sign("console", subject="/CN=console").read_text()
    (folders["tls"] / "tls.key").write_text(whole[: whole.index("-----BEGIN CERTIFICATE")])
    (folders["tls"] / "tls.crt").write_text(whole[whole.index("-----BEGIN CERTIFICATE") :])
    (folders["client"] / "ca.pem").write_text(authority.certificate.read_text())
    (folders["users"] / "users").write_text(f"[admin]\nservices:{PASSWORD}\n")
    there = {f"/etc/suiro/{name}": str(folder) for name, folder in folders.items()}
    there |= {"/var/lib/suiro": str(folders["data"]), "$(SERVICES_PASSWORD)": PASSWORD}
    there |= {"$(REGISTRY_PASSWORD)": PASSWORD}
    there |= {f"0.0.0.0:{port}": "127.0.0.1:0" for port in (8081, 8090, 9092, 9404)}

    def words(name: str, found: list[str]) -> list[str]:
        result = replaced(found, there)
        assert not [word for word in result if "suiro-" in word or "$(" in word or "/etc/suiro" in word], name
        return result

    settings = _file_of("node.properties").replace(f"advertised.listeners=CLIENTS://{NODE}\n", "")
    (folders["node"] / "node.properties").write_text("\n".join(replaced(settings.splitlines(), there)))
    client = (PACKAGING / "kubernetes" / "client.properties.example").read_text()
    (folders["client"] / "client.properties").write_text(
        "\n".join(replaced(client.splitlines(), there | {"PASSWORD": PASSWORD}))
    )
    with ExitStack() as stack:
        _, ready = stack.enter_context(_running(words("node", container("node")["args"]), tmp_path / "node.log"))
        there[NODE] = ready["bootstrap"]
        assert httpx.get(ready["metrics"], timeout=TIMEOUT_S).status_code == 200
        _, ready = stack.enter_context(
            _running(words("registry", container("registry")["args"]), tmp_path / "registry.log")
        )
        there["suiro-registry:8081"] = ready["registry"].removeprefix("http://")
        _, ready = stack.enter_context(
            _running(words("console", container("console")["args"]), tmp_path / "console.log")
        )
        assert httpx.get(f"{ready['url']}/api/me", verify=False, timeout=TIMEOUT_S).status_code == 401
        asked = words("probe", container("node")["readinessProbe"]["exec"]["command"][1:])
        done = subprocess.run(
            [sys.executable, "-m", "suiro", *asked], capture_output=True, text=True, timeout=TIMEOUT_S
        )
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["without_leader"] == 0
