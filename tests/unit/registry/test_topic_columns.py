"""Columns of a topic, for OpenLineage, of Protobuf schemas: what a registry holds is anybody's."""

from __future__ import annotations

from suiro.registry import Schema, columns_of_schema, columns_of_topic, registry_client
from suiro.telemetry import Column

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
message Order {
  enum State { OPEN = 0; DONE = 1; }
  message Line { string item = 1; optional uint32 count = 2; }
  int64 id = 1;
  repeated Line lines = 2;
  State state = 3;
  map<string, Line> by_name = 4;
  repeated string tags = 5;
}
message Other { bool ok = 1; }
"""
ORDER = (
    Column(name="id", type="int64"),
    Column(
        name="lines",
        type="repeated shop.Order.Line",
        columns=(Column(name="item", type="string"), Column(name="count", type="uint32")),
    ),
    Column(name="state", type="shop.Order.State"),
    Column(name="by_name", type="map<string, shop.Order.Line>"),
    Column(name="tags", type="repeated string"),
)


def test_columns_of_a_topic() -> None:
    client = registry_client("mock://topic-columns")
    client.register("orders-value", Schema(PROTO, "PROTOBUF"))
    assert columns_of_topic("mock://topic-columns", "orders") == ORDER
    assert columns_of_topic("mock://topic-columns", "nothing") == ()


def test_a_message_is_chosen_by_its_name() -> None:
    schema = Schema(PROTO, "PROTOBUF")
    assert columns_of_schema(None, schema, "Other") == (Column(name="ok", type="bool"),)
    assert columns_of_schema(None, schema, "Missing") == ()


def test_what_is_no_schema_has_no_columns() -> None:
    for text in ("", "message", 'syntax = "proto3";', "message A { B b = 1; }", "\0"):
        assert columns_of_schema(None, Schema(text, "PROTOBUF")) == ()


def test_a_message_that_contains_itself_ends() -> None:
    text = 'syntax = "proto3"; message A { A a = 1; A b = 2; A c = 3; }'
    count, waiting = 0, list(columns_of_schema(None, Schema(text, "PROTOBUF")))
    while waiting:
        count += 1
        waiting += waiting.pop().columns
    assert count == 1_000
