"""`suiro schema`: schemas of a registry."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.cli.command_groups import Group, argument, option, options
from suiro.cli.everyday import (
    AS_JSON,
    PROFILE,
    YES,
    fail,
    print_json,
    print_rows,
    registry_url,
    reporting,
    require_yes,
    say,
    say_lines,
    settings_of,
)
from suiro.numerals import natural

if TYPE_CHECKING:
    from suiro.registry import RegistryClient, Schema

schema = Group("schema")

_SUBJECT = argument("SUBJECT", "Subject, such as flights-value.")


@options
class _GivenSchema:
    file: Path = argument("FILE", "File of the schema; - is the standard input.")
    type_: str = option("AVRO", choices=("AVRO", "JSON", "PROTOBUF"))
    reference: list[str] | None = option(None, "Schema to which it refers; repeatable.", "NAME=SUBJECT:VERSION")

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


@options
class _Connection:
    profile: str | None = PROFILE
    registry: str | None = option(None, "Schema registry. Also SUIRO_REGISTRY, or registry of a profile.", "URL")


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
    names_only: bool = option(False, "List only names, with one request instead of three for each subject."),
    as_json: bool = AS_JSON,
) -> None:
    """List subjects with their versions."""
    with _registry(connection) as client:
        from suiro.console.schemas import row_of

        names = sorted(client.subjects())
        if names_only:
            print_rows(names, as_json, "subject", subject=str)
            return
        rows = [row_of(client, one) for one in names]
        print_rows(rows, as_json, "subject, versions, id=latest_id, type, compatibility")


@schema.command
def get(
    connection: _Connection,
    subject: str = _SUBJECT,
    version: int | None = option(None, "Version. Default: the latest.", "N"),
    as_json: bool = AS_JSON,
) -> None:
    """Print a schema."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.get(client, subject, version)
        if as_json:
            print_json(found)
            return
        say_lines(schemas.pretty(found.schema).splitlines())


@schema.command
def register(connection: _Connection, subject: str = _SUBJECT, *, given: _GivenSchema, as_json: bool = AS_JSON) -> None:
    """Register a schema as a new version. A schema that the subject already has keeps its version."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.register(client, subject, given.read())
        if as_json:
            print_json({"subject": found.subject, "version": found.version, "id": found.id})
            return
        say(f"{found.subject} version {found.version} has id {found.id}")


@schema.command
def check(connection: _Connection, subject: str = _SUBJECT, *, given: _GivenSchema, as_json: bool = AS_JSON) -> None:
    """Check whether a schema could be registered now. The exit status is 1 if not."""
    with _registry(connection) as client:
        from suiro.console import schemas

        found = schemas.check(client, subject, given.read())
        if as_json:
            print_json(found)
        elif found.compatible:
            say(f"{subject} accepts this schema")
        else:
            say_lines(found.reasons)
        if not found.compatible:
            raise SystemExit(1)


@schema.command
def diff(
    connection: _Connection,
    subject: str = _SUBJECT,
    from_: int | None = option(None, "First version. Default: the one before the second version.", "N"),
    to: int | None = option(None, "Version. Default: the latest.", "N"),
    with_: str | None = option(None, "Take the second version from this subject.", "SUBJECT"),
    as_json: bool = AS_JSON,
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
        say_lines(lines)


@schema.command
def delete(
    connection: _Connection,
    subject: str = _SUBJECT,
    version: int | None = option(None, "Only this version.", "N"),
    permanent: bool = option(
        False,
        "Delete permanently, after a delete without this option. Records with the schema cannot be read any more.",
    ),
    yes: bool = YES,
) -> None:
    """Delete a version or a subject. Its schemas can still be read by id, except with --permanent."""
    with _registry(connection) as client:
        from suiro.console import schemas

        what = subject if version is None else f"version {version} of {subject}"
        require_yes(f"Delete {what}{' for good' if permanent else ''}?", yes)
        gone = schemas.delete(client, subject, version, permanent=permanent)
        say(f"deleted {subject}: versions {', '.join(map(str, gone))}")
