"""A host without a version: what is wrong is said before anything is written; one host serves a log; a killed one goes
on."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient
from support.share import one_of
from support.views import HostProcess

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch
from suiro.views import Views

APP = """
from suiro.streams import serdes
from suiro.views import view

def by_carrier(builder, topic):
    flights = builder.stream(topic, key=serdes.string, value=serdes.json)
    return flights.group_by(lambda key, flight: flight["carrier"], key=serdes.string)

@view("delays", key="carrier")
def counted(builder):
    return by_carrier(builder, "{topic}").count()

@view("delays", key="carrier")
def of_nothing(builder):
    return by_carrier(builder, "{topic}-nowhere").count()

@view("delays", key="carrier")
def wrong(builder):
    return builder.nothing()

@view("delays", key="carrier")
def no_table(builder):
    return builder.stream("{topic}", key=serdes.string, value=serdes.json)

@view("delays", key="carrier", serve="postgres")
def in_postgres(builder):
    return by_carrier(builder, "{topic}").count()

def plain(builder):
    pass
"""


@pytest.fixture(scope="module")
def host(suiro_node: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[HostProcess]:
    made = HostProcess(suiro_node.bootstrap_servers, tmp_path_factory.mktemp("host") / "views")
    yield made
    if made.process.poll() is None:
        made.stop()


@pytest.fixture
def app(suiro_node: Any, tmp_path: Path) -> Path:
    topic = f"flights-{uuid4().hex[:8]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1, configs={"retention.ms": "-1"})])
    path = tmp_path / "delays_app.py"
    path.write_text(APP.format(topic=topic))
    return path


@pytest.mark.parametrize(
    ("function", "said"),
    one_of(
        2,
        [
            ("of_nothing", "which does not exist; create it first"),
            (
                "wrong",
                "AttributeError: 'StreamsBuilder' object has no attribute 'nothing' (delays_app.py, line ",
            ),
            ("no_table", "it must return its table"),
            ("in_postgres", "was started without --postgres DSN"),
            ("plain", "has no view 'plain'"),
        ],
    ),
)
def test_a_version_that_cannot_work_is_refused(host: HostProcess, app: Path, function: str, said: str) -> None:
    assert said in host.cli("deploy", f"{app}:{function}", ok=False)
    assert views_of(host) == []


def views_of(host: HostProcess) -> list[dict[str, Any]]:
    with Views(host.url) as views:
        return views.views()


@pytest.mark.parametrize(
    ("setting", "said"),
    one_of(
        2,
        [
            ("max.offsets.per.trigger=lots", "setting max.offsets.per.trigger is 'lots'; give a number"),
            ("on.processing.error=ignore", "on_processing_error='ignore' is none of"),
            ("startingOfsets=earliest", "startingOfsets"),
            ("jvm=two", "setting jvm is 'two'; give one of shared, own"),
        ],
    ),
)
def test_settings_that_cannot_be_are_refused(host: HostProcess, app: Path, setting: str, said: str) -> None:
    assert said in host.cli("deploy", f"{app}:counted", "--set", setting, ok=False)
    assert views_of(host) == []


def test_inputs_whose_beginning_is_gone(host: HostProcess, suiro_node: Any, app: Path) -> None:
    topic = app.read_text().partition('builder, "')[2].partition('"')[0]
    with Client(suiro_node.bootstrap_servers) as client:
        records = [Record(offset=at, timestamp=1_700_000_000_000, key=None, value=b"{}") for at in range(4)]
        client.produce({(topic, 0): encode_batch(records)})
    admin = AdminClient({"bootstrap.servers": suiro_node.bootstrap_servers})
    for gone in admin.delete_records([TopicPartition(topic, 0, 2)]).values():
        gone.result()
    said = host.cli("deploy", f"{app}:counted", ok=False)
    assert f"{topic}-0 begins at offset 2" in said
    assert views_of(host) == []


def test_a_folder_has_one_host(host: HostProcess, suiro_node: Any) -> None:
    done = serve(suiro_node.bootstrap_servers, host.data)
    assert done.returncode == 1
    assert "another host of views runs on" in done.stderr


def test_beyond_the_loopback_address_only_with_users(suiro_node: Any, tmp_path: Path) -> None:
    done = serve(suiro_node.bootstrap_servers, tmp_path / "views", "--listen", "0.0.0.0:0")
    assert done.returncode == 1
    assert "name them with --auth-file" in done.stderr


def serve(bootstrap_servers: str, data: Path, *options: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "suiro", "view", "serve", "--bootstrap-servers", bootstrap_servers]
    command += ["--data", str(data), "--listen", "127.0.0.1:0", *options]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)


def test_what_is_not_there(host: HostProcess) -> None:
    assert "there is no view 'nothing'; there are: none yet" in host.cli("status", "nothing", ok=False)
    assert "there is no view 'nothing'" in host.cli("rollback", "nothing", ok=False)


def test_a_later_host_takes_over_and_a_killed_one_starts_again(
    host: HostProcess, suiro_node: Any, tmp_path: Path
) -> None:
    """The last test of this file: the host that all share ends here."""
    host.kill()
    assert "no host of views answers" in host.cli("status", ok=False)
    host.start()
    assert views_of(host) == []
    later = HostProcess(suiro_node.bootstrap_servers, tmp_path / "views")
    assert host.process.wait(60) == 1
    assert f"another host took these views over: {later.url}" in host.log.read_text()
    assert later.cli("status") == []
    assert later.stop() == 0
