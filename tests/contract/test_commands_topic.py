"""`suiro topic` and `suiro cluster` on the node and on Apache Kafka, as one calls them."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import LogUnderTest
from support.commands import Done, suiro
from support.scripted_broker import ScriptedBroker, metadata_script

from suiro.client import Client, NewTopic
from suiro.protocol.records import Record, encode_batch

NewTopicFixture = Callable[..., str]
Call = Callable[..., Done]


@pytest.fixture
def call(log_under_test: LogUnderTest) -> Call:
    """`suiro topic ...` on the log under test."""
    return lambda *arguments, **more: suiro(
        "topic", *arguments, "--bootstrap-servers", log_under_test.bootstrap_servers, **more
    )


def test_a_topic_from_its_creation_to_its_end(call: Call, client: Client, unique: str) -> None:
    made = call("create", unique, "--partitions", "2", "--replication-factor", "1", "--config", "retention.ms=-1")
    assert (made.code, made.out) == (0, f"created topic {unique}\n")
    assert [unique, "2", "1", "0", "0"] in call("list").rows
    listed = {one["name"]: one for one in call("list", "--json").json}
    assert listed[unique]["partitions"] == 2
    assert call("create", unique, "--if-not-exists").code == 0
    again = call("create", unique)
    assert again.code == 1
    assert "the topic exists already" in again.err
    assert again.err.count("\n") == 1

    client.produce({(unique, 1): encode_batch([Record(offset=0, timestamp=1, key=None, value=b"x")])})
    (described,) = call("describe", unique, "--json").json
    assert [(row["partition"], row["first_offset"], row["end_offset"]) for row in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 1),
    ]
    assert described["partitions"][1]["size_bytes"] > 0
    text = call("describe", unique).out
    assert "retention.ms=-1 (topic)" in text
    assert "segment.bytes" not in text
    assert "segment.bytes=" in call("describe", unique, "--configs").out

    assert call("alter", unique, "--partitions", "3", "--dry-run").code == 0
    assert call("alter", unique, "--partitions", "3", "--config", "max.message.bytes=5000").code == 0
    assert len(client.metadata([unique])[unique].partitions) == 3
    assert call("alter", unique, "--delete-config", "max.message.bytes").code == 0
    fewer = call("alter", unique, "--partitions", "1")
    assert fewer.code == 1
    assert "a topic cannot get fewer" in fewer.err

    assert call("delete-records", unique, "--yes").rows == [["0", "0"], ["1", "1"], ["2", "0"]]
    refused = call("delete", unique)
    assert refused.code == 2
    assert "give --yes" in refused.err
    assert unique in client.metadata([unique])
    assert call("delete", unique, "--yes").code == 0
    assert client.metadata([unique]) == {}
    assert call("delete", unique, "--yes", "--if-exists").code == 0


def test_numbers_and_names_that_no_request_has_room_for(call: Call, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    many, long = str(10**12), "n" * 70_000
    for words in (
        ("create", f"{name}-2", "--partitions", many),
        ("create", f"{name}-2", "--replication-factor", many),
        ("alter", name, "--partitions", many),
        ("delete-records", name, "--before", f"0={10**30}", "--yes"),
        ("delete-records", name, "--before", f"{many}=0", "--yes"),
        ("describe", long),
        ("alter", name, "--config", f"retention.ms={long}"),
    ):
        done = call(*words)
        assert (done.code, done.out) == (1, ""), words
        assert done.err.startswith("suiro: ")
        assert done.err.count("\n") == 1
        # Brokers hang up on a long text. It was sent again for 20 s, and the error was about the connection.
        assert ("at most 32767" in done.err) == (long in " ".join(words))


def test_a_name_that_is_nearly_right(call: Call, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    done = call("describe", name[:-1])
    assert done.code == 1
    assert repr(name) in done.err


def test_internal_topics_are_listed_when_asked_for(call: Call, client: Client, unique: str) -> None:
    name = f"t-{unique}"
    client.create_topics([NewTopic(name, 1)])
    client.offset_commit(unique, {(name, 0): (0, "")})
    assert "__consumer_offsets" not in [row[0] for row in call("list").rows]
    assert "__consumer_offsets" in [row[0] for row in call("list", "--internal").rows]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (("alter", "t"), "--partitions"),
        (("alter", "t", "--config", "retention.ms"), "NAME=VALUE"),
        (("create",), "TOPIC"),
        (("create", "t", "--partitions", "many"), "many"),
        (("delete-records", "t", "--before", "0=x"), "PARTITION=OFFSET"),
        (("no-such",), "no-such"),
        (("list", "--no-such"), "--no-such"),
    ],
)
def test_a_wrong_call_is_exit_code_2(call: Call, arguments: tuple[str, ...], said: str) -> None:
    done = call(*arguments)
    assert done.code == 2
    assert said in done.err


@pytest.mark.parametrize("name", ["a b", "x" * 250, "..", "a/../b", "\x1b[31mred", "naïve"])
def test_names_that_no_topic_may_have(call: Call, name: str) -> None:
    for done in (call("create", name), call("describe", name)):
        assert done.code == 1
        assert "\x1b" not in done.err
        assert done.err.count("\n") == 1


def test_the_cluster_at_a_glance(log_under_test: LogUnderTest, new_topic: NewTopicFixture) -> None:
    new_topic(2)
    done = suiro("cluster", "--bootstrap-servers", log_under_test.bootstrap_servers, "--json")
    assert done.json["topics"] >= 1
    assert done.json["partitions"] >= 2
    assert (done.json["under_replicated"], done.json["without_leader"]) == (0, 0)
    text = suiro("cluster", "--bootstrap-servers", log_under_test.bootstrap_servers).out
    assert done.json["cluster_id"] in text


# -- where the cluster is --------------------------------------------------------------------------------------


def profiles(folder: Path, text: str, mode: int = 0o600) -> dict[str, str]:
    path = folder / "suiro" / "profiles.toml"
    path.parent.mkdir()
    path.write_text(text, encoding="utf-8")
    path.chmod(mode)
    return {"XDG_CONFIG_HOME": str(folder)}


def test_an_address_from_the_environment_or_a_profile(bootstrap: str, tmp_path: Path) -> None:
    assert suiro("topic", "list", env={"SUIRO_BOOTSTRAP_SERVERS": bootstrap}).code == 0
    env = profiles(
        tmp_path,
        f'[default]\nbootstrap.servers = "{bootstrap}"\n[other]\nbootstrap.servers = "127.0.0.1:1"\n'
        'sasl.password = "hunter2"\nsocket.connection.setup.timeout.ms = "100"\n'
        '[typo]\nbootstrap.servers = "x:1"\nsecurity.protocl = "SSL"\n'
        '[absent]\nsasl.password = "${env:NO_SUCH_VARIABLE}"\n',
    )
    assert suiro("topic", "list", env=env).code == 0
    assert suiro("topic", "list", "--profile", "other", "--bootstrap-servers", bootstrap, env=env).code == 0
    # A profile that is named is meant, whatever the environment says.
    other = suiro("topic", "list", env={**env, "SUIRO_PROFILE": "other", "SUIRO_BOOTSTRAP_SERVERS": bootstrap})
    assert (other.code, "127.0.0.1:1" in other.err, "hunter2" in other.err) == (1, True, False)
    typo = suiro("topic", "list", "--profile", "typo", env=env)
    assert (typo.code, "security.protocol" in typo.err) == (1, True)
    absent = suiro("topic", "list", "--profile", "absent", env=env)
    assert (absent.code, "NO_SUCH_VARIABLE" in absent.err) == (1, True)
    unknown = suiro("topic", "list", "--profile", "unknown", env=env)
    assert (unknown.code, "absent, default, other, typo" in unknown.err) == (1, True)


def test_a_password_that_others_can_read_is_told_of(bootstrap: str, tmp_path: Path) -> None:
    text = f'[default]\nbootstrap.servers = "{bootstrap}"\nsasl.password = "hunter2"\n'
    done = suiro("topic", "list", env=profiles(tmp_path, text, 0o644))
    assert done.code == 0
    assert "chmod 600" in done.err
    assert "hunter2" not in done.err + done.out


def test_settings_in_a_file_as_kafkas_tools_have_them(bootstrap: str, tmp_path: Path) -> None:
    path = tmp_path / "client.properties"
    path.write_text("client.id=from-a-file\nsecurity.protocol=SASL_PLAINTEXT\nsasl.mechanism=PLAIN\n")
    done = suiro("topic", "list", "--bootstrap-servers", bootstrap, "--command-config", str(path))
    assert done.code == 1
    assert "sasl.username" in done.err


# -- brokers that are not there, or are none -------------------------------------------------------------------


def test_a_broker_that_is_not_there_is_one_line(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))  # and does not listen
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        config = tmp_path / "client.properties"
        config.write_text("request.timeout.ms=500\nsocket.connection.setup.timeout.ms=500\n")
        done = suiro("topic", "list", "--bootstrap-servers", address, "--command-config", str(config))
    assert done.code == 1
    assert "is a broker running there?" in done.err
    assert done.err.count("\n") == 1


def test_a_reader_that_goes_away_is_no_error(bootstrap: str, client: Client) -> None:
    script = f"{sys.executable} -m suiro topic list --bootstrap-servers {bootstrap} | head -n 1"
    done = subprocess.run(["bash", "-o", "pipefail", "-c", script], capture_output=True, text=True, check=False)
    assert "Traceback" not in done.stderr
    assert done.stdout.startswith("topic\t")


FORBIDDEN = ("pyspark", "pandas", "numba", "pyarrow", "numpy", "typer", "rich", "pydantic", "hypothesis")


@pytest.mark.parametrize("command", ["topic list", "app --help"])
def test_nothing_heavy_is_imported(suiro_node: Any, command: str) -> None:
    script = (
        f"import sys; sys.argv = {['suiro', *command.split()]}\n"
        "from suiro.cli import main\n"
        "try: main()\n"
        "except SystemExit as stop: assert not stop.code, stop.code\n"
        f"print([name for name in {FORBIDDEN} if sys.modules.get(name)], file=sys.stderr)"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        env={"SUIRO_BOOTSTRAP_SERVERS": suiro_node.bootstrap_servers},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "[]\n")


@pytest.fixture
def scripted() -> Iterator[ScriptedBroker]:
    made = ScriptedBroker(1)
    yield made
    made.close()


def test_ten_thousand_topics_are_listed(scripted: ScriptedBroker) -> None:
    names = [f"t{number:05}" for number in range(10_000)]
    scripted.script["metadata"] = metadata_script([scripted], {(name, 0): 1 for name in names})
    done = suiro("topic", "list", "--bootstrap-servers", scripted.bootstrap_servers, "--json")
    assert [one["name"] for one in done.json] == names
    assert scripted.asked == ["metadata"]


def test_names_that_a_terminal_would_obey_are_escaped(scripted: ScriptedBroker) -> None:
    """A broker may call a topic what it likes."""
    hostile = "a\x1b[2J\n\u202eb\x9b"
    scripted.script["metadata"] = metadata_script([scripted], {(hostile, 0): 1})
    done = suiro("topic", "list", "--bootstrap-servers", scripted.bootstrap_servers)
    assert [row[0] for row in done.rows] == [r"a\x1b[2J\n\u202eb\x9b"]
    shown = suiro("topic", "list", "--bootstrap-servers", scripted.bootstrap_servers, "--json")
    assert shown.out.isascii()
    assert "\x1b" not in shown.out
    assert shown.json[0]["name"] == hostile


def test_a_broker_that_goes_away_while_it_is_asked(scripted: ScriptedBroker, tmp_path: Path) -> None:
    scripted.script["metadata"] = lambda request: None
    config = tmp_path / "client.properties"
    config.write_text("default.api.timeout.ms=300\n")
    done = suiro("topic", "list", "--bootstrap-servers", scripted.bootstrap_servers, "--command-config", str(config))
    assert done.code == 1
    assert "the broker closed the connection" in done.err
    assert done.err.count("\n") == 1
