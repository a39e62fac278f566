"""Puts our subject in the place of the broker that kafka-python's own integration suite would start.

A pytest plugin for that suite alone (`-p support.kafka_python_broker`, run in the suite's folder): its
`KafkaFixture.instance` starts a node, or an Apache Kafka, as `SUIRO_SUBJECT` says ("node" or "kafka"), with the
security that the fixture asks for. What the suite's source distribution leaves out (`test/service.py`), or needs a
Kafka distribution for (`kafka-topics.sh`), is given here.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

from suiro.kafka import KafkaProcess, kafka_tool
from suiro.node import NodeProcess

_AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}
_LOGIN = 'username="{user}" password="{password}"'


class _Service:
    """What the suite asks of the process behind a fixture."""

    def __init__(self, *_: object) -> None:
        pass

    def dump_logs(self) -> None:
        pass

    def stop(self) -> None:
        pass


# The suite's `test` is a folder without __init__, which Python's own package of that name would hide.
suite = types.ModuleType("test")
suite.__path__ = [str(Path.cwd() / "test")]
sys.modules["test"] = suite
service = types.ModuleType("test.service")
service.ExternalService = service.SpawnedService = _Service  # type: ignore[attr-defined]
sys.modules["test.service"] = service

from test.integration import fixtures  # type: ignore[import-not-found]  # noqa: E402


def _certificates(directory: Path) -> dict[str, str]:
    """A certificate authority as `ca-cert`, and a broker's key with its certificate, as PEM."""
    run = directory / "make.sh"
    run.write_text(
        "set -e\n"
        "openssl req -x509 -newkey rsa:2048 -nodes -keyout ca-key -out ca-cert -days 2 -subj /CN=ca"
        " -addext basicConstraints=critical,CA:TRUE -addext keyUsage=critical,keyCertSign,cRLSign\n"
        "openssl req -newkey rsa:2048 -nodes -keyout broker-key -out broker-request -subj /CN=localhost\n"
        "printf 'subjectAltName=DNS:localhost,IP:127.0.0.1' > names\n"
        "openssl x509 -req -in broker-request -CA ca-cert -CAkey ca-key -CAcreateserial -days 2"
        " -extfile names -out broker-cert\n"
        "cat broker-key broker-cert ca-cert > broker.pem\n"
    )
    subprocess.run(["sh", str(run)], cwd=directory, check=True, capture_output=True)
    return {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(directory / "broker.pem"),
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": str(directory / "ca-cert"),
    }


class Broker(fixtures.KafkaFixture):  # type: ignore[misc]
    """The suite's fixture over a subject of ours."""

    kafka_root = tempfile.gettempdir()  # the suite only looks whether it is there

    def start(self) -> bool:
        if self.running:
            return True
        work = Path(tempfile.mkdtemp(prefix="kafka-python-"))
        settings = dict(_AUTHORIZER) | {
            "num.partitions": str(self.partitions),
            "auto.create.topics.enable": str(self.auto_create_topic).lower(),
            "node.id": "0",  # the suite assigns partitions to it
            "group.min.session.timeout.ms": "1000",
            "group.initial.rebalance.delay.ms": "0",
            "log.retention.ms": "-1",
        }
        options: list[str] = []
        if self.ssl_enabled:
            self.ssl_dir = str(work)
            settings |= _certificates(work)
        if self.sasl_enabled:
            login = _LOGIN.format(user=self.broker_user, password=self.broker_password)
            if self.sasl_mechanism == "PLAIN":
                module = "plain.PlainLoginModule"
                login += f' user_{self.broker_user}="{self.broker_password}"'
            else:
                module = "scram.ScramLoginModule"
                credential = f"{self.sasl_mechanism}=[name={self.broker_user},password={self.broker_password}]"
                options = ["--add-scram", credential]
            jaas = f"org.apache.kafka.common.security.{module} required {login};"
            settings["sasl.enabled.mechanisms"] = self.sasl_mechanism
            settings[f"listener.name.plaintext.{self.sasl_mechanism.lower()}.sasl.jaas.config"] = jaas
        if os.environ["SUIRO_SUBJECT"] == "kafka":
            settings["listener.security.protocol.map"] = f"PLAINTEXT:{self.transport},CONTROLLER:PLAINTEXT"
            settings["super.users"] = f"User:{self.broker_user};User:ANONYMOUS"
            if self.sasl_enabled:
                settings["sasl.mechanism.inter.broker.protocol"] = self.sasl_mechanism
            self.process: Any = KafkaProcess.start(
                work / "kafka", settings=settings, heap="512m", format_options=options
            )
        else:
            settings["listener.security.protocol.map"] = f"PLAINTEXT:{self.transport}"
            settings["listeners"] = settings["advertised.listeners"] = f"PLAINTEXT://localhost:{self.port}"
            self.process = NodeProcess.start(settings=settings, log=work / "node.log", options=options)
        self.port = int(self.process.bootstrap_servers.rpartition(":")[2])
        self.host = "localhost"
        self.child = _Service()
        self.running = True
        return True

    def open(self) -> None:
        self.start()

    def stop(self) -> None:
        if self.running:
            self.running = False
            self.process.stop()

    def close(self) -> None:
        self.stop()

    def get_topic_names(self) -> list[str]:
        arguments = ["--list", "--bootstrap-server", f"{self.host}:{self.port}"]
        if self.sasl_enabled:
            module = "plain.Plain" if self.sasl_mechanism == "PLAIN" else "scram.Scram"
            login = _LOGIN.format(user=self.broker_user, password=self.broker_password)
            with tempfile.NamedTemporaryFile("w", suffix=".properties", delete=False) as file:
                file.write(f"security.protocol={self.transport}\nsasl.mechanism={self.sasl_mechanism}\n")
                file.write(f"sasl.jaas.config=org.apache.kafka.common.security.{module}LoginModule required {login};\n")
            arguments += ["--command-config", file.name]
        command = kafka_tool("org.apache.kafka.tools.TopicCommand", arguments)
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()


def _instance(broker_id: int, **wanted: Any) -> Broker:
    wanted.pop("zookeeper", None)
    made = Broker("localhost", None, broker_id, **wanted)
    made.open()
    return made


fixtures.KafkaFixture.instance = staticmethod(_instance)
