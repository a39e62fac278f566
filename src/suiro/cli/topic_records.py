"""`suiro topic records`, `produce` and `consume`."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from suiro.cli.command_groups import argument, option, options
from suiro.cli.everyday import (
    AS_JSON,
    REGISTRY,
    Connection,
    JsonText,
    assignments,
    connected,
    fail,
    note,
    print_json,
    profile_of,
    registry_url,
    usage,
)

if TYPE_CHECKING:
    from suiro.console.formats import Decoder
    from suiro.console.records import LogRecord, OutgoingRecord

_FORMATS = ("string", "json", "avro", "long", "hex")
_NAME = argument("TOPIC")
_KEY_FORMAT = option("string", choices=_FORMATS)
_VALUE_FORMAT = option("string", choices=_FORMATS)
_PARTITION = option(None, "Only this partition; repeatable.", "N")


@options
class _Shown:
    """The options that select records, and the form in which they are printed."""

    key_format: str = _KEY_FORMAT
    value_format: str = _VALUE_FORMAT
    isolation_level: str = option("read_committed", choices=("read_committed", "read_uncommitted"))
    filter_: str | None = option(
        None,
        "Only records for which it is true: dep_delay > 15 and carrier in ['UA', 'AA']. Names are fields of the "
        "value; also record_key() and record_timestamp(). It takes no code.",
        "EXPRESSION",
    )
    registry: str | None = REGISTRY
    as_json: bool = AS_JSON

    @property
    def read_committed(self) -> bool:
        return self.isolation_level == "read_committed"

    def print(
        self,
        found: Iterator[LogRecord],
        max_records: int | None,
        registry: str | None,
        handled: Callable[[LogRecord], object] = lambda record: None,
    ) -> None:
        """`handled` is called after each record that was printed, or that the filter left out."""
        from suiro.console.formats import Filter, decoder

        key_of, value_of = decoder(self.key_format, registry), decoder(self.value_format, registry)
        wanted = None if self.filter_ is None else Filter(self.filter_)
        printed = 0
        if max_records == 0:
            return
        try:
            for record in found:
                if wanted is None or wanted.holds(record, value_of(record.value).value, key_of(record.key).value):
                    print_record(record, key_of, value_of, as_json=self.as_json)
                    printed += 1
                handled(record)
                if printed == max_records:
                    break
        finally:
            if wanted is not None and wanted.unclear:
                note(wanted.said())


def records(
    connection: Connection,
    name: str = _NAME,
    from_: str = option(
        "earliest",
        "First record: earliest, latest, an offset, -N (the last N of each partition), or a time (2013-01-01T00:00Z).",
        "PLACE",
    ),
    partition: list[int] | None = _PARTITION,
    max_: int | None = option(None, "Stop after N records.", "N", min=0),
    follow: bool = option(False, "Wait for more records, until SIGINT."),
    *,
    shown: _Shown,
) -> None:
    """Print records, one on each line: partition and offset, time, key, value, headers.

    Characters that are not printable are escaped. Data that cannot be decoded is shown in hex, with a note.
    """
    with connected(connection) as client:
        from suiro.console.records import parse_start, read_records

        found = read_records(
            client,
            name,
            start=parse_start(from_),
            partitions=partition or None,
            read_committed=shown.read_committed,
            follow=follow,
        )
        url = registry_url(shown.registry, profile_of(connection))
        # With `follow`, a reader of the output waits for each record.
        shown.print(found, max_, url, lambda record: follow and sys.stdout.flush())


def consume(
    connection: Connection,
    name: str = _NAME,
    from_beginning: bool = option(False, "Start at the first record if the group has no committed offset."),
    group: str | None = option(
        None, "Continue at the offsets of this group, and commit the printed records. It must have no members.", "GROUP"
    ),
    partition: list[int] | None = _PARTITION,
    max_messages: int | None = option(None, "Stop after N records.", "N", min=0),
    timeout_ms: int | None = option(None, "Stop after this time without a record. Default: never.", "MS", min=0),
    *,
    shown: _Shown,
) -> None:
    """Print records as they arrive, until SIGINT. With --group, each record is printed once."""
    with connected(connection) as client:
        from suiro.clock import SystemClock
        from suiro.console.records import Start, read_records, start_offsets
        from suiro.console.topics import require_partition, topic_info

        clock = SystemClock()
        info = topic_info(client, name)
        chosen = partition or [one.partition for one in info.partitions]
        for one in chosen:
            require_partition(name, one, len(info.partitions))
        start = Start(kind="earliest" if from_beginning else "latest")
        positions = start_offsets(client, name, chosen, start, read_committed=shown.read_committed)
        if group is not None:
            if client.admin.describe_group(group).has_members:
                fail(f"group {group!r} has members; stop them first, or use another group")
            committed = client.offset_fetch(group, [(name, one) for one in chosen])
            positions |= {place[1]: found.offset for place, found in committed.items() if found is not None}
        last_ms = clock.monotonic_ms()

        def idle() -> bool:
            return timeout_ms is None or clock.monotonic_ms() - last_ms < timeout_ms

        done = dict(positions)

        def handled(record: LogRecord) -> None:
            nonlocal last_ms
            last_ms = clock.monotonic_ms()
            done[record.partition] = record.offset + 1
            sys.stdout.flush()

        found = read_records(
            client,
            name,
            start=positions,
            partitions=chosen,
            read_committed=shown.read_committed,
            follow=True,
            idle=idle,
        )
        try:
            shown.print(found, max_messages, registry_url(shown.registry, profile_of(connection)), handled)
        finally:
            moved = {(name, one): (at, "") for one, at in done.items() if at != positions[one]}
            if group is not None and moved:
                sys.stdout.flush()
                client.offset_commit(group, moved)


def produce(
    connection: Connection,
    name: str = _NAME,
    key: str | None = option(None, "Key of every record.", "KEY"),
    key_separator: str | None = option(None, "Text between the key and the value in a line.", "TEXT"),
    header: list[str] | None = option(None, "Header of every record; repeatable.", "NAME=VALUE"),
    partition: int | None = option(None, "Partition of every record. Default: by the key.", "N"),
    key_format: str = _KEY_FORMAT,
    value_format: str = _VALUE_FORMAT,
    registry: str | None = REGISTRY,
    as_json: bool = option(
        False, "Each line is an object as printed by `suiro topic records --json`: key, value, headers.", name="--json"
    ),
) -> None:
    """Write records: each line of the standard input is a value. The command ends when all are acknowledged. At an
    invalid line, it stops; the records before it are written."""
    if key_separator == "":
        usage("--key-separator is empty; give what is between the key and the value")
    with connected(connection) as client:
        from suiro.console import records as writing
        from suiro.console.formats import encoder

        url = registry_url(registry, profile_of(connection))
        key_of = encoder(key_format, url, subject=f"{name}-key")
        value_of = encoder(value_format, url, subject=f"{name}-value")
        key_of_json, value_of_json = of_values(key_format, key_of), of_values(value_format, value_of)
        headers = tuple((one, value.encode()) for one, value in assignments(header or (), "--header").items())

        def outgoing() -> Iterator[OutgoingRecord]:
            for number, line in enumerate(sys.stdin, 1):
                text = line.rstrip("\n").removesuffix("\r")
                if as_json:
                    yield _from_json(text, number, key_of_json, value_of_json, partition)
                    continue
                line_key: str | None = key
                if key_separator is not None:
                    before, found, after = text.partition(key_separator)
                    if not found:
                        usage(f"line {number} has no {key_separator!r} between key and value")
                    line_key, text = before, after
                yield writing.OutgoingRecord(
                    key=key_of(line_key), value=value_of(text), headers=headers, partition=partition
                )

        # A user who types waits for the result of each line.
        batch = 1 if sys.stdin.isatty() else writing.PRODUCE_BATCH_RECORDS
        written = 0

        def acknowledged(count: int) -> None:
            nonlocal written
            written = count

        try:
            writing.produce(client, name, outgoing(), batch_records=batch, progress=acknowledged)
        except BaseException as error:
            if written:  # who calls it again must know what is there
                note(f"wrote {written} records to {name}, and then stopped")
            if isinstance(error, UnicodeDecodeError):
                fail(f"the standard input is not UTF-8: {error}; --value-format hex takes any bytes")
            raise
        note(f"wrote {written} record{'s' * (written != 1)} to {name}")


def _from_json(text: str, number: int, key_of: Writer, value_of: Writer, partition: int | None) -> OutgoingRecord:
    from suiro.console.records import OutgoingRecord

    try:
        found = json.loads(text)
        headers = tuple((_name(one), _of_header(value)) for one, value in _list(found.get("headers")))
        timestamp = _whole("timestamp", found.get("timestamp"))
        named = _whole("partition", found.get("partition"))
        key, value = _texts(text, found)
    except (ValueError, AttributeError, TypeError, RecursionError) as error:
        usage(f"line {number} is not a record in JSON: {error}")
    if "unclear" in found:
        usage(
            f"line {number} is not a record: it says that the filter of this file could not be applied to "
            f"{found['unclear']} records, which are not in it"
        )
    for what in ("key", "value"):
        if found.get(f"{what}_error") is not None:
            usage(
                f"line {number}: its {what} could not be decoded when it was printed, so these are not its bytes; "
                f"print and write it with --{what}-format hex"
            )
    return OutgoingRecord(
        key=key_of(found.get("key"), key),
        value=value_of(found.get("value"), value),
        headers=headers,
        partition=partition if partition is not None else named,
        timestamp=timestamp,
    )


Writer = Callable[[Any, str], bytes | None]
"""Encodes a value of JSON. The second argument is its text, which has all digits of a number."""


def of_values(name: str, encode: Callable[[Any], bytes | None]) -> Writer:
    """Returns an encoder for which "5" is a text, not the text of a number."""
    if name in ("json", "avro"):
        return lambda value, text: encode(None if value is None else text)
    return lambda value, text: encode(value)


def _texts(line: str, found: dict[str, Any]) -> tuple[str, str]:
    """Returns the key and the value of a line as they are written there."""
    import msgspec

    try:
        written = msgspec.json.decode(line, type=dict[str, msgspec.Raw])
    except (msgspec.MsgspecError, RecursionError):  # such as NaN, which only Python's parser accepts
        return json.dumps(found.get("key")), json.dumps(found.get("value"))
    key, value = (bytes(written.get(what, b"null")).decode() for what in ("key", "value"))
    return key, value


def _list(value: Any) -> list[Any]:
    # Two characters of a text, or of a name, would be taken for a name and its value.
    if not isinstance(value, list | None) or not all(isinstance(pair, list) for pair in value or ()):
        raise TypeError("headers are a list of pairs")
    return value or []


def _name(value: Any) -> str:
    if not isinstance(value, str):
        raise TypeError(f"a header has the name {value!r:.50}, which is no text")
    value.encode()
    return value


def _of_header(value: Any) -> bytes | None:
    if isinstance(value, dict) and value.keys() == {"hex"}:
        return bytes.fromhex(value["hex"])
    if not isinstance(value, str | None):
        raise TypeError(f"a header has the value {value!r:.50}, which is no text")
    return None if value is None else value.encode()


def _whole(what: str, value: Any) -> int | None:
    if value is not None and (type(value) is not int or not -(1 << 63) <= value < 1 << 63):
        raise ValueError(f"{what} is {value!r:.50}, which is no whole number of 64 bits")
    return value


def print_record(record: LogRecord, key_of: Decoder, value_of: Decoder, *, as_json: bool) -> None:
    from suiro.console.formats import record_fields
    from suiro.console.text import iso_time, printable

    key, value = key_of(record.key), value_of(record.value)
    if as_json:
        print_json(record_fields(record, key, value, headers=record.headers, exact=JsonText))
        return
    parts = [f"{record.partition}:{record.offset}", iso_time(record.timestamp), key.text, value.text]
    parts += [
        f"{name}={None if data is None else data.decode(errors='backslashreplace')}" for name, data in record.headers
    ]
    # Each part is escaped separately, so that it cannot contain the separator.
    sys.stdout.write("\t".join(printable(part) for part in parts) + "\n")
    for what, decoded in (("key", key), ("value", value)):
        if decoded.error is not None:
            place = f"{record.topic}-{record.partition} offset {record.offset}"
            note(f"the {what} of {place} {decoded.error}; it is shown in hex")
