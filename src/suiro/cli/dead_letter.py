"""`suiro dead-letter`: shows dead letters, and sends them back."""

from __future__ import annotations

from dataclasses import asdict
from typing import Annotated

from suiro.cli.command_groups import Argument, Group, Option
from suiro.cli.everyday import (
    AsJson,
    Connection,
    JsonText,
    Yes,
    connected,
    fail,
    note,
    print_fields,
    print_json,
    print_rows,
    require_yes,
    say,
    usage,
)
from suiro.numerals import natural

dead_letter = Group("dead-letter", "Dead letters: list, show, redrive.")

_Topic = Annotated[str, Argument("TOPIC", "Topic of dead letters.")]
_Group = Annotated[
    str | None, Option("--group", "GROUP", "Group whose offsets store the progress. Default: suiro-redrive-TOPIC.")
]
_Format = Annotated[str, Option("--value-format", choices=("string", "json", "long", "hex"))]


@dead_letter.command
def list_(
    connection: Connection,
    topics: Annotated[
        list[str] | None, Argument("TOPIC", "Topics. Default: those with dead or dlq in their names.")
    ] = None,
    group: _Group = None,
    as_json: AsJson = False,
) -> None:
    """Count dead letters by reason, without the numbers in a reason. Reads each topic to its end. If this user may not
    read one of them, the exit status is 1."""
    with connected(connection) as client:
        from suiro.console.dead_letters import DeadLetterGroup, Letters, find_topics, summarise
        from suiro.console.text import iso_time
        from suiro.errors import RefusedError

        found: list[tuple[str, DeadLetterGroup]] = []
        refusals: list[str] = []
        for name in topics or find_topics(client):
            try:
                found += [(name, one) for one in summarise(Letters(client, name, group=group)).groups]
            except RefusedError as error:
                refusals.append(f"{name}: {error}")
        if refusals and not found:
            fail("; ".join(refusals))
        print_rows(
            [{"topic": name, **asdict(one)} for name, one in found],
            as_json,
            ("topic", "from", "records", "waiting", "first", "last", "exception", "reason"),
            (
                (
                    name,
                    one.origin_topic,
                    one.records,
                    one.waiting,
                    f"{one.first[0]}:{one.first[1]}",
                    iso_time(one.last_timestamp),
                    one.exception,
                    one.reason,
                )
                for name, one in found
            ),
        )
        if refusals:
            fail("; ".join(refusals))


@dead_letter.command
def show(
    topic: _Topic,
    connection: Connection,
    partition: Annotated[
        int | None, Option("--partition", "N", "Partition. Default: the first that is not empty; with --offset, 0.")
    ] = None,
    offset: Annotated[int | None, Option("--offset", "N", "Offset. Default: the first one.")] = None,
    value_format: _Format = "string",
    as_json: AsJson = False,
) -> None:
    """Show a dead letter, its reason, and its original record."""
    with connected(connection) as client:
        from suiro.console.dead_letters import dead_letter_of, origin_record
        from suiro.console.formats import decoder, exact_value
        from suiro.console.records import Start, read_records
        from suiro.console.text import iso_time
        from suiro.errors import FatalError, RefusedError

        start = Start(kind="earliest") if offset is None else Start(kind="offset", value=offset)
        if partition is None and offset is not None:
            partition = 0
        chosen = None if partition is None else [partition]
        record = next(read_records(client, topic, start=start, partitions=chosen), None)
        if record is None or (offset is not None and record.offset != offset):
            place = topic if partition is None else f"{topic}-{partition}"
            fail(f"{place} is empty" if offset is None else f"{place} has no record at offset {offset}")
        letter = dead_letter_of(record)
        origin, why = None, "it is not in the log any more"
        try:
            origin = origin_record(client, letter)
        except (RefusedError, FatalError) as error:
            why = str(error)
        key_of, value_of = decoder("string"), decoder(value_format)
        if as_json:
            shown = {
                "topic": topic,
                "partition": record.partition,
                "offset": record.offset,
                "timestamp": record.timestamp,
                "exception": letter.exception,
                "reason": letter.reason,
                "origin": None if letter.origin is None else letter.origin._asdict(),
                "refusal": letter.refusal,
                "key": key_of(record.key).value,
                "value": exact_value(value_of(record.value), JsonText),
                "origin_record": None
                if origin is None
                else {"key": key_of(origin.key).value, "value": exact_value(value_of(origin.value), JsonText)},
            }
            print_json(shown)
            return
        came = letter.origin
        where = "" if came is None else f"{came.topic}-{came.partition} offset {came.offset}"
        print_fields(
            {
                "dead letter": f"{topic}-{record.partition} offset {record.offset}",
                "put aside": iso_time(record.timestamp),
                "from": where,
                "exception": letter.exception,
                "reason": letter.reason,
                "key": key_of(record.key).text,
                "value": value_of(record.value).text,
            }
        )
        if letter.refusal is not None:
            say(f"it cannot be sent back: {letter.refusal}")
        elif origin is None:
            say(f"the original record cannot be shown: {why}")
        else:
            same = (origin.key, origin.value) == (record.key, record.value)
            say(f"original record: {'the same' if same else value_of(origin.value).text}")


@dead_letter.command
def redrive(
    topic: _Topic,
    connection: Connection,
    place: Annotated[
        list[str] | None, Option("--place", "PARTITION:OFFSET", "Only this dead letter; repeatable.")
    ] = None,
    from_topic: Annotated[
        str | None, Option("--from-topic", "TOPIC", "Only dead letters of records from this topic.")
    ] = None,
    reason: Annotated[
        str | None, Option("--reason", "TEXT", "Only dead letters with this text in the exception or the reason.")
    ] = None,
    by_key: Annotated[
        bool, Option("--by-key", help="Send to the current partition of the key, not to the original partition.")
    ] = False,
    group: _Group = None,
    transaction_records: Annotated[
        int, Option("--transaction-records", "N", "Records in one transaction. Default: 500.")
    ] = 500,
    dry_run: Annotated[bool, Option("--dry-run", help="Only show the targets and the numbers of records.")] = False,
    yes: Yes = False,
    as_json: AsJson = False,
) -> None:
    """Send dead letters back to their original topics, each once, without the error headers.

    If the command is interrupted, run it again: it continues behind the records that it has sent. The topic
    suiro.redrives lists all redrives.
    """
    if transaction_records < 1:
        usage("--transaction-records is at least 1")
    with connected(connection) as client:
        from suiro.console import redrives
        from suiro.console.dead_letters import Selection
        from suiro.foundation.process import process_user

        selection = Selection(places=frozenset(map(_place, place or ())), origin_topic=from_topic, reason=reason)
        plan = redrives.plan_redrive(client, topic, selection, group=group, by_key=by_key)
        for refusal, records in plan.refused.items():
            note(f"{records} dead letters stay: {refusal}")
        sent = 0
        if not dry_run and plan.records:
            targets = sorted({name for name, _ in plan.targets})
            require_yes(f"Send {plan.records} records of {topic} to {', '.join(targets)}?", yes)
            sent = redrives.redrive(
                client,
                topic,
                selection,
                by=process_user(),
                group=group,
                by_key=by_key,
                only_to=frozenset(targets),
                transaction_records=transaction_records,
                progress=lambda records: note(f"sent back {records} of {plan.records} records"),
            ).records
        titles = ("topic", "partition", "records")
        rows = [(*place, records) for place, records in sorted(plan.targets.items())]
        shown = {
            "planned": plan.records,
            "sent": sent,
            "done_before": plan.done_before,
            "stay": sum(plan.refused.values()),
            "targets": [dict(zip(titles, row, strict=True)) for row in rows],
        }
        print_rows(shown, as_json, titles, rows)
        if not as_json:
            note("nothing was sent" if dry_run or not sent else f"sent back {sent} records")


def _place(text: str) -> tuple[int, int]:
    partition, _, offset = (natural(part) for part in text.partition(":"))
    if partition is None or offset is None:
        usage(f"--place {text[:80]}: expected PARTITION:OFFSET")
    return partition, offset
