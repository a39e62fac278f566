"""Decides whether data written with one Protobuf schema can be read with another, by the rules of "Updating A Message
Type" in Protobuf's guide, as Confluent's registry does. The names of differences are Confluent's.

Fields are matched by number, messages by name within their package.

| refused | |
|---|---|
| PACKAGE_CHANGED | the names of all messages are others |
| MESSAGE_REMOVED | a message of the writer's that the reader lacks |
| FIELD_KIND_CHANGED | a scalar for a message or a map, or the other way round |
| FIELD_SCALAR_KIND_CHANGED | between groups: int32 int64 uint32 uint64 bool enums / sint32 sint64 / string bytes / |
| | fixed32 sfixed32 / fixed64 sfixed64 / float / double |
| FIELD_NUMERIC_LABEL_CHANGED | a number made repeated, or no longer so |
| FIELD_NAMED_TYPE_CHANGED | a message for another one, or for one of the same name that cannot read it |
| REQUIRED_FIELD_ADDED, REQUIRED_FIELD_REMOVED | (proto2) |
| ONEOF_FIELD_REMOVED | a field of a oneof that the reader lacks, unless all of that oneof's went |
| MULTIPLE_FIELDS_MOVED_TO_ONEOF, FIELD_MOVED_TO_EXISTING_ONEOF | fields that now exclude one another |

Everything else passes. These are ignored: names of fields (they matter only in JSON), enum constants, defaults,
options, services, extensions, and reserved numbers.
"""

from __future__ import annotations

from typing import Any

from google.protobuf.descriptor_pb2 import FieldDescriptorProto as Field

from suiro.registry.formats.differences import Found, Incompatibility, Pairs, differs
from suiro.registry.formats.parsed import Budget
from suiro.registry.formats.protobuf_format import ProtobufModel
from suiro.registry.formats.protobuf_text import within

_GROUPS = {
    "number": "int32 int64 uint32 uint64 bool enum",
    "signed": "sint32 sint64",
    "text": "string bytes",
    "fixed32": "fixed32 sfixed32",
    "fixed64": "fixed64 sfixed64",
    "float": "float",
    "double": "double",
}
_GROUP_OF = {
    Field.Type.Value(f"TYPE_{type_.upper()}"): name for name, types in _GROUPS.items() for type_ in types.split()
}
_MESSAGES = (Field.TYPE_MESSAGE, Field.TYPE_GROUP)


def incompatibilities(reader: ProtobufModel, writer: ProtobufModel, budget: Budget) -> list[Incompatibility]:
    found: list[Incompatibility] = []
    if reader.file.package != writer.file.package:
        found.append(differs("PACKAGE_CHANGED", "#/", "has another package at"))
    return found + list(
        _Check(reader, writer, budget).compare_scopes(
            reader.file.message_type, reader.file.package, writer.file.message_type, writer.file.package, "#"
        )
    )


class _Check:
    def __init__(self, reader: ProtobufModel, writer: ProtobufModel, budget: Budget) -> None:
        self._reader = reader
        self._writer = writer
        self._budget = budget
        by_names = Pairs[str](budget, lambda name, old_name: (name, old_name), self._differences)
        self._compare_messages = by_names.compare

    def compare_scopes(self, readers: Any, scope: str, writers: Any, old_scope: str, path: str) -> Found:
        by_name = {one.name: one for one in readers}
        for writer in writers:
            if writer.options.map_entry:
                continue
            name = writer.name
            reader = by_name.get(name)
            if reader is None or reader.options.map_entry:
                yield differs("MESSAGE_REMOVED", f"{path}/{name}", f"lacks the message {name} at")
            else:
                yield from self._compare_messages(within(scope, name), within(old_scope, name), f"{path}/{name}")

    def _differences(self, name: str, old_name: str, path: str) -> Found:
        reader, writer = self._reader.messages[name], self._writer.messages[old_name]
        entries, old_entries = _map_entries(reader, name), _map_entries(writer, old_name)
        yield from self._compare_fields(reader, entries, writer, old_entries, path)
        yield from self.compare_scopes(reader.nested_type, name, writer.nested_type, old_name, path)

    def _compare_fields(
        self, reader: Any, entries: dict[str, Any], writer: Any, old_entries: dict[str, Any], path: str
    ) -> Found:
        new, old = {one.number: one for one in reader.field}, {one.number: one for one in writer.field}
        self._budget.spend(len(new) + len(old))
        new_oneofs, old_oneofs = _oneof_of(reader), _oneof_of(writer)
        # Removing a whole oneof is allowed; removing some of its fields is not.
        kept_oneofs = set(new_oneofs.values()) | {old_oneofs[number] for number in new if number in old_oneofs}
        yield from _moved_to_oneofs(new_oneofs, old_oneofs, old, path)
        for number in dict.fromkeys([*old, *new]):
            place = f"{path}/{number}"
            if number in new and number in old:
                yield from self._compare_field(new[number], entries, old[number], old_entries, place)
            elif number in new:
                if new[number].label == Field.LABEL_REQUIRED:
                    yield differs("REQUIRED_FIELD_ADDED", place, f"requires the field {new[number].name} at")
            elif old[number].label == Field.LABEL_REQUIRED:
                yield differs("REQUIRED_FIELD_REMOVED", place, f"lacks the required field {old[number].name} at")
            elif old_oneofs.get(number) in kept_oneofs:
                place = f"{path}/{old_oneofs[number]}/{number}"
                yield differs("ONEOF_FIELD_REMOVED", place, f"lacks the field {old[number].name} of a oneof at")

    def _compare_field(
        self, new: Any, entries: dict[str, Any], old: Any, old_entries: dict[str, Any], path: str
    ) -> Found:
        new_entry, old_entry = _map_entry(new, entries), _map_entry(old, old_entries)
        if new_entry is not None and old_entry is not None:
            for inner, before in zip(new_entry.field, old_entry.field, strict=True):
                yield from self._compare_types(inner, before, path, labels=False)
        elif new_entry is not old_entry:
            yield differs("FIELD_KIND_CHANGED", path, f"has another kind of field {new.name} at")
        else:
            yield from self._compare_types(new, old, path, labels=True)

    def _compare_types(self, new: Any, old: Any, path: str, *, labels: bool) -> Found:
        repeated = (new.label == Field.LABEL_REPEATED, old.label == Field.LABEL_REPEATED)
        if (new.type in _MESSAGES) != (old.type in _MESSAGES):
            yield differs("FIELD_KIND_CHANGED", path, f"has another kind of field {new.name} at")
        elif new.type in _MESSAGES:
            yield from self._compare_named(new, old, path)
        elif _GROUP_OF[new.type] != _GROUP_OF[old.type]:
            yield differs("FIELD_SCALAR_KIND_CHANGED", path, f"has another type of field {new.name} at")
        elif labels and repeated[0] != repeated[1] and _GROUP_OF[new.type] != "text":
            yield differs("FIELD_NUMERIC_LABEL_CHANGED", path, f"has another label of field {new.name} at")

    def _compare_named(self, new: Any, old: Any, path: str) -> Found:
        name, old_name = new.type_name.removeprefix("."), old.type_name.removeprefix(".")
        local = name.removeprefix(f"{self._reader.packages.get(name, '')}.")
        old_local = old_name.removeprefix(f"{self._writer.packages.get(old_name, '')}.")
        if local != old_local:
            yield differs("FIELD_NAMED_TYPE_CHANGED", path, f"has the type {name} instead of {old_name} at")
        elif name in self._reader.messages and old_name in self._writer.messages:
            inner = self._compare_messages(name, old_name, path)
            yield from inner
            if inner:
                yield differs("FIELD_NAMED_TYPE_CHANGED", path, f"has another type {name} at")


def _oneof_of(message: Any) -> dict[int, str]:
    """Returns the name of the oneof by field number; a proto3 `optional` is none."""
    return {
        one.number: message.oneof_decl[one.oneof_index].name
        for one in message.field
        if one.HasField("oneof_index") and not one.proto3_optional
    }


def _moved_to_oneofs(new: dict[int, str], old: dict[int, str], old_fields: dict[int, Any], path: str) -> Found:
    """Finds fields that exclude one another now. Fields of one oneof did before; new fields were never written."""
    members_of: dict[str, list[int]] = {}
    for number, name in new.items():
        members_of.setdefault(name, []).append(number)
    for name, members in members_of.items():
        single = [number for number in members if number in old_fields and number not in old]
        oneofs = {old[number] for number in members if number in old}
        if len(single) > 1:
            yield differs("MULTIPLE_FIELDS_MOVED_TO_ONEOF", f"{path}/{name}", "moves several fields into the oneof at")
        elif len(single) + len(oneofs) > 1:
            yield differs("FIELD_MOVED_TO_EXISTING_ONEOF", f"{path}/{name}", "moves a field into the oneof at")


def _map_entries(message: Any, name: str) -> dict[str, Any]:
    """Returns map entries by full name, because types of other messages may have the same last name."""
    return {within(name, one.name): one for one in message.nested_type if one.options.map_entry}


def _map_entry(field: Any, entries: dict[str, Any]) -> Any:
    return entries.get(field.type_name.removeprefix("."))
