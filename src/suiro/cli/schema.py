"""`suiro schema`: schemas of a registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import (
    AsJson,
    Profile,
    Yes,
    fail,
    print_json,
    print_rows,
    registry_url,
    reporting,
    require_yes,
    say,
    settings_of,
)
from suiro.numerals import natural

if TYPE_CHECKING:
    from suiro.registry import RegistryClient, Schema

schema = Group("schema", "Schemas of a registry: list, get, register, check, diff, delete.")

_Subject = Annotated[str, Argument("SUBJECT", "Subject, such as flights-value.")]
_Version = Annotated[int | None, Option("--version", "N", "Version. Default: the latest.")]


@dataclass(frozen=True, slots=True)
class _GivenSchema:
    file: Annotated[Path, Argument("FILE", "File of the schema; - is the standard input.")]
    type_: Annotated[str, Option("--type", choices=("AVRO", "JSON", "PROTOBUF"))] = "AVRO"
    reference: Annotated[
        list[str] | None, Option("--reference", "NAME=SUBJECT:VERSION", "Schema to which it refers; repeatable.")
    ] = None

    def read(self) -> Schema:
        from suiro.errors import UsageError
        from suiro.registry import Reference, Schema

        try:
            is_stdin = self.file == Path("-")
            text = sys.stdin.buffer.read().decode() if is_stdin else self.file.read_text(encoding="utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"{self.file} is not UTF-8: {error}") from None
        references = []
        for one in self.reference or ():
            name, _, target = one.partition("=")
            subject, colon, text_of_version = target.rpartition(":")
            version = natural(text_of_version)
            if not colon or not name or version is None:
                raise UsageError(f"--reference {one[:80]}: expected NAME=SUBJECT:VERSION")
            references.append(Reference(name=name, subject=subject, version=version))
        return Schema(text, self.type_, tuple(references))  # type: ignore[arg-type]


@dataclass(frozen=True, slots=True)
class _Connection:
    profile: Profile = None
    registry: Annotated[
        str | None, Option("--registry", "URL", "Schema registry. Also SUIRO_REGISTRY, or registry of a profile.")
    ] = None


@contextmanager
def _registry(connection: _Connection) -> Iterator[RegistryClient]:
    with reporting():
        url = registry_url(connection.registry, settings_of(connection.profile))
        if url is None:
            fail("which registry? Give --registry URL, set SUIRO_REGISTRY, or write it into a profile")
        from suiro.registry import registry_client

        yield registry_client(url)


@schema.command
def list_(
    connection: _Connection,
    names_only: Annotated[
        bool, Option("--names-only", help="List only names, with one request instead of three for each subject.")
    ] = False,
    as_json: AsJson = False,
) -> None:
    """List subjects with their versions."""
    with _registry(connection) as client:
        from suiro.console.schemas import row_of

        names = sorted(client.subjects())
        if names_only:
            print_rows(names, as_json, ("subject",), ((one,) for one in names))
            return
        rows = [row_of(client, one) for one in names]
        columns = attrgetter("subject", "versions", "latest_id", "type", "compatibility")
        print_rows(rows, as_json, ("subject", "versions", "id", "type", "compatibility"), map(columns, rows))


@schema.command
def get(subject: _Subject, connection: _Connection, version: _Version = None, as_json: AsJson = False) -> None:
    """Print a schema."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.get(client, subject, version)
        if as_json:
            print_json(found)
            return
        for line in schemas.pretty(found.schema).splitlines():
            say(line)


@schema.command
def register(subject: _Subject, connection: _Connection, given: _GivenSchema, as_json: AsJson = False) -> None:
    """Register a schema as a new version. A schema that the subject already has keeps its version."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.register(client, subject, given.read())
        if as_json:
            print_json({"subject": found.subject, "version": found.version, "id": found.id})
            return
        say(f"{found.subject} version {found.version} has id {found.id}")


@schema.command
def check(subject: _Subject, connection: _Connection, given: _GivenSchema, as_json: AsJson = False) -> None:
    """Check whether a schema could be registered now. The exit status is 1 if not."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.check(client, subject, given.read())
        if as_json:
            print_json(found)
        elif found.compatible:
            say(f"{subject} accepts this schema")
        else:
            for reason in found.reasons:
                say(reason)
        if not found.compatible:
            raise SystemExit(1)


@schema.command
def diff(
    subject: _Subject,
    connection: _Connection,
    from_: Annotated[
        int | None, Option("--from", "N", "First version. Default: the one before the second version.")
    ] = None,
    to: Annotated[int | None, Option("--to", "N", "Version. Default: the latest.")] = None,
    with_: Annotated[str | None, Option("--with", "SUBJECT", "Take the second version from this subject.")] = None,
    as_json: AsJson = False,
) -> None:
    """Show what changed between two versions."""
    with _registry(connection) as client:
        from suiro.console import schemas

        new = schemas.get(client, with_ or subject, to)
        if from_ is None and with_ is None:
            earlier = [one for one in client.versions(subject) if one < new.version]
            if not earlier:
                fail(f"{subject} has no version before {new.version}; name one with --from, or --with SUBJECT")
            from_ = earlier[-1]
        lines = schemas.diff(schemas.get(client, subject, from_), new)
        if as_json:
            print_json(lines)
            return
        for line in lines:
            say(line)


@schema.command
def delete(
    subject: _Subject,
    connection: _Connection,
    version: Annotated[int | None, Option("--version", "N", "Only this version.")] = None,
    permanent: Annotated[
        bool,
        Option(
            "--permanent",
            help="Delete permanently, after a delete without this option. Records with the schema cannot "
            "be read any more.",
        ),
    ] = False,
    yes: Yes = False,
) -> None:
    """Delete a version or a subject. Its schemas can still be read by id, except with --permanent."""
    with _registry(connection) as client:
        from suiro.console import schemas

        what = subject if version is None else f"version {version} of {subject}"
        require_yes(f"Delete {what}{' for good' if permanent else ''}?", yes)
        gone = schemas.delete(client, subject, version, permanent=permanent)
        say(f"deleted {subject}: versions {', '.join(map(str, gone))}")
