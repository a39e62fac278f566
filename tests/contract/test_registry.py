"""The registry through Confluent's own clients, blocking and asynchronous, on the node and on Apache Kafka."""

from __future__ import annotations

import contextlib
import json
import random
import threading
import warnings
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from conftest import LogUnderTest
from support.certificates import Authority
from support.registry import Blocking
from support.waiting import wait_until

from suiro.client import EARLIEST, LATEST, Client
from suiro.errors import (
    IncompatibleSchemaError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaNotFoundError,
)
from suiro.foundation.http import hash_password
from suiro.protocol.record_batch import iter_headers
from suiro.protocol.records import decode_batch
from suiro.registry import (
    InProcessRegistry,
    Reference,
    RegistryClient,
    RegistryConfig,
    RegistryProcess,
    Schema,
)

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what confluent-kafka imports warns of itself
    from confluent_kafka import schema_registry as confluent
    from confluent_kafka.schema_registry.error import SchemaRegistryError

USER, PASSWORD = "kasumi", "white:lotus"


def avro(name: str, *fields: str, type_: str = "int", default: bool = False) -> str:
    made = [{"name": one, "type": type_} | ({"default": 0} if default else {}) for one in fields]
    return json.dumps({"type": "record", "name": name, "fields": made}, separators=(",", ":"))


@pytest.fixture(scope="module")
def registry(log_under_test: LogUnderTest) -> Iterator[InProcessRegistry]:
    """A registry on a topic of its own."""
    with begin(log_under_test.bootstrap_servers, new_name()) as started:
        yield started


def new_name() -> str:
    return f"_schemas-{uuid4().hex[:8]}"


def begin(bootstrap_servers: str, topic: str, **more: Any) -> InProcessRegistry:
    return InProcessRegistry(RegistryConfig(bootstrap_servers=bootstrap_servers, port=0, topic=topic, **more))


@pytest.fixture(scope="module")
def secured(suiro_node: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[InProcessRegistry, Authority]]:
    """A registry with users and TLS."""
    folder = tmp_path_factory.mktemp("registry")
    authority = Authority(folder / "ca")
    certificate = authority.sign("registry", subject="/CN=registry")
    users = folder / "users"
    users.write_text(f"# who may call\n{USER}:{hash_password(PASSWORD)}\nplain:simple\n")
    secure = {"users": users, "tls_certificate": certificate, "tls_key": certificate}
    with begin(suiro_node.bootstrap_servers, new_name(), **secure) as started:
        yield started, authority


CLIENTS: dict[str, Callable[[dict[str, Any]], Any]] = {
    "blocking": confluent.SchemaRegistryClient,
    "asynchronous": Blocking,
}


@pytest.fixture(params=CLIENTS)
def make_client(request: pytest.FixtureRequest) -> Callable[[dict[str, Any]], Any]:
    return CLIENTS[request.param]


@pytest.fixture
def subject() -> str:
    return f"s-{uuid4().hex[:8]}"


def every_call(client: Any, s: str) -> None:
    """Each method of the client, with every argument it sends on."""
    one = confluent.Schema(avro("R", "a"), "AVRO")
    two = confluent.Schema(avro("R", "a", "b", default=True), "AVRO")
    worse = confluent.Schema(avro("R", "a", type_="string"), "AVRO")

    schema_id = client.register_schema(s, one)
    client.clear_caches()
    assert client.register_schema(s, one) == schema_id
    full = client.register_schema_full_response(s, two, normalize_schemas=True)
    assert full.version == 2
    assert full.guid
    client.clear_caches()
    assert client.get_schema(schema_id).schema_str == one.schema_str
    client.clear_caches()
    assert client.get_schema(schema_id, subject_name=s, fmt="resolved").schema_str == one.schema_str
    client.clear_caches()
    assert client.get_schema_by_guid(full.guid).schema_str == two.schema_str
    assert set(client.get_schema_types()) == {"AVRO", "JSON", "PROTOBUF"}
    assert s in client.get_subjects_by_schema_id(schema_id)
    assert client.get_subjects_by_schema_id(schema_id, subject_name=s, deleted=True, limit=5) == [s]
    places = client.get_schema_versions(schema_id, subject_name=s)
    assert [(place.subject, place.version) for place in places] == [(s, 1)]
    found = client.lookup_schema(s, two, normalize_schemas=True)
    assert (found.schema_id, found.version) == (full.schema_id, 2)
    with pytest.raises(SchemaRegistryError) as refused:
        client.lookup_schema(s, worse, deleted=True)
    assert (refused.value.http_status_code, refused.value.error_code) == (404, 40403)
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(s, worse)
    assert (refused.value.http_status_code, refused.value.error_code) == (409, 409)

    assert client.get_subjects(subject_prefix=s) == [s]
    assert client.get_subjects(subject_prefix=s, deleted_only=True) == []
    assert client.get_versions(s) == [1, 2]
    assert client.get_versions(s, offset=1, limit=1) == [2]
    latest = client.get_latest_version(s)
    assert (latest.version, latest.schema_id, latest.schema.schema_str) == (2, full.schema_id, two.schema_str)
    assert client.get_version(s, 1).schema.schema_str == one.schema_str
    assert client.get_version(s, "latest", deleted=True).version == 2

    metadata = confluent.Metadata(None, confluent.MetadataProperties({"owner": "us"}), ["owner"])
    rule = confluent.Rule("r", "d", confluent.RuleKind.CONDITION, confluent.RuleMode.WRITE, "CEL", ["PII"],
                          confluent.RuleParams({"p": "q"}), "true", "NONE", "ERROR", False)  # fmt: skip
    rules = confluent.RuleSet([], [rule])
    client.register_schema(s, confluent.Schema(two.schema_str, "AVRO", [], metadata, rules))
    tagged = client.get_latest_with_metadata(s, {"owner": "us"})
    assert tagged.version == 3
    assert tagged.schema.metadata.properties.properties == {"owner": "us"}
    assert tagged.schema.rule_set.domain_rules == [rule]

    references = [confluent.SchemaReference("R", s, 1)]
    outer = json.dumps({"type": "record", "name": "O", "fields": [{"name": "r", "type": "R"}]})
    outer_id = client.register_schema(f"{s}-outer", confluent.Schema(outer, "AVRO", references))
    assert client.get_referenced_by(s, 1) == [outer_id]
    client.clear_caches()
    assert client.get_schema(outer_id).references == references

    assert client.get_compatibility() == "BACKWARD"
    assert client.set_compatibility(s, "FULL") == {"compatibility": "FULL"}
    assert client.get_compatibility(s) == "FULL"
    assert client.test_compatibility(s, two, 2, normalize=True, verbose=True)
    assert not client.test_compatibility(s, worse)
    assert not client.test_compatibility_all_versions(s, worse, verbose=True)
    wanted = confluent.ServerConfig(
        compatibility=confluent.ConfigCompatibilityLevel.NONE,
        compatibility_group="g",
        default_metadata=metadata,
    )
    client.set_config(s, wanted)
    config = client.get_config(s)
    assert (config.compatibility_level, config.compatibility_group) == ("NONE", "g")
    assert config.default_metadata == metadata
    assert client.delete_config(s).compatibility_level == "NONE"
    with pytest.raises(SchemaRegistryError) as refused:
        client.get_compatibility(s)
    assert refused.value.error_code == 40408

    assert client.get_global_mode() == "READWRITE"
    assert client.update_global_mode("READWRITE") == "READWRITE"
    assert client.update_mode(s, "READONLY") == "READONLY"
    assert client.get_mode(s) == "READONLY"
    with pytest.raises(SchemaRegistryError) as refused:
        client.register_schema(s, worse)
    assert refused.value.error_code == 42205
    assert client.delete_mode(s) == "READONLY"
    assert client.update_mode(f"{s}-import", "IMPORT", force=True) == "IMPORT"
    assert "." in client.get_contexts(limit=10)

    request = confluent.AssociationCreateOrUpdateRequest(
        resource_name=s,
        resource_namespace="lkc",
        resource_id=f"id-{s}",
        resource_type="topic",
        associations=[confluent.AssociationCreateOrUpdateInfo(subject=s, association_type="value", lifecycle="WEAK")],
    )
    assert client.create_association(request).associations[0].subject == s
    (association,) = client.get_associations_by_resource_name(s, "lkc", "topic", ["value"])
    assert (association.subject, association.guid is not None) == (s, True)
    client.delete_associations(f"id-{s}", "topic", ["value"], cascade_lifecycle=False)
    assert client.get_associations_by_resource_name(s, "-") == []

    assert client.delete_version(s, 2) == 2
    assert client.delete_version(s, 2, permanent=True) == 2
    with pytest.raises(SchemaRegistryError) as refused:
        client.delete_subject(s)
    assert refused.value.error_code == 42206
    assert client.delete_subject(f"{s}-outer") == [1]
    assert client.delete_subject(s) == [1, 3]
    assert client.get_subjects(subject_prefix=s, deleted=True) == [s, f"{s}-outer"]
    assert client.delete_subject(f"{s}-outer", permanent=True) == [1]
    assert client.delete_subject(s, permanent=True) == [1, 3]
    assert client.get_subjects(subject_prefix=s, deleted=True) == []


def test_every_call_of_confluents_clients(
    registry: InProcessRegistry, make_client: Callable[[dict[str, Any]], Any], subject: str
) -> None:
    every_call(make_client({"url": registry.url}), subject)


def test_every_call_with_a_password_and_tls(
    secured: tuple[InProcessRegistry, Authority], make_client: Callable[[dict[str, Any]], Any], subject: str
) -> None:
    registry, authority = secured
    tls = {"url": registry.url, "ssl.ca.location": str(authority.certificate)}
    every_call(make_client({**tls, "basic.auth.user.info": f"{USER}:{PASSWORD}"}), subject)
    in_url = registry.url.replace("https://", "https://plain:simple@")
    assert make_client({**tls, "url": in_url}).get_contexts() == ["."]
    for wrong in (
        {},
        {"basic.auth.user.info": f"{USER}:white"},
        {"basic.auth.user.info": f"nobody:{PASSWORD}"},
    ):
        with pytest.raises(SchemaRegistryError) as refused:
            make_client({**tls, **wrong}).get_contexts()
        assert (refused.value.http_status_code, refused.value.error_code) == (401, 401)


def test_our_own_client(registry: InProcessRegistry, subject: str) -> None:
    with RegistryClient(registry.url) as client:
        assert client.compatible(subject, Schema(avro("R", "a"))) == []
        schema_id = client.register(subject, Schema(avro("R", "a")))
        assert client.schema(schema_id) == Schema(avro("R", "a"))
        outer = Schema('"R"', references=(Reference(name="R", subject=subject, version=1),))
        outer_id = client.register(f"{subject}-outer", outer)
        assert client.schema(outer_id) == outer
        assert client.latest(subject).version == 1
        assert client.version(subject, 1) == client.lookup(subject, Schema(avro("R", "a")))
        with pytest.raises(IncompatibleSchemaError, match="TYPE_MISMATCH"):
            client.register(subject, Schema(avro("R", "a", type_="string")))
        assert client.compatible(subject, Schema(avro("R", "a", type_="string")))
        with pytest.raises(SchemaNotFoundError) as missing:
            client.latest("nix")
        assert missing.value.error_code == 40401
        with pytest.raises(RegistryRefusedError, match="42201"):
            client.register(subject, Schema("{"))
        client.set_compatibility("NONE", subject)
        assert client.register(subject, Schema(avro("R", "a", type_="string"))) > outer_id
        assert subject in client.subjects()


def test_the_serialisers_of_confluents_client(registry: InProcessRegistry, subject: str) -> None:
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

    client = confluent.SchemaRegistryClient({"url": registry.url})
    context = SerializationContext(subject, MessageField.VALUE)
    value = {"a": 1, "b": "two"}
    record = json.dumps(
        {
            "type": "record",
            "name": "V",
            "fields": [{"name": "a", "type": "int"}, {"name": "b", "type": "string"}],
        }
    )
    data = AvroSerializer(client, record)(value, context)
    assert AvroDeserializer(confluent.SchemaRegistryClient({"url": registry.url}))(data, context) == value

    context = SerializationContext(f"{subject}-json", MessageField.VALUE)
    described = json.dumps({"title": "V", "type": "object", "properties": {"a": {"type": "integer"}}})
    data = JSONSerializer(described, client)(value, context)
    assert JSONDeserializer(described, schema_registry_client=client)(data, context) == value

    # A message of a file that imports another, which becomes a reference. Registered as descriptors.
    context = SerializationContext(f"{subject}-proto", MessageField.VALUE)
    flight = _flight_class(subject.replace("-", "_"))
    message = flight(carrier="UA", at={"seconds": 7})
    message.seats.add(row=3)
    settings = {"use.deprecated.format": False}
    data = ProtobufSerializer(flight, client, settings)(message, context)
    fresh = confluent.SchemaRegistryClient({"url": registry.url})
    assert ProtobufDeserializer(flight, settings, fresh)(data, context) == message
    stored = RegistryClient(registry.url).latest(f"{subject}-proto-value").schema
    assert stored.type == "PROTOBUF"
    assert [one.version for one in stored.references] == [1]
    assert "repeated Seat seats = 2;" in stored.text


def _flight_class(package: str) -> Any:
    """A message class as protoc would generate it from two files."""
    from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, timestamp_pb2

    kinds = descriptor_pb2.FieldDescriptorProto
    seat = descriptor_pb2.FileDescriptorProto(name=f"{package}/seat.proto", package=package, syntax="proto3")
    seat.message_type.add(name="Seat").field.add(name="row", number=1, label=1, type=kinds.TYPE_INT32)
    flight = descriptor_pb2.FileDescriptorProto(name=f"{package}/flight.proto", package=package, syntax="proto3")
    flight.dependency.extend([seat.name, "google/protobuf/timestamp.proto"])
    made = flight.message_type.add(name="Flight")
    made.field.add(name="carrier", number=1, label=1, type=kinds.TYPE_STRING)
    made.field.add(name="seats", number=2, label=3, type=kinds.TYPE_MESSAGE, type_name=f".{package}.Seat")
    stamp = ".google.protobuf.Timestamp"
    made.field.add(name="at", number=3, label=1, type=kinds.TYPE_MESSAGE, type_name=stamp)
    pool = descriptor_pool.Default()
    assert timestamp_pb2.DESCRIPTOR.pool is pool
    for file in (seat, flight):
        pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{package}.Flight"))


# -- one log ---------------------------------------------------------------------------------------------


def read_log(bootstrap_servers: str, topic: str) -> list[tuple[bytes | None, bytes | None]]:
    """(key, value) from the first record to the last."""
    target = (topic, 0)
    with Client(bootstrap_servers) as client:
        position = client.list_offsets({target: EARLIEST})[target].offset
        end = client.list_offsets({target: LATEST})[target].offset
        found = []
        while position < end:
            data = bytes(client.fetch({target: position}, read_committed=False)[target].data)
            for place, header in iter_headers(data):
                if place + header.size <= len(data):
                    assert not header.is_control
                    assert not header.is_transactional
                    found += [(one.key, one.value) for one in decode_batch(data, place) if one.offset >= position]
                    position = header.next_offset
    return found


def schemas_in(log: list[tuple[bytes | None, bytes | None]]) -> list[dict[str, Any]]:
    return [json.loads(value) for key, value in log if value and key and b'"SCHEMA"' in key]


def test_two_registries_on_one_log(log_under_test: LogUnderTest) -> None:
    """Both register the same new schemas at the same time, in an order of their own: one id and version each."""
    bootstrap, topic = log_under_test.bootstrap_servers, new_name()
    names = [f"s{n}" for n in range(20)]
    with begin(bootstrap, topic) as first, begin(bootstrap, topic) as second, ThreadPoolExecutor(4) as pool:

        def register_all(job: int) -> dict[str, int]:
            order = random.Random(job).sample(names, len(names))
            with RegistryClient((first, second)[job % 2].url) as client:
                return {name: client.register(name, Schema(avro(name, "a"))) for name in order}

        answers = list(pool.map(register_all, range(4)))
        assert all(answer == answers[0] for answer in answers)
        assert sorted(answers[0].values()) == list(range(1, len(names) + 1))
        # What one answered the other finds at once; what can change, such as the latest version, soon.
        with RegistryClient(first.url) as one, RegistryClient(second.url) as other:
            for n in range(10):
                schema = Schema(avro("T", *(f"f{i}" for i in range(n)), default=True))
                schema_id = one.register("turns", schema)
                assert other.schema(schema_id) == schema
                assert other.version("turns", n + 1).id == other.lookup("turns", schema).id == schema_id
                wait_until(lambda: other.latest("turns").id == schema_id, what="the other's latest version")  # noqa: B023
                one, other = other, one
    written = schemas_in(read_log(bootstrap, topic))
    assert len(written) == len(names) + 10
    assert len({(value["subject"], value["version"]) for value in written}) == len(written)
    assert len({value["id"] for value in written}) == len(written)


def test_a_registry_that_is_killed_while_it_registers(log_under_test: LogUnderTest, tmp_path: Path) -> None:
    """kill -9 at drawn moments: what was answered is there afterwards, and no id means two schemas."""
    draw = random.Random(20_261_121)
    bootstrap, topic = log_under_test.bootstrap_servers, new_name()
    answered: dict[str, int] = {}
    number = 0
    for _ in range(3):
        process = RegistryProcess.start(bootstrap, options=["--topic", topic], log=tmp_path / "log")
        client = RegistryClient(process.url, retries=0)

        def register_until_it_dies(client: RegistryClient = client) -> None:
            nonlocal number
            with contextlib.suppress(RegistryUnavailableError):
                while True:
                    # Again under the name that had no answer: it may be in the log, or not.
                    name = f"s{number}"
                    answered[name] = client.register(name, Schema(avro(name, "a")))
                    number += 1

        writer = threading.Thread(target=register_until_it_dies)
        writer.start()
        last = number + draw.randint(1, 40)
        wait_until(lambda: number >= last, what="the drawn moment")  # noqa: B023
        process.kill()
        writer.join()
        client.close()
    assert len(answered) > 3
    with (
        RegistryProcess.start(bootstrap, options=["--topic", topic]) as process,
        RegistryClient(process.url) as after,
    ):
        for name, schema_id in answered.items():
            assert after.latest(name).id == schema_id
            assert after.schema(schema_id) == Schema(avro(name, "a"))
        assert after.register("next", Schema(avro("next", "a"))) > max(answered.values())
    written = schemas_in(read_log(bootstrap, topic))
    assert len({value["id"] for value in written}) == len({value["subject"] for value in written}) == len(written)


def test_an_id_is_never_given_again_though_compaction_took_its_schema(log_under_test: LogUnderTest) -> None:
    """The highest id is in a record that stays, also when the tombstones are gone, a day later."""
    bootstrap, topic = log_under_test.bootstrap_servers, new_name()
    with begin(bootstrap, topic) as started, RegistryClient(started.url) as client:
        client.register("s", Schema('"int"'))
        last = client.register("t", Schema('"long"'))
        plain = confluent.SchemaRegistryClient({"url": started.url})
        plain.delete_subject("t")
        plain.delete_subject("t", permanent=True)
    copied = f"{topic}-copy"
    _copy_compacted(bootstrap, topic, copied)
    with begin(bootstrap, copied) as started, RegistryClient(started.url) as client:
        assert client.subjects() == ["s"]
        assert client.register("u", Schema('"string"')) == last + 1


def _copy_compacted(bootstrap: str, topic: str, copied: str) -> None:
    from suiro.client import NewTopic
    from suiro.protocol.records import Record, encode_batch

    target = (topic, 0)
    with Client(bootstrap) as client:
        data = bytes(client.fetch({target: 0}, read_committed=False)[target].data)
        last: dict[bytes | None, Record] = {}
        for place, _ in iter_headers(data):
            for one in decode_batch(data, place):
                last[one.key] = one
        kept = [one for one in last.values() if one.value is not None]
        client.create_topics([NewTopic(copied, 1, configs={"cleanup.policy": "compact"})])
        records = [
            Record(offset=n, timestamp=one.timestamp, key=one.key, value=one.value, headers=one.headers)
            for n, one in enumerate(kept)
        ]
        client.produce({(copied, 0): encode_batch(records)})


# -- the process -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("settings", "message"),
    [({"cleanup.policy": "delete"}, "cleanup.policy=delete"), ({"partitions": "2"}, "2 partitions")],
)
def test_a_topic_that_schemas_cannot_live_in(
    client: Client, log_under_test: LogUnderTest, settings: dict[str, str], message: str
) -> None:
    from suiro.client import NewTopic
    from suiro.errors import ConfigError

    topic = f"bad-{uuid4().hex[:8]}"
    configs = {"cleanup.policy": "compact"} | settings
    partitions = int(configs.pop("partitions", "1"))
    client.create_topics([NewTopic(topic, partitions, configs=configs)])
    with pytest.raises(ConfigError, match=message):
        begin(log_under_test.bootstrap_servers, topic)


def test_it_stops_cleanly_and_its_port_is_taken_once(suiro_node: Any, tmp_path: Path) -> None:
    from suiro.errors import ConfigError

    process = RegistryProcess.start(suiro_node.bootstrap_servers, options=["--topic", "_schemas-stop"])
    listen = process.url.removeprefix("http://")
    with pytest.raises(ConfigError, match="cannot listen"):
        RegistryProcess.start(suiro_node.bootstrap_servers, listen=listen, log=tmp_path / "log")
    assert process.stop() == 0


def test_reading_goes_on_while_the_log_is_away(tmp_path: Path) -> None:
    """Also while more writes wait for the log than there are threads for them; then everything goes on."""
    from suiro.node import NodeProcess
    from suiro.registry.app import WRITING_THREADS

    schema = Schema('"int"')
    with NodeProcess.start(data=tmp_path / "data") as node:
        address = node.bootstrap_servers
        with (
            begin(address, "_schemas", timeout_ms=1_500) as registry,
            RegistryClient(registry.url, retries=0) as client,
        ):
            schema_id = client.register("s", schema)
            node.kill()
            with ThreadPoolExecutor(WRITING_THREADS * 2) as pool:

                def write(n: int) -> int:
                    with pytest.raises(RegistryUnavailableError) as refused:
                        RegistryClient(registry.url, retries=0).register(f"new-{n}", Schema('"long"'))
                    return refused.value.error_code

                written = [pool.submit(write, n) for n in range(WRITING_THREADS * 2)]
                with RegistryClient(registry.url, retries=0) as reader:
                    assert reader.schema(schema_id) == schema
                    assert reader.latest("s").id == schema_id
                    assert reader.register("s", schema) == schema_id  # nothing is to be written
                    with pytest.raises(RegistryUnavailableError, match="50002"):
                        reader.schema(99)  # which another registry may have written
                assert {one.result() for one in written} == {50002}
            with NodeProcess.start(data=tmp_path / "data", listen=address):
                assert RegistryClient(registry.url).register("t", Schema('"string"')) > schema_id
