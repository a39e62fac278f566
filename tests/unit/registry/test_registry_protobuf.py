"""Protobuf in the registry: texts and descriptors are one schema, and what a change of it means for readers."""

from __future__ import annotations

import base64

import pytest
from google.protobuf import descriptor_pb2
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from suiro.registry.formats import Import, InvalidSchema, Parsed, compare, format_of, parse

OTHER = (Import("other.proto", 'syntax = "proto3"; package other; message Other { string s = 1; }'),)
EVERYTHING = """\
syntax = "proto3";

package com.acme;

import "google/protobuf/timestamp.proto";
import "google/type/money.proto";
import "confluent/meta.proto";
import "confluent/type/decimal.proto";
import "other.proto";

option java_package = "com.acme.x";

enum Color {
  option allow_alias = true;
  RED = 0;
  ROT = 0;
  BLUE = 1 [(confluent.enum_value_meta) = { doc: "b" }];
}

// A flight.
// It has two lines.
message Flight {
  option (confluent.message_meta) = { doc: "hi" tags: "a" tags: "b" };
  reserved 5, 7 to 9, 100 to max;
  reserved "old";
  string carrier = 1 [json_name = "CARRIER", deprecated = true]; // the carrier
  repeated int32 xs = 2 [packed = false];
  map<string, Other> m = 3;
  optional bool o = 4;
  oneof kind {
    string a = 10;
    Inner b = 11;
  }
  google.protobuf.Timestamp at = 12;
  google.type.Money price = 13;
  other.Other other = 14;
  Color color = 15;
  confluent.type.Decimal exact = 16;

  message Inner {
    Inner self = 1;
    Deep d = 2;

    message Deep {
      Color c = 1;
    }
  }

  message Other {
    int32 x = 1;
  }
}

service Board {
  rpc Get (Flight) returns (stream Flight);
  rpc Put (stream Flight.Inner) returns (Flight) {
    option deprecated = true;
  }
}
"""
OLD_STYLE = """\
syntax = "proto2";

package p2;

enum E {
  X = 1;
  Y = 2;
}

message A {
  extensions 100 to 199;
  required int32 a = 1 [default = 5];
  optional string s = 2 [default = "x\\"y\\012"];
  optional bytes b = 3 [default = "\\001\\377"];
  optional float f = 4 [default = inf];
  optional E e = 5 [default = Y];
  repeated group Res = 6 {
    optional string url = 1;
  }
}

message B {
  extend A {
    optional B b = 102;
  }
}

extend A {
  optional string more = 101;
}
"""
EDITION = """\
edition = "2023";

package e;

option features = { field_presence: IMPLICIT };

message A {
  reserved foo;
  int32 a = 1 [features = { field_presence: EXPLICIT }];
  A b = 2;
  repeated int32 c = 3;
}
"""


@pytest.mark.parametrize("text", [EVERYTHING, OLD_STYLE, EDITION], ids=["proto3", "proto2", "edition"])
def test_a_text_a_descriptor_and_the_text_again(text: str) -> None:
    rules = format_of("PROTOBUF")
    parsed = parse("PROTOBUF", text, OTHER)
    assert parsed.canonical == text
    serialized = rules.formatted(parsed, "serialized")
    from_descriptor = parse("PROTOBUF", serialized, OTHER)
    assert from_descriptor.normalized == parsed.normalized
    assert rules.formatted(from_descriptor, "serialized") == serialized
    assert not compare(parsed, from_descriptor)


def test_layout_does_not_count_comments_do() -> None:
    one = parse("PROTOBUF", 'syntax="proto3";message A{int32 b=2;int32 a=1;}')
    spaced = parse("PROTOBUF", 'syntax = "proto3";\n\nmessage A {\n  int32 b = 2;\n  int32 a = 1;\n}\n')
    output = parse("PROTOBUF", 'syntax="proto3";// what it is\nmessage A{int32 a=1;int32 b=2;}')
    assert one.canonical == spaced.canonical != output.canonical
    assert one.normalized == output.normalized


def test_a_name_that_an_inner_one_hides_is_written_in_full() -> None:
    text = 'syntax = "proto3"; package p; message X {} message A { message X {} .p.X outer = 1; X inner = 2; }'
    parsed = parse("PROTOBUF", text)
    fields = parse("PROTOBUF", parsed.canonical).model.messages["p.A"].field
    assert [field.type_name for field in fields] == [".p.X", ".p.A.X"]


def test_a_message_that_is_named_as_the_entries_of_a_map_is_no_map() -> None:
    def of(kind: str) -> Parsed:
        return parse(
            "PROTOBUF",
            f'syntax = "proto3"; message A {{ map<string, int32> tag = 1; repeated B.TagEntry more = 2; }} '
            f"message B {{ message TagEntry {{ string key = 1; int32 value = 2; {kind} third = 3; }} }}",
        )

    parsed = of("bool")
    assert "repeated B.TagEntry more = 2;" in parsed.canonical
    assert parse("PROTOBUF", parsed.canonical).canonical == parsed.canonical
    found = {one.kind for one in compare(parsed, of("string"))}
    assert found == {"FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "line 1:1"),
        ('syntax = "proto3"; message A { B b = 1; }', '"B" is not defined'),
        ('syntax = "proto3"; message A { int32 a = 1; int32 b = 1; }', "already been used"),
        ('syntax = "proto3"; import "nix.proto"; message A {}', "nix.proto"),
        ('syntax = "proto3"; import "../../etc/passwd"; message A {}', "passwd"),
        (
            base64.b64encode(FileDescriptorProto(name="a", dependency=["nix"]).SerializeToString()).decode(),
            "nix",
        ),
    ],
)
def test_what_is_no_schema(text: str, message: str) -> None:
    with pytest.raises(InvalidSchema, match=message):
        parse("PROTOBUF", text)


def test_a_reference_stays_within_its_folder() -> None:
    with pytest.raises(InvalidSchema, match="path of its import"):
        parse("PROTOBUF", 'syntax = "proto3"; message A {}', (Import("../x.proto", 'syntax = "proto3";'),))


E = " enum E { X = 0; }"


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        ("message A {int32 a=1; string b=2;}", "message A {int32 a=1;}", ""),
        ("message A {}", "message A {int32 a=1;}", ""),
        ("message A {int32 renamed=1;}", "message A {int32 a=1;}", ""),
        ("message A {} message B {}", "message A {}", ""),
        ("message B {}", "message A {}", "MESSAGE_REMOVED"),
        ("message A {}", "message A {message B {}}", "MESSAGE_REMOVED"),
        ("message A {int64 a=1;}", "message A {int32 a=1;}", ""),
        ("message A {bool a=1;}", "message A {uint64 a=1;}", ""),
        ("message A {E a=1;}" + E, "message A {int32 a=1;}" + E, ""),
        ("message A {bytes a=1;}", "message A {string a=1;}", ""),
        ("message A {sint32 a=1;}", "message A {int32 a=1;}", "FIELD_SCALAR_KIND_CHANGED"),
        ("message A {string a=1;}", "message A {int32 a=1;}", "FIELD_SCALAR_KIND_CHANGED"),
        ("message A {double a=1;}", "message A {float a=1;}", "FIELD_SCALAR_KIND_CHANGED"),
        ("message A {fixed64 a=1;}", "message A {fixed32 a=1;}", "FIELD_SCALAR_KIND_CHANGED"),
        ("message A {B a=1;} message B {}", "message A {int32 a=1;} message B {}", "FIELD_KIND_CHANGED"),
        ("message A {B a=1;} message B {} message C {}", "message A {C a=1;} message B {} message C {}",
         "FIELD_NAMED_TYPE_CHANGED"),
        ("message A {repeated int32 a=1;}", "message A {int32 a=1;}", "FIELD_NUMERIC_LABEL_CHANGED"),
        ("message A {repeated string a=1;}", "message A {string a=1;}", ""),
        ("message A {oneof x {int32 a=1;}}", "message A {int32 a=1;}", ""),
        ("message A {oneof x {int32 a=1; int32 b=2;}}", "message A {int32 a=1; int32 b=2;}",
         "MULTIPLE_FIELDS_MOVED_TO_ONEOF"),
        ("message A {oneof x {int32 a=1; int32 b=2;}}", "message A {oneof x {int32 a=1;} int32 b=2;}",
         "FIELD_MOVED_TO_EXISTING_ONEOF"),
        ("message A {oneof x {int32 a=1;}}", "message A {oneof x {int32 a=1; int32 b=2;}}", "ONEOF_FIELD_REMOVED"),
        ("message A {map<string, int64> a=1;}", "message A {map<string, int32> a=1;}", ""),
        ("message A {map<int32, int32> a=1;}", "message A {map<string, int32> a=1;}", "FIELD_SCALAR_KIND_CHANGED"),
        ("message A {map<string, int32> a=1;}", "message A {string a=1;}", "FIELD_KIND_CHANGED"),
        ("message A {A b=1; int32 c=2;}", "message A {A b=1; string c=2;}", "FIELD_SCALAR_KIND_CHANGED"),
    ],
)  # fmt: skip
def test_changes(new: str, old: str, expected: str) -> None:
    start = 'syntax = "proto3"; package a; '
    reader, writer = parse("PROTOBUF", start + new), parse("PROTOBUF", start + old)
    found = [one.kind for one in compare(reader, writer)]
    assert found == ([expected] if expected else [])


def test_required_fields_of_proto2() -> None:
    def message(body: str) -> object:
        return parse("PROTOBUF", f'syntax = "proto2"; message A {{ {body} }}')

    with_it, without = message("required int32 a = 1;"), message("")
    assert [one.kind for one in compare(with_it, without)] == ["REQUIRED_FIELD_ADDED"]  # type: ignore[arg-type]
    assert [one.kind for one in compare(without, with_it)] == ["REQUIRED_FIELD_REMOVED"]  # type: ignore[arg-type]


def test_a_package_does_not_change_and_types_are_compared_without_theirs() -> None:
    def schema(package: str, kind: str) -> Parsed:
        text = f'syntax = "proto3"; package {package}; message A {{ B b = 1; }} message B {{ {kind} x = 1; }}'
        return parse("PROTOBUF", text)

    assert [one.kind for one in compare(schema("a", "int32"), schema("b", "int64"))] == ["PACKAGE_CHANGED"]
    found = {one.kind for one in compare(schema("a", "int32"), schema("b", "string"))}
    assert found == {"PACKAGE_CHANGED", "FIELD_SCALAR_KIND_CHANGED", "FIELD_NAMED_TYPE_CHANGED"}


ONEOFS = {
    "a field from one oneof into another": (
        "oneof x { int32 a = 1; } oneof y { int32 c = 3; int32 b = 2; }",
        "oneof x { int32 a = 1; int32 b = 2; } oneof y { int32 c = 3; }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    "the only field of a oneof into another": (
        "oneof y { int32 b = 2; int32 a = 1; }",
        "oneof x { int32 a = 1; } oneof y { int32 b = 2; }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    "two oneofs into one": (
        "oneof z { int32 a = 1; int32 b = 2; }",
        "oneof x { int32 a = 1; } oneof y { int32 b = 2; }",
        ["FIELD_MOVED_TO_EXISTING_ONEOF"],
    ),
    "a oneof renamed": ("oneof y { int32 a = 1; int32 b = 2; }", "oneof x { int32 a = 1; int32 b = 2; }", []),
    "a oneof renamed, and a field lost": (
        "oneof y { int32 a = 1; }",
        "oneof x { int32 a = 1; int32 b = 2; }",
        ["ONEOF_FIELD_REMOVED"],
    ),
    "a oneof renamed, and a field of another type": (
        "oneof y { string a = 1; }",
        "oneof x { int32 a = 1; }",
        ["FIELD_SCALAR_KIND_CHANGED"],
    ),
    "a oneof gone, with all of its fields": ("int32 c = 3;", "oneof x { int32 a = 1; } int32 c = 3;", []),
    "a oneof's fields made single ones": (
        "int32 a = 1; int32 b = 2;",
        "oneof x { int32 a = 1; int32 b = 2; }",
        [],
    ),
    "a field and a new one into a new oneof": ("oneof x { int32 a = 1; int32 n = 9; }", "int32 a = 1;", []),
    "two single fields into a oneof": (
        "oneof x { int32 a = 1; int32 b = 2; }",
        "int32 a = 1; int32 b = 2;",
        ["MULTIPLE_FIELDS_MOVED_TO_ONEOF"],
    ),
}


@pytest.mark.parametrize(("new", "old", "expected"), ONEOFS.values(), ids=ONEOFS.keys())
def test_fields_and_oneofs(new: str, old: str, expected: list[str]) -> None:
    parsed = [parse("PROTOBUF", f'syntax = "proto3"; message M {{ {body} }}') for body in (new, old)]
    assert [one.kind for one in compare(*parsed)] == expected


DESCRIBED = """syntax = "proto3";
package io.confluent.test;
import "confluent/meta.proto";
message A {
  reserved 9, 5 to 7;
  reserved "y", "x";
  int32 b = 2;
  string a = 1 [(.confluent.field_meta) = { doc: "d", params: [{ key: "z", value: "1" }, { key: "c", value: "2" }] }];
}
"""


@pytest.mark.parametrize("form", ["canonical", "normalized", "serialized"])
def test_options_of_a_package_that_hides_theirs_are_found_again(form: str) -> None:
    parsed, rules = parse("PROTOBUF", DESCRIBED), format_of("PROTOBUF")
    serialized = rules.formatted(parsed, "serialized")
    again = parse("PROTOBUF", serialized if form == "serialized" else getattr(parsed, form))
    assert "(.confluent.field_meta)" in parsed.canonical
    assert again.normalized == parsed.normalized
    assert compare(again, parsed) == compare(parsed, again) == []
    if form != "normalized":
        assert rules.formatted(again, "serialized") == serialized


def test_a_normalised_text_does_not_depend_on_the_order_of_what_has_none() -> None:
    turned = DESCRIBED.replace("9, 5 to 7", "5 to 7, 9").replace('"y", "x"', '"x", "y"')
    one, other = parse("PROTOBUF", DESCRIBED), parse("PROTOBUF", turned)
    assert one.normalized == other.normalized
    assert "reserved 5 to 7, 9;" in one.normalized


def test_the_description_of_descriptions_is_a_schema_too() -> None:
    file = descriptor_pb2.FileDescriptorProto.FromString(descriptor_pb2.DESCRIPTOR.serialized_pb)
    file.name = "mine.proto"
    text = parse("PROTOBUF", base64.standard_b64encode(file.SerializeToString()).decode()).canonical
    parsed = parse("PROTOBUF", text)
    assert "message FileDescriptorSet {" in text
    assert parsed.canonical == text
    assert compare(parsed, parsed) == []
