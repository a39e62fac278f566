"""Serdes of a registry beside Confluent's serialisers, round trips both ways, evolution, subjects."""

from __future__ import annotations

import datetime
import decimal
import json
import pickle
import uuid
import warnings
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import pytest

from suiro.errors import IncompatibleSchemaError
from suiro.registry import InProcessRegistry, Reference, RegistryClient, RegistryConfig, Schema
from suiro.streams import serdes
from suiro.streams.serdes import DeserializationError, SerializationError

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # what confluent-kafka imports warns of itself
    from confluent_kafka import schema_registry as confluent
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
    from confluent_kafka.serialization import MessageField, SerializationContext

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Flight",
    "namespace": "air",
    "fields": [
        {"name": "carrier", "type": "string"},
        {"name": "delay", "type": ["null", "int"], "default": None},
    ],
}
LATER = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "tail", "type": "string", "default": "?"}]}

EVERYTHING: dict[str, Any] = {
    "type": "record",
    "name": "Everything",
    "fields": [
        {"name": "n", "type": "null"},
        {"name": "b", "type": "boolean"},
        {"name": "i", "type": "int"},
        {"name": "l", "type": "long"},
        {"name": "f", "type": "float"},
        {"name": "d", "type": "double"},
        {"name": "by", "type": "bytes"},
        {"name": "s", "type": "string"},
        {"name": "fx", "type": {"type": "fixed", "name": "Two", "size": 2}},
        {"name": "e", "type": {"type": "enum", "name": "Suit", "symbols": ["HEARTS", "SPADES"]}},
        {"name": "a", "type": {"type": "array", "items": "long"}},
        {"name": "m", "type": {"type": "map", "values": ["null", "string"]}},
        {"name": "u", "type": ["null", "int", "string", "Two"]},
        {
            "name": "dec",
            "type": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 3},
        },
        {"name": "date", "type": {"type": "int", "logicalType": "date"}},
        {"name": "tms", "type": {"type": "int", "logicalType": "time-millis"}},
        {"name": "tus", "type": {"type": "long", "logicalType": "time-micros"}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
        {"name": "atus", "type": {"type": "long", "logicalType": "timestamp-micros"}},
        {"name": "local", "type": {"type": "long", "logicalType": "local-timestamp-micros"}},
        {"name": "id", "type": {"type": "string", "logicalType": "uuid"}},
        {"name": "next", "type": ["null", "Everything"]},
    ],
}
UTC = datetime.UTC
ONE: dict[str, Any] = {
    "n": None,
    "b": True,
    "i": -(1 << 31),
    "l": (1 << 63) - 1,
    "f": 1.5,
    "d": -2.25,
    "by": b"\x00\xff",
    "s": "Zürich",
    "fx": b"ab",
    "e": "SPADES",
    "a": [1, -2, 3],
    "m": {"x": None, "y": "z"},
    "u": "text",
    "dec": decimal.Decimal("-12.345"),
    "date": datetime.date(2024, 2, 29),
    "tms": datetime.time(23, 59, 59, 999000),
    "tus": datetime.time(0, 0, 0, 1),
    "at": datetime.datetime(1960, 1, 1, tzinfo=UTC),
    "atus": datetime.datetime(2024, 1, 1, 1, 1, 1, 123456, tzinfo=UTC),
    "local": datetime.datetime(2024, 1, 1, 1, 1, 1, 1),
    "id": uuid.UUID(int=5),
    "next": None,
}

ORDER_PROTO = """
syntax = "proto3";
package shop;
import "money.proto";
message Other { string x = 1; }
message Order {
  enum State { NEW = 0; PAID = 1; }
  message Line { int64 count = 1; Money price = 2; }
  string id = 1;
  State state = 2;
  repeated Line lines = 3;
  map<string, int32> tags = 4;
  optional double weight = 5;
  oneof who { string person = 6; bytes firm = 7; }
}
"""
MONEY_PROTO = 'syntax = "proto3";\npackage shop;\nmessage Money { int64 cents = 1; }\n'
ORDER: dict[str, Any] = {
    "id": "o1",
    "state": "PAID",
    "lines": [{"count": 1 << 40, "price": {"cents": 5}}, {"count": 0, "price": None}],
    "tags": {"a": 1},
    "weight": None,
    "person": None,
    "firm": b"\x01",
}

PERSON: dict[str, Any] = {
    "title": "Person",
    "type": "object",
    "properties": {"name": {"type": "string"}, "home": {"$ref": "address.json"}},
    "required": ["name"],
}
ADDRESS = {"type": "object", "properties": {"city": {"type": "string", "minLength": 1}}}


@pytest.fixture(scope="module")
def registry(suiro_node: Any) -> Iterator[InProcessRegistry]:
    topic = f"_schemas-{uuid4().hex[:8]}"
    with InProcessRegistry(
        RegistryConfig(bootstrap_servers=suiro_node.bootstrap_servers, port=0, topic=topic)
    ) as started:
        yield started


@pytest.fixture
def theirs(registry: InProcessRegistry) -> Any:
    return confluent.SchemaRegistryClient({"url": registry.url})


@pytest.fixture
def ours(registry: InProcessRegistry) -> Iterator[RegistryClient]:
    with RegistryClient(registry.url) as client:
        yield client


@pytest.fixture
def topic() -> str:
    return f"t{uuid4().hex[:8]}"


def of(topic: str) -> Any:
    return SerializationContext(topic, MessageField.VALUE)


# -- Avro ------------------------------------------------------------------------------------------------


def test_avro_both_ways(registry: InProcessRegistry, theirs: Any, topic: str) -> None:
    value = {**ONE, "next": {**ONE, "u": 7}}
    serde = serdes.avro.with_(registry=registry.url, schema=EVERYTHING)
    written = serde.serialize(topic, value)
    assert AvroDeserializer(theirs)(written, of(topic)) == value
    from_them = AvroSerializer(theirs, json.dumps(EVERYTHING))(value, of(topic))
    assert from_them == written, "and the schema was registered once, under the same subject"
    assert serdes.avro.with_(registry=registry.url).deserialize(topic, from_them) == value
    assert pickle.loads(pickle.dumps(serde)) == serde


def test_bare_avro_writes_what_is_registered(registry: InProcessRegistry, theirs: Any, topic: str) -> None:
    bare = serdes.avro.with_(registry=registry.url)
    with pytest.raises(SerializationError, match=f"subject '{topic}-value' has no schema"):
        bare.serialize(topic, {"carrier": "UA"})
    theirs.register_schema(f"{topic}-value", confluent.Schema(json.dumps(FLIGHT), "AVRO"))
    written = bare.serialize(topic, {"carrier": "UA"})
    assert AvroDeserializer(theirs)(written, of(topic)) == {"carrier": "UA", "delay": None}
    with pytest.raises(SerializationError, match="does not fit the schema"):
        bare.serialize(topic, {"carrier": "UA", "late": True})


def test_a_readers_schema_reads_what_older_and_newer_ones_wrote(registry: InProcessRegistry, topic: str) -> None:
    def serde(schema: Any) -> Any:
        return serdes.avro.with_(registry=registry.url, schema=schema)

    old = serde(FLIGHT).serialize(topic, {"carrier": "UA", "delay": 5})
    new = serde(LATER).serialize(topic, {"carrier": "AA", "delay": None, "tail": "N1"})
    assert old[1:5] != new[1:5]
    assert serde(LATER).deserialize(topic, old) == {"carrier": "UA", "delay": 5, "tail": "?"}
    assert serde(FLIGHT).deserialize(topic, new) == {"carrier": "AA", "delay": None}
    renamed = json.loads(json.dumps(FLIGHT).replace('"carrier"', '"airline", "aliases": ["carrier"]'))
    renamed["fields"][1]["type"] = ["null", "double"]
    assert serde(renamed).deserialize(topic, old) == {"airline": "UA", "delay": 5.0}
    strict = {**FLIGHT, "fields": [*FLIGHT["fields"], {"name": "must", "type": "string"}]}
    with pytest.raises(DeserializationError, match="must"):
        serde(strict).deserialize(topic, old)
    with pytest.raises(IncompatibleSchemaError, match="must"):
        serde(strict).serialize(topic, {"carrier": "UA", "must": "x"})


def test_avro_references(registry: InProcessRegistry, theirs: Any, ours: RegistryClient, topic: str) -> None:
    subject = f"{topic}-money"
    money = {
        "type": "record",
        "name": "Money",
        "namespace": "shop",
        "fields": [{"name": "cents", "type": "long"}],
    }
    ours.register(subject, Schema(json.dumps(money)))
    order = {"type": "record", "name": "Order", "fields": [{"name": "total", "type": "shop.Money"}]}
    reference = Reference(name="shop.Money", subject=subject, version=1)
    serde = serdes.avro.with_(registry=registry.url, schema=order, references=[reference])
    written = serde.serialize(topic, {"total": {"cents": 12}})
    assert AvroDeserializer(theirs)(written, of(topic)) == {"total": {"cents": 12}}
    assert serde.deserialize(topic, written) == {"total": {"cents": 12}}


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [("topic", "{topic}-value"), ("record", "air.{name}"), ("topic-record", "{topic}-air.{name}")],
)
def test_subjects(registry: InProcessRegistry, ours: RegistryClient, topic: str, strategy: Any, expected: str) -> None:
    schema = {**FLIGHT, "name": f"Flight{topic}"}
    serde = serdes.avro.with_(registry=registry.url, schema=schema, subject_strategy=strategy)
    serde.serialize(topic, {"carrier": "UA"})
    assert ours.latest(expected.format(topic=topic, name=f"Flight{topic}")).version == 1
    if strategy == "topic":
        serde.with_(is_key=True).serialize(topic, {"carrier": "UA"})
        assert ours.latest(f"{topic}-key").version == 1


def test_without_registering(registry: InProcessRegistry, ours: RegistryClient, topic: str) -> None:
    serde = serdes.avro.with_(registry=registry.url, schema=FLIGHT, auto_register=False)
    with pytest.raises(SerializationError, match="auto_register is off"):
        serde.serialize(topic, {"carrier": "UA"})
    found = ours.register(f"{topic}-value", Schema(json.dumps(FLIGHT)))
    assert int.from_bytes(serde.serialize(topic, {"carrier": "UA"})[1:5]) == found
    newer = ours.register(f"{topic}-value", Schema(json.dumps(LATER)))
    latest = serdes.avro.with_(registry=registry.url, schema=FLIGHT, use_latest_version=True)
    written = latest.serialize(topic, {"carrier": "UA", "tail": "N1"})
    assert int.from_bytes(written[1:5]) == newer
    assert latest.deserialize(topic, written) == {"carrier": "UA", "delay": None}


# -- JSON Schema -------------------------------------------------------------------------------------------


def test_json_schema_both_ways(registry: InProcessRegistry, theirs: Any, ours: RegistryClient, topic: str) -> None:
    subject = f"{topic}-address"
    ours.register(subject, Schema(json.dumps(ADDRESS), "JSON"))
    references = [Reference(name="address.json", subject=subject, version=1)]
    serde = serdes.json_schema.with_(registry=registry.url, schema=PERSON, references=references)
    value = {"name": "Ada", "home": {"city": "Zürich"}}
    written = serde.serialize(topic, value)
    text = confluent.Schema(json.dumps(PERSON), "JSON", [confluent.SchemaReference("address.json", subject, 1)])
    assert JSONDeserializer(text, schema_registry_client=theirs)(written, of(topic)) == value
    bare = serdes.json_schema.with_(registry=registry.url)
    from_them = JSONSerializer(text, theirs)(value, of(topic))
    assert from_them is not None
    assert bare.deserialize(topic, from_them) == value
    assert from_them[:5] == written[:5]
    with pytest.raises(SerializationError, match="at /home/city"):
        serde.serialize(topic, {"name": "Ada", "home": {"city": ""}})
    bad = written[:5] + b'{"home":{}}'
    with pytest.raises(DeserializationError, match="'name' is a required property"):
        bare.deserialize(topic, bad)
    assert bare.with_(validate=False).deserialize(topic, bad) == {"home": {}}
    by_title = serde.with_(subject_strategy="record")
    assert by_title.serialize(topic, value)[:5] == written[:5]
    assert "Person" in ours.subjects()


# -- Protobuf ------------------------------------------------------------------------------------------------


def test_protobuf_both_ways(registry: InProcessRegistry, theirs: Any, ours: RegistryClient, topic: str) -> None:
    from google.protobuf import descriptor_pool, message_factory

    from suiro.registry.formats import Import
    from suiro.registry.formats.protobuf_format import compiled

    subject = f"{topic}-money"
    ours.register(subject, Schema(MONEY_PROTO, "PROTOBUF"))
    references = [Reference(name="money.proto", subject=subject, version=1)]
    serde = serdes.protobuf.with_(registry=registry.url, schema=ORDER_PROTO, references=references, message="Order")
    written = serde.serialize(topic, ORDER)
    assert written[5:7] == b"\x02\x02", "one index, and it is 1"
    bare = serdes.protobuf.with_(registry=registry.url)
    assert bare.deserialize(topic, written) == ORDER

    pool = descriptor_pool.DescriptorPool()
    for one in compiled(ORDER_PROTO, [Import("money.proto", MONEY_PROTO)]):
        pool.AddSerializedFile(one)
    kind = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order"))
    read: Any = ProtobufDeserializer(kind, {"use.deprecated.format": False})(written, of(topic))
    assert (read.id, read.state, read.lines[0].price.cents, dict(read.tags)) == ("o1", 1, 5, {"a": 1})
    line = message_factory.GetMessageClass(pool.FindMessageTypeByName("shop.Order.Line"))
    settings = {"use.deprecated.format": False, "auto.register.schemas": True}
    from_them = ProtobufSerializer(line, theirs, settings)(line(count=3), of(f"{topic}2"))
    assert from_them is not None
    assert bare.deserialize(f"{topic}2", from_them) == {"count": 3, "price": None}
    nested = serde.with_(message="shop.Order.Line").serialize(topic, {"count": 3})
    assert nested[5:] == from_them[5:], "the path of indexes to the nested message is theirs"

    for value, why in [
        ({"ide": 1}, "no field 'ide'"),
        ({"id": 1}, "Order.id"),
        ({"state": "LOST"}, "no constant 'LOST'"),
        ({"lines": [{"count": 1 << 70}]}, r"Line|lines\[0\]"),
    ]:
        with pytest.raises(SerializationError, match=why):
            serde.serialize(topic, value)
    for broken in (written[:5], written[:5] + b"\x02\x7e" + b"\x00", written[:-1]):
        with pytest.raises(DeserializationError):
            bare.deserialize(topic, broken)


# -- what is refused -----------------------------------------------------------------------------------------


def test_bad_bytes(registry: InProcessRegistry, theirs: Any, topic: str) -> None:
    avro = serdes.avro.with_(registry=registry.url)
    good = avro.with_(schema=FLIGHT).serialize(topic, {"carrier": "UA"})
    for data, why in [
        (b"", "0 bytes are too few"),
        (b"{}", "2 bytes are too few"),
        (b'{"carrier":1}', "unknown magic byte 0x7b"),
        (b"\0\x7f\xff\xff\xff" + good[5:], "schema id 2147483647 is not in the registry"),
        (good[:-1], "not of schema"),
        (good + b"\0", "1 bytes are left over"),
    ]:
        with pytest.raises(DeserializationError, match=why):
            avro.deserialize(topic, data)
    with pytest.raises(DeserializationError, match="is AVRO, not JSON"):
        serdes.json_schema.with_(registry=registry.url).deserialize(topic, good)
