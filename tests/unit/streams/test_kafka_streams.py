"""What a start refuses, before Spark runs and before anything is written."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from suiro.client import Client, NewTopic
from suiro.errors import ConfigError, UsageError
from suiro.registry import RegistryClient, Schema, registry_client, use_registry_client
from suiro.streams import KafkaStreams, StreamsBuilder, TopologyError, serdes
from suiro.streams.errors import CheckpointError
from suiro.testing import TopologyTestDriver, node

TEXT = {"key": serdes.string, "value": serdes.string}


@pytest.fixture(scope="module")
def server() -> Iterator[str]:
    with node() as log:
        with Client(log.bootstrap_servers) as client:
            client.create_topics([NewTopic("two", 2), NewTopic("three", 3), NewTopic("out", 1)])
        yield log.bootstrap_servers


def streams(server: str, place: Path, build: Callable[[StreamsBuilder], Any], **options: Any) -> KafkaStreams:
    builder = StreamsBuilder()
    build(builder)
    return KafkaStreams(builder.build(), application_id="app", bootstrap_servers=server, state_dir=place, **options)


def topics(server: str) -> set[str]:
    with Client(server) as client:
        return set(client.metadata(None))


def test_what_cannot_travel_to_workers(server: str, tmp_path: Path) -> None:
    lock = threading.Lock()

    def locked(value: str) -> str:
        with lock:
            return value

    found = streams(server, tmp_path, lambda b: b.stream("two", **TEXT).map_values(locked, name="mine").to("out"))
    with pytest.raises(TopologyError, match="of mine cannot be sent to Spark's workers"):
        found.start()
    assert not list(tmp_path.iterdir())


def test_topics_that_are_cut_differently(server: str, tmp_path: Path) -> None:
    def joined(builder: StreamsBuilder) -> None:
        table = builder.table("three", **TEXT)
        builder.stream("two", **TEXT).join(table, lambda left, right: left, name="join").to("out")

    before = topics(server)
    with pytest.raises(TopologyError, match=r"three \(3\), two \(2\). .*repartition"):
        streams(server, tmp_path, joined).start()
    assert topics(server) == before
    assert not list(tmp_path.iterdir())


def test_an_application_without_its_checkpoint(server: str, tmp_path: Path) -> None:
    def counted(builder: StreamsBuilder) -> None:
        builder.stream("two", **TEXT).group_by_key().count().to_stream().to("out")

    with Client(server) as client:
        client.offset_commit("app", {("two", 0): (0, "")})
    before = topics(server)
    with pytest.raises(CheckpointError, match=r"two-0 at 0.*state_dir.*rebuild=True"):
        streams(server, tmp_path, counted).start()
    assert topics(server) == before
    assert not list(tmp_path.iterdir())


def test_stores_are_read_from_what_runs(server: str, tmp_path: Path) -> None:
    def counted(builder: StreamsBuilder) -> None:
        builder.stream("two", **TEXT).group_by_key().count().to_stream().to("out")

    with pytest.raises(UsageError, match="was not started"):
        streams(server, tmp_path, counted).store("counts")


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("minPartitions", "several tasks, and their order lost"),
        ("endingOffsets", "an application has no end"),
        ("kafka.isolation.level", "reads what is committed"),
    ],
)
def test_settings_that_an_application_cannot_have(name: str, why: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=why):
        streams("nowhere:1", tmp_path, lambda b: b.stream("two", **TEXT).to("out"), settings={name: "latest"})


@pytest.mark.parametrize("policy", ["on_processing_error", "on_deserialization_error", None])
def test_a_topology_that_reads_its_dead_letters(policy: str | None, tmp_path: Path) -> None:
    """One that failed was written there, read again and failed again, for ever."""
    of_source = {} if policy else {"on_deserialization_error": "dead-letter:two"}
    of_run = {policy: "dead-letter:two"} if policy else {}
    builder = StreamsBuilder()
    builder.stream("one", **TEXT, **of_source).merge(builder.stream("two", **TEXT, **of_source)).to("out")
    with pytest.raises(ConfigError, match="writes dead letters to topic 'two', which it also reads"):
        KafkaStreams(builder.build(), application_id="app", bootstrap_servers="h:1", state_dir=tmp_path, **of_run)
    with pytest.raises(ConfigError, match="writes dead letters to topic 'two', which it also reads"):
        TopologyTestDriver(builder.build(), **of_run)


def test_a_topology_that_makes_no_dead_letters_of_those_that_it_reads() -> None:
    builder = StreamsBuilder()
    builder.stream("in", key=serdes.string, value=serdes.long, on_deserialization_error="dead-letter:dead").to("out")
    builder.stream("dead", key=serdes.string, value=serdes.bytes).map_values(len, value=serdes.long).to("sizes")
    with TopologyTestDriver(builder.build()) as driver:
        driver.create_input_topic("in", value=serdes.string).pipe_input("a", "no long")
        assert driver.create_output_topic("sizes", value=serdes.long).read_values_to_list() == [7]


@pytest.mark.parametrize("name", ["", "..", "../other", "/etc", "...", "a\0b", "ä" * 128])
def test_an_application_id_leads_to_no_other_directory(name: str, tmp_path: Path) -> None:
    builder = StreamsBuilder()
    builder.stream("in").to("out")
    with pytest.raises(ConfigError, match="cannot be the name of a directory"):
        KafkaStreams(builder.build(), application_id=name, bootstrap_servers="h:1", state_dir=tmp_path)


@pytest.mark.parametrize(
    ("serde", "why"),
    [
        (serdes.avro, "serdes.avro of KSTREAM-SINK-0000000001: subject 'out-value' has no schema: give the serde one"),
        (serdes.avro.with_(schema={"type": "recrod"}), "serdes.avro of KSTREAM-SINK-.*: not a valid Avro schema"),
        (serdes.avro.with_(schema='"int"', auto_register=False), "not registered in subject 'out-value'"),
        (serdes.json_schema.with_(schema={"$ref": "#/x"}), r"serdes.json_schema of .*'#/x' leads nowhere"),
        (serdes.protobuf.with_(schema="message {"), "serdes.protobuf of KSTREAM-SINK-"),
    ],
)
def test_schemas_that_the_first_record_would_lack(serde: Any, why: str, tmp_path: Path) -> None:
    use_registry_client("http://registry.test", registry_client("mock://first-record"))
    made = streams(
        "nowhere:1",
        tmp_path,
        lambda b: b.stream("two", **TEXT).to("out", value=serde),
        schema_registry_url="http://registry.test",
    )
    with pytest.raises(ConfigError, match=why):
        made.start()


def test_schemas_that_are_there_or_cannot_be_known(tmp_path: Path) -> None:
    def build(builder: StreamsBuilder) -> None:
        stream = builder.stream("two", key=serdes.avro, value=serdes.avro)
        stream.to("known")
        stream.to(lambda key, value, record: f"out-{key}")
        stream.to("given", key=serdes.string, value=serdes.avro.with_(schema='"string"'))

    registry = registry_client("mock://known")
    for part in ("key", "value"):
        registry.register(f"known-{part}", Schema('"string"'))
    use_registry_client("http://known.test", registry)
    streams("h:1", tmp_path, build, schema_registry_url="http://known.test").check_settings()
    assert registry.subjects() == ["known-key", "known-value"], "the first value registers its schema"
    # A registry that does not answer now may do so when the first value comes. It is asked once.
    asked: list[httpx.Request] = []

    def unavailable(request: httpx.Request) -> httpx.Response:
        asked.append(request)
        return httpx.Response(503)

    use_registry_client(
        "http://away.test", RegistryClient("http://away.test", retries=0, transport=httpx.MockTransport(unavailable))
    )
    streams("h:1", tmp_path, build, schema_registry_url="http://away.test").check_settings()
    assert len(asked) == 1


def test_a_limit_among_the_settings_counts(tmp_path: Path) -> None:
    made = streams(
        "nowhere:1",
        tmp_path,
        lambda b: b.stream("two", **TEXT).to("out"),
        settings={"maxoffsetspertrigger": "7"},
    )
    assert made._source_options(("two",)).max_offsets_per_trigger == 7
