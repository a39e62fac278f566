"""Protobuf: values are dicts by field names. The text of the schema is compiled; no generated code is needed.

A message is a dict of all its fields. A field that can be absent (a message, `optional`, a member of a oneof) is None
if it is. A repeated field is a list, a map is a dict, an enum is the name of its constant (or its number, if the schema
has no name for it), bytes are bytes. Fields that the schema does not have are dropped. Message objects can be written
too.

Between the id and the message is the path of the message type: indexes into nested messages, as zigzag varints, after
their count. `[0]`, the first message of the file, is a single zero.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from suiro.protocol.fields import put_varint, read_uvarint
from suiro.registry.codecs.wire import PREFIX, BySchema, CodecSettings, Undecodable, Unencodable, WireFormat
from suiro.registry.formats import Import
from suiro.registry.formats.protobuf_format import compiled
from suiro.registry.formats.protobuf_text import is_repeated
from suiro.registry.schemas import PROTOBUF, Schema

MAX_DEPTH = 64


class ProtobufCodec:
    def __init__(self, settings: CodecSettings) -> None:
        self._wire = WireFormat(PROTOBUF, settings)
        self._of_writer = BySchema(self._wire, _File)
        self._files: dict[int | Schema, _File] = {}  # for writing

    def decode(self, data: bytes) -> Any:
        schema_id = self._wire.split(data)
        kind, start = self._kind_of(data)
        try:
            found = message_factory.GetMessageClass(kind).FromString(data[start:])
        except message.DecodeError as error:
            raise Undecodable(f"not a {kind.full_name} of schema {schema_id}: {error}") from None
        return _to_dict(found)

    def prefix(self, data: bytes) -> bytes:
        """The bytes before the message: the schema id and the path of the message type."""
        return data[: _read_path(data, PREFIX.size)[1]]

    def message_of(self, data: bytes) -> Any:
        """The descriptor of the message. Raises `Undecodable`."""
        return self._kind_of(data)[0]

    def message_to_write(self, schema: Schema) -> Any:
        """The descriptor of the message that the settings name, or the first. Raises `Unencodable`, `InvalidSchema`
        and `TooComplex`."""
        return self._kind(self._file(schema, schema), None)[1]

    def _kind_of(self, data: bytes) -> tuple[Any, int]:
        schema_id = self._wire.split(data)
        path, start = _read_path(data, PREFIX.size)
        kind = self._of_writer(schema_id).kinds.get(path)
        if kind is None:
            raise Undecodable(f"schema {schema_id} has no message at {list(path)}")
        return kind, start

    def encode(self, topic: str, value: Any) -> bytes:
        schema_id, schema = self._wire.to_write(topic, self._message_name(value))
        path, kind = self._kind(self._file(schema_id, schema), value)
        if isinstance(value, message.Message):
            body: bytes = value.SerializeToString(deterministic=True)
        else:
            built = message_factory.GetMessageClass(kind)()
            _fill(built, value, kind.name)
            try:
                body = built.SerializeToString(deterministic=True)
            except message.EncodeError as error:
                raise Unencodable(str(error)) from None
        return PREFIX.pack(0, schema_id) + _write_path(path) + body

    def check(self, topic: str | None) -> None:
        if self._wire.settings.schema is not None:
            self.message_to_write(self._wire.settings.schema)
        self._wire.check(topic, self._message_name(None))

    def _file(self, key: int | Schema, schema: Schema) -> _File:
        """`key`: its id if it has one, because the same text may refer to other schemas under another id."""
        if key not in self._files:
            self._files[key] = _File(schema, self._wire.imports(schema))
        return self._files[key]

    def _kind(self, file: _File, value: Any) -> tuple[Path, Any]:
        name = value.DESCRIPTOR.full_name if isinstance(value, message.Message) else self._wire.settings.message
        for path, kind in file.kinds.items():
            if name in (None, kind.full_name, kind.name):
                return path, kind
        if not file.kinds:
            raise Unencodable(f"{file.name} defines no message")
        known = ", ".join(kind.full_name for kind in file.kinds.values())
        raise Unencodable(f"the schema has no message {name!r}; it has {known}")

    def _message_name(self, value: Any) -> str | None:
        given = self._wire.settings.schema
        if self._wire.settings.subject_strategy == "topic":
            return None
        return None if given is None else str(self._kind(self._file(given, given), value)[1].full_name)


Path = tuple[int, ...]


class _File:
    """The messages of a schema, by their paths: the indexes within the file, and within each message."""

    def __init__(self, schema: Schema, imports: tuple[Import, ...]) -> None:
        self._pool = descriptor_pool.DescriptorPool()  # descriptors do not keep it alive
        for one in compiled(schema.text, imports):
            self.name = self._pool.AddSerializedFile(one).name
        self.kinds: dict[Path, Any] = dict(_messages(self._pool.FindFileByName(self.name), ()))


def _messages(place: Any, path: Path) -> Iterator[tuple[Path, Any]]:
    for index, kind in enumerate(_within(place)):
        yield (*path, index), kind
        yield from _messages(kind, (*path, index))


def _within(place: Any) -> list[Any]:
    """The messages of a file or a message, in the order of their definitions.

    The entries of maps do not count, as in Confluent's Java client: they are not in the text. (Its Python client counts
    them, so the two disagree if a map precedes a nested message.)
    """
    if not hasattr(place, "message_types_by_name"):
        return [one for one in place.nested_types if not one.GetOptions().map_entry]
    plain = descriptor_pb2.FileDescriptorProto()
    place.CopyToProto(plain)
    return [place.message_types_by_name[one.name] for one in plain.message_type]


def _read_path(data: bytes, start: int) -> tuple[Path, int]:
    count, at = _read_varint(data, start)
    if count == 0:
        return (0,), at
    if not 0 < count <= MAX_DEPTH:
        raise Undecodable(f"its path of message indexes has a length of {count}")
    path = []
    for _ in range(count):
        index, at = _read_varint(data, at)
        path.append(index)
    return tuple(path), at


def _write_path(path: Path) -> bytes:
    if path == (0,):
        return b"\0"
    out = bytearray()
    for number in (len(path), *path):
        put_varint(out, number)
    return bytes(out)


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    try:
        found, at = read_uvarint(data, at)
    except ValueError:
        raise Undecodable("the path of message indexes behind the schema id is cut off") from None
    return (found >> 1) ^ -(found & 1), at


def _to_dict(found: Any) -> dict[str, Any]:
    made: dict[str, Any] = {}
    for field in found.DESCRIPTOR.fields:
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            of = field.message_type.fields_by_name["value"]
            made[field.name] = {key: _plain(of, item) for key, item in getattr(found, field.name).items()}
        elif is_repeated(field):
            made[field.name] = [_plain(field, item) for item in getattr(found, field.name)]
        elif field.has_presence and not found.HasField(field.name):
            made[field.name] = None
        else:
            made[field.name] = _plain(field, getattr(found, field.name))
    return made


def _plain(field: Any, value: Any) -> Any:
    if field.message_type is not None:
        return _to_dict(value)
    if field.enum_type is not None:
        constant = field.enum_type.values_by_number.get(value)
        return value if constant is None else constant.name
    return value


def _fill(built: Any, value: Any, place: str) -> None:
    if not isinstance(value, dict):
        raise Unencodable(f"{place}: a message is a dict, not {type(value).__name__}")
    fields = built.DESCRIPTOR.fields_by_name
    for name, item in value.items():
        field = fields.get(name)
        if field is None:
            raise Unencodable(f"{place}: {built.DESCRIPTOR.full_name} has no field {name!r}")
        if item is None:
            continue
        where = f"{place}.{name}"
        try:
            _set(built, field, item, where)
        except (TypeError, ValueError, AttributeError, OverflowError) as error:
            if isinstance(error, Unencodable):
                raise
            raise Unencodable(f"{where}: {error}") from None


def _set(built: Any, field: Any, item: Any, where: str) -> None:
    if field.message_type is not None and field.message_type.GetOptions().map_entry:
        of = field.message_type.fields_by_name["value"]
        target = getattr(built, field.name)
        for key, one in item.items():
            if of.message_type is not None:
                _fill(target[key], one, f"{where}[{key!r}]")
            else:
                target[key] = _scalar(of, one)
    elif is_repeated(field):
        target = getattr(built, field.name)
        for number, one in enumerate(item):
            if field.message_type is not None:
                _fill(target.add(), one, f"{where}[{number}]")
            else:
                target.append(_scalar(field, one))
    elif field.message_type is not None:
        inner = getattr(built, field.name)
        inner.SetInParent()
        _fill(inner, item, where)
    else:
        setattr(built, field.name, _scalar(field, item))


def _scalar(field: Any, value: Any) -> Any:
    if field.enum_type is not None and isinstance(value, str):
        constant = field.enum_type.values_by_name.get(value)
        if constant is None:
            raise Unencodable(f"enum {field.enum_type.full_name} has no constant {value!r}")
        return constant.number
    return value
