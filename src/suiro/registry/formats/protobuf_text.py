"""Writes a compiled `.proto` file as text, always in the same form.

Type names are as short as Protobuf's scopes allow. Comments before a declaration, and after it on the same line, are
kept unless the text is normalized.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import dropwhile
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pb2 import Edition, FieldDescriptorProto

_MAX_FIELD = 536_870_912  # exclusive
_MAX_ENUM = 2_147_483_647
_NUMBERS = "double float int32 int64 uint32 uint64 sint32 sint64 fixed32 fixed64 sfixed32 sfixed64 bool"
_SCALARS = {
    FieldDescriptorProto.Type.Value(f"TYPE_{name.upper()}"): name for name in (*_NUMBERS.split(), "string", "bytes")
}
_GROUP = FieldDescriptorProto.TYPE_GROUP
_REPEATED, _REQUIRED = FieldDescriptorProto.LABEL_REPEATED, FieldDescriptorProto.LABEL_REQUIRED
# The numbers of fields of descriptor.proto, of which the paths of comments consist.
_FILE_MESSAGE, _FILE_ENUM, _FILE_SERVICE, _FILE_EXTENSION = 4, 5, 6, 7
_MESSAGE_FIELD, _MESSAGE_NESTED, _MESSAGE_ENUM, _MESSAGE_EXTENSION, _MESSAGE_ONEOF = 2, 3, 4, 6, 8
_ENUM_VALUE, _SERVICE_METHOD = 2, 2

Path = tuple[int, ...]


def write(file: Any, known: set[str], *, normalized: bool) -> str:
    """`known` has the full names of all messages and enums, including those of imported files."""
    return "\n".join(_Writer(file, known, normalized=normalized).lines()) + "\n"


class _Writer:
    def __init__(self, file: Any, known: set[str], *, normalized: bool) -> None:
        self._file = file
        self._known = known
        self._scopes = {".".join(parts[:n]) for parts in (name.split(".") for name in known) for n in range(len(parts))}
        # The scopes in which an option may be: a name is looked up in all of these before the root.
        names = [file.package, *_names_of_messages(file.message_type, file.package)]
        self._around = {
            ".".join(parts[: n + 1]) for parts in (name.split(".") for name in names if name) for n in range(len(parts))
        }
        self._normalized = normalized
        self._comments: dict[Path, Any] = {}
        if not normalized:
            self._comments = {tuple(one.path): one for one in file.source_code_info.location}

    def lines(self) -> Iterator[str]:
        file = self._file
        if file.syntax == "editions":
            yield from self._commented((14,), f'edition = "{Edition.Name(file.edition).removeprefix("EDITION_")}";')
        else:
            yield from self._commented((12,), f'syntax = "{file.syntax or "proto2"}";')
        if file.package:
            yield ""
            yield from self._commented((2,), f"package {file.package};")
        imports = list(self._imports())
        if imports:
            yield from ("", *(sorted(imports) if self._normalized else imports))
        options = list(self._option_lines(file.options))
        if options:
            yield from ("", *options)
        for index, one in enumerate(file.enum_type):
            yield from ("", *self._enum(one, (_FILE_ENUM, index)))
        for index, one in enumerate(file.message_type):
            yield from ("", *self._message(one, file.package, (_FILE_MESSAGE, index)))
        yield from self._extensions(file.extension, file.package, (_FILE_EXTENSION,))
        for index, one in enumerate(file.service):
            yield from ("", *self._service(one, (_FILE_SERVICE, index)))

    def _imports(self) -> Iterator[str]:
        public, weak = set(self._file.public_dependency), set(self._file.weak_dependency)
        for index, name in enumerate(self._file.dependency):
            kind = "public " if index in public else "weak " if index in weak else ""
            yield f'import {kind}"{name}";'

    def _message(self, one: Any, scope: str, path: Path) -> Iterator[str]:
        full = within(scope, one.name)
        yield from self._block(f"message {one.name}", self._message_body(one, full, path), path)

    def _message_body(self, one: Any, full: str, path: Path) -> Iterator[str]:
        yield from self._option_lines(one.options)
        yield from self._reserved(one, _MAX_FIELD, exclusive=1)
        for ranges in one.extension_range:
            options = self._inline(self._options(ranges.options))
            yield f"extensions {_range(ranges.start, ranges.end - 1, _MAX_FIELD - 1)}{options};"
        in_place = {nested.name for nested in one.nested_type if nested.options.map_entry}
        in_place |= {field.type_name.rpartition(".")[2] for field in one.field if field.type == _GROUP}
        yield from self._fields(one, full, path)
        yield from self._extensions(one.extension, full, (*path, _MESSAGE_EXTENSION))
        for index, enum in enumerate(one.enum_type):
            yield from ("", *self._enum(enum, (*path, _MESSAGE_ENUM, index)))
        for index, nested in enumerate(one.nested_type):
            if nested.name not in in_place:
                yield from ("", *self._message(nested, full, (*path, _MESSAGE_NESTED, index)))

    def _fields(self, message: Any, scope: str, path: Path, oneof: int | None = None) -> Iterator[str]:
        """Writes the fields of a oneof, or those of a message, with each oneof where its first field is."""
        fields = list(enumerate(message.field))
        if self._normalized:
            fields.sort(key=lambda item: item[1].number)
        written: set[int] = set()
        for index, field in fields:
            own = field.oneof_index if field.HasField("oneof_index") and not field.proto3_optional else None
            if own == oneof:
                place = (*path, _MESSAGE_FIELD, index)
                yield from self._field(field, message, scope, place, in_oneof=oneof is not None)
            elif own is not None and oneof is None and own not in written:
                written.add(own)
                declared = message.oneof_decl[own]
                body = (*self._option_lines(declared.options), *self._fields(message, scope, path, own))
                yield from self._block(f"oneof {declared.name}", body, (*path, _MESSAGE_ONEOF, own))

    def _field(self, field: Any, parent: Any, scope: str, path: Path, *, in_oneof: bool = False) -> Iterator[str]:
        nested = {f"{scope}.{one.name}": one for one in parent.nested_type} if parent is not None else {}
        local = nested.get(field.type_name.removeprefix("."))
        options = list(self._options(field.options))
        if field.HasField("default_value"):
            options.insert(0, ("default", _default(field)))
        if field.json_name and field.json_name != _json_name(field.name):
            options.insert(0, ("json_name", _quoted(field.json_name)))
        label = self._label(field, in_oneof=in_oneof)
        if local is not None and local.options.map_entry and field.label == _REPEATED:
            key, value = (self._type(one, scope) for one in local.field)
            start = f"map<{key}, {value}> {field.name} = {field.number}"
        elif field.type == _GROUP and local is not None:
            start = f"{label}group {local.name} = {field.number}{self._inline(options)}"
            index = next(n for n, one in enumerate(parent.nested_type) if one.name == local.name)
            place = (*path[:-2], _MESSAGE_NESTED, index)
            yield from self._block(start, self._message_body(local, f"{scope}.{local.name}", place), path)
            return
        else:
            start = f"{label}{self._type(field, scope)} {field.name} = {field.number}"
        yield from self._commented(path, f"{start}{self._inline(options)};")

    def _label(self, field: Any, *, in_oneof: bool) -> str:
        if in_oneof:
            return ""
        if field.label == _REPEATED:
            return "repeated "
        if self._file.syntax in ("proto3", "editions"):
            return "optional " if field.proto3_optional else ""
        return "required " if field.label == _REQUIRED else "optional "

    def _type(self, field: Any, scope: str) -> str:
        return _SCALARS.get(field.type) or self._shortest(field.type_name.removeprefix("."), scope)

    def _shortest(self, full: str, scope: str) -> str:
        """Returns the shortest name that means `full` in the scope. Protobuf looks up its first part from the innermost
        scope on."""
        parts = full.split(".")
        for length in range(1, len(parts) + 1):
            name = ".".join(parts[-length:])
            if self._resolve(name, scope) == full:
                return name
        return f".{full}"

    def _resolve(self, name: str, scope: str) -> str | None:
        first = name.partition(".")[0]
        while True:
            prefix = f"{scope}." if scope else ""
            if prefix + first in self._known or prefix + first in self._scopes:
                return prefix + name if prefix + name in self._known else None
            if not scope:
                return None
            scope = scope.rpartition(".")[0]

    def _enum(self, one: Any, path: Path) -> Iterator[str]:
        body = [*self._option_lines(one.options), *self._reserved(one, _MAX_ENUM, exclusive=0)]
        for index, value in enumerate(one.value):
            options = self._inline(self._options(value.options))
            body += self._commented((*path, _ENUM_VALUE, index), f"{value.name} = {value.number}{options};")
        yield from self._block(f"enum {one.name}", body, path)

    def _reserved(self, one: Any, highest: int, *, exclusive: int) -> Iterator[str]:
        ranges, names = list(one.reserved_range), list(one.reserved_name)
        if self._normalized:
            ranges.sort(key=lambda each: each.start)
            names.sort()
        if ranges:
            limit = highest - exclusive
            numbers = (_range(each.start, each.end - exclusive, limit) for each in ranges)
            yield f"reserved {', '.join(numbers)};"
        if names:
            yield f"reserved {', '.join(names if self._file.syntax == 'editions' else map(_quoted, names))};"

    def _extensions(self, extensions: Any, scope: str, path: Path) -> Iterator[str]:
        bodies: dict[str, list[str]] = {}
        for index, one in enumerate(extensions):
            bodies.setdefault(one.extendee, []).extend(self._field(one, None, scope, (*path, index)))
        for extendee, body in bodies.items():
            name = self._shortest(extendee.removeprefix("."), scope)
            yield from ("", *self._block(f"extend {name}", body, ()))

    def _service(self, one: Any, path: Path) -> Iterator[str]:
        body = list(self._option_lines(one.options))
        for index, method in enumerate(one.method):
            types = (method.input_type, method.output_type)
            taken, given = (self._shortest(name.removeprefix("."), self._file.package) for name in types)
            start = (
                f"rpc {method.name} ({'stream ' * method.client_streaming}{taken}) "
                f"returns ({'stream ' * method.server_streaming}{given})"
            )
            options = list(self._option_lines(method.options))
            place = (*path, _SERVICE_METHOD, index)
            body += self._block(start, options, place) if options else self._commented(place, f"{start};")
        yield from self._block(f"service {one.name}", body, path)

    def _block(self, start: str, body: Iterable[str], path: Path) -> Iterator[str]:
        inner = list(dropwhile(lambda line: not line, body))
        yield from self._commented(path, f"{start} {{" if inner else f"{start} {{}}")
        if inner:
            yield from (f"  {line}" if line else "" for line in inner)
            yield "}"

    def _commented(self, path: Path, line: str) -> Iterator[str]:
        location = self._comments.get(path)
        if location is None:
            yield line
            return
        yield from _comment(location.leading_comments)
        trailing = list(_comment(location.trailing_comments))
        if len(trailing) == 1:
            yield f"{line} {trailing[0]}"
        else:
            yield from (*trailing, line)

    def _options(self, options: Any) -> Iterator[tuple[str, str]]:
        for field, value in options.ListFields():
            if field.name == "map_entry" and not field.is_extension:
                continue
            name = f"({self._from_anywhere(field.full_name)})" if field.is_extension else field.name
            for one in value if is_repeated(field) else [value]:
                yield name, _value(field, one)

    def _option_lines(self, options: Any) -> Iterator[str]:
        return (f"option {name} = {value};" for name, value in self._options(options))

    def _from_anywhere(self, full: str) -> str:
        """Returns a name that means `full` everywhere in the file."""
        first = full.partition(".")[0]
        hidden = any(name in self._known or name in self._scopes for name in (f"{one}.{first}" for one in self._around))
        return f".{full}" if hidden else full

    def _inline(self, options: Iterable[tuple[str, str]]) -> str:
        text = ", ".join(f"{name} = {value}" for name, value in options)
        return f" [{text}]" if text else ""


def within(scope: str, name: str) -> str:
    """Returns the full name of a definition in a package or a message."""
    return f"{scope}.{name}" if scope else name


def _names_of_messages(messages: Any, scope: str) -> Iterator[str]:
    for one in messages:
        full = within(scope, one.name)
        yield full
        yield from _names_of_messages(one.nested_type, full)


def is_repeated(field: Any) -> bool:
    """Whether the field is repeated. Protobuf 5 has no `is_repeated`, and later versions deprecate `label`."""
    repeated = getattr(field, "is_repeated", None)
    return bool(repeated if repeated is not None else field.label == FieldDescriptor.LABEL_REPEATED)


def _comment(text: str) -> Iterator[str]:
    for line in text.rstrip("\n").split("\n") if text else ():
        yield f"//{line.rstrip()}" if line.startswith(" ") or not line else f"// {line.rstrip()}"


def _range(start: int, end: int, highest: int) -> str:
    if start == end:
        return str(start)
    return f"{start} to {'max' if end >= highest else end}"


def _quoted(text: str | bytes) -> str:
    data = text.encode() if isinstance(text, str) else text
    escaped = "".join(
        f"\\{chr(byte)}" if byte in b'"\\' else chr(byte) if 32 <= byte < 127 else f"\\{byte:03o}" for byte in data
    )
    return f'"{escaped}"'


def _value(field: Any, value: Any) -> str:
    if field.message_type is not None:
        return f"{{ {text_format.MessageToString(value, as_one_line=True)} }}"
    if field.enum_type is not None:
        return str(field.enum_type.values_by_number[value].name)
    if isinstance(value, bool):
        return "true" if value else "false"
    return _quoted(value) if isinstance(value, str | bytes) else str(value)


def _default(field: Any) -> str:
    # That of bytes is escaped already.
    quoted = {FieldDescriptorProto.TYPE_STRING: _quoted, FieldDescriptorProto.TYPE_BYTES: '"{}"'.format}
    return quoted.get(field.type, str)(field.default_value)


def _json_name(name: str) -> str:
    """Returns the name that protoc derives: `tail_number` becomes `tailNumber`."""
    return re.sub("_+(.?)", lambda found: found[1].upper(), name)
