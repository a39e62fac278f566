"""`suiro topic records`, `produce` and `consume`: from any place on, in every format, whatever the bytes are."""

from __future__ import annotations

import json
import os
import select
import struct
import subprocess
import sys
from collections.abc import Callable
from typing import Any

import pytest
from conftest import LogUnderTest
from support.commands import Done, suiro

from suiro.client import Client, TransactionalBatch
from suiro.protocol.murmur2 import partition_for_key
from suiro.protocol.record_batch import HEADER_SIZE
from suiro.protocol.records import Record, encode_batch

NewTopicFixture = Callable[..., str]
Call = Callable[..., Done]
DAY_MS = 86_400_000


@pytest.fixture
def call(log_under_test: LogUnderTest) -> Call:
    return lambda *arguments, **more: suiro(
        "topic", *arguments, "--bootstrap-servers", log_under_test.bootstrap_servers, **more
    )


def written(client: Client, topic: str, *values: bytes | None, partition: int = 0, **more: Any) -> None:
    """The first is of 2013-01-01, each further one of the next day."""
    records = [
        Record(offset=at, timestamp=1_356_998_400_000 + at * DAY_MS, key=b"k", value=value, **more)
        for at, value in enumerate(values)
    ]
    client.produce({(topic, partition): encode_batch(records)})


def values(done: Done) -> list[Any]:
    assert done.code == 0, done
    return [json.loads(line)["value"] for line in done.out.splitlines()]


@pytest.mark.parametrize(
    ("place", "expected"),
    [
        ("earliest", ["0", "1", "2", "3"]),
        ("latest", []),
        ("2", ["2", "3"]),
        ("-1", ["3"]),
        ("-100", ["0", "1", "2", "3"]),
        ("2013-01-03", ["2", "3"]),
        ("2013-01-02T00:00:00.001Z", ["2", "3"]),
        ("2013-01-02T02:00:00+02:00", ["1", "2", "3"]),
        ("2030-01-01", []),
        ("1960-01-01", ["0", "1", "2", "3"]),
    ],
)
def test_from_any_place(
    call: Call, client: Client, new_topic: NewTopicFixture, place: str, expected: list[str]
) -> None:
    name = new_topic()
    written(client, name, b"0", b"1", b"2", b"3")
    assert values(call("records", name, "--from", place, "--json")) == expected


@pytest.mark.parametrize(("place", "code"), [("yesterday", 1), ("99", 1), ("9223372036854775808", 1), ("²", 1)])
def test_a_place_that_is_none(call: Call, client: Client, new_topic: NewTopicFixture, place: str, code: int) -> None:
    name = new_topic()
    written(client, name, b"0")
    done = call("records", name, "--from", place)
    assert (done.code, done.out) == (code, "")
    assert done.err.count("\n") == 1


def test_one_partition_and_no_more_than_so_many(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic(3)
    for partition in range(3):
        written(client, name, *(f"{partition}.{number}".encode() for number in range(5)), partition=partition)
    assert values(call("records", name, "--partition", "1", "--max", "2", "--json")) == ["1.0", "1.1"]
    assert len(values(call("records", name, "--json"))) == 15
    absent = call("records", name, "--partition", "3")
    assert (absent.code, "partitions 0 to 2" in absent.err) == (1, True)


def test_each_format(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    big = b'{"n": 9007199254740993, "x": 0.1000000000000000055}'
    written(client, name, struct.pack(">q", -5), big, b"\xff\xfe", None)

    def of(kind: str) -> list[Any]:
        done = call("records", name, "--value-format", kind, "--json")
        return [(row["value"], row.get("value_error")) for row in map(json.loads, done.out.splitlines())]

    assert of("long")[0] == (-5, None)
    assert "8" in of("long")[1][1]
    assert of("json")[1] == ({"n": 9007199254740993, "x": 0.1}, None)
    assert of("json")[2][0] == "fffe"
    assert of("json")[2][1].startswith("is not JSON")
    assert of("string")[2] == ("fffe", "is not UTF-8: invalid start byte at byte 0")
    assert of("hex")[0] == ("fffffffffffffffb", None)
    assert [one[3] for one in map(of, ("string", "json", "long", "hex"))] == [(None, None)] * 4
    text = call("records", name, "--value-format", "json")
    assert "0.1000000000000000055" in text.out  # as it was written
    assert f"the value of {name}-0 offset 2 is not JSON" in text.err


def test_bytes_that_a_terminal_would_obey(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    hostile = "\x1b]0;owned\x07\x1b[2J\r\n\t\u202e\u2028\x9b31m\x00é"
    written(client, name, hostile.encode(), headers=((hostile, hostile.encode()), ("raw", b"\xff\x1b")))
    done = call("records", name)
    (line,) = done.out.splitlines()
    assert line.replace("\t", "").isprintable()
    assert line.count("\t") == 5
    assert r"\x1b]0;owned\x07\x1b[2J\r\n\t\u202e\u2028\x9b31m\x00é" in line
    shown = call("records", name, "--json")
    assert shown.out.isascii()
    assert json.loads(shown.out)["value"] == hostile


def test_a_filter_compares_and_does_nothing_else(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    written(
        client,
        name,
        *(json.dumps({"delay": delay, "carrier": "UA"}).encode() for delay in range(5)),
        b"no JSON",
    )
    found = call("records", name, "--value-format", "json", "--filter", "delay > 2 and carrier == 'UA'", "--json")
    assert [value["delay"] for value in values(found)] == [3, 4]
    assert "the filter could not be applied to 1 records" in found.err
    for code in (
        "__import__('os').system('id')",
        "(lambda: 1)()",
        "open('/etc/passwd')",
        "a" * 20_000,
        "(" * 300,
    ):
        done = call("records", name, "--filter", code)
        assert (done.code, done.out) == (1, "")
        assert done.err.count("\n") == 1


def test_aborted_and_open_transactions(call: Call, client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    name = new_topic()
    producer = client.transaction(unique)
    for value, commit in ((b"kept", True), (b"aborted", False)):
        producer.init()
        producer.add_partitions([(name, 0)])
        batch = encode_batch([Record(offset=0, timestamp=1, key=None, value=value)])
        producer.produce([TransactionalBatch(name, 0, batch, 1)])
        producer.end(commit=commit)
    producer.init()  # waits until the markers are there
    written(client, name, b"plain")
    producer.add_partitions([(name, 0)])
    producer.produce(
        [TransactionalBatch(name, 0, encode_batch([Record(offset=0, timestamp=1, key=None, value=b"open")]), 1)]
    )
    assert values(call("records", name, "--json")) == ["kept", "plain"]
    every = call("records", name, "--isolation-level", "read_uncommitted", "--json")
    assert values(every) == ["kept", "aborted", "plain", "open"]
    producer.abort()


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_compressed_records(call: Call, client: Client, new_topic: NewTopicFixture, codec: int) -> None:
    name = new_topic()
    records = [Record(offset=at, timestamp=1, key=None, value=b"x" * 100) for at in range(3)]
    client.produce({(name, 0): encode_batch(records, compression=codec)})
    assert values(call("records", name, "--from", "1", "--json")) == ["x" * 100] * 2


def test_more_than_one_fetch(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic()
    for number in range(6):
        written(client, name, str(number).encode() * 600_000)
    assert [value[0] for value in values(call("records", name, "--json"))] == list("012345")


def test_a_group_goes_on_behind_records_that_are_deleted(
    call: Call, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    """It could not be continued, until its offsets were reset."""
    name = new_topic()
    written(client, name, b"0", b"1", b"2", b"3", b"4")
    client.offset_commit(unique, {(name, 0): (1, "")})
    client.admin.delete_records({(name, 0): 3})
    done = call("consume", name, "--group", unique, "--timeout-ms", "10", "--json")
    assert values(done) == ["3", "4"]
    committed = client.offset_fetch(unique)[name, 0]
    assert committed is not None
    assert committed.offset == 5


# -- written -----------------------------------------------------------------------------------------------------


def test_what_is_written_is_read(call: Call, new_topic: NewTopicFixture) -> None:
    name = new_topic(4)
    done = call("produce", name, "--key-separator", ":", "--header", "a=1", stdin="ada:one\nbob:two:too\n\r\n")
    assert (done.code, "line 3 has no ':'" in done.err) == (2, True)
    done = call("produce", name, "--key-separator", ":", "--header", "a=1", stdin="ada:one\nbob:two:too\n")
    assert done.code == 0
    rows = [json.loads(line) for line in call("records", name, "--json").out.splitlines()]
    found = {row["key"]: (row["partition"], row["value"], row["headers"]) for row in rows}
    assert found["ada"] == (partition_for_key(b"ada", 4), "one", [["a", "1"]])
    assert found["bob"] == (partition_for_key(b"bob", 4), "two:too", [["a", "1"]])


def test_records_without_a_key_are_spread(call: Call, new_topic: NewTopicFixture) -> None:
    name = new_topic(3)
    assert call("produce", name, stdin="".join(f"{number}\n" for number in range(9))).code == 0
    rows = [json.loads(line) for line in call("records", name, "--json").out.splitlines()]
    assert sorted(row["partition"] for row in rows) == [0] * 3 + [1] * 3 + [2] * 3


def test_json_lines_go_from_one_topic_to_another(call: Call, client: Client, new_topic: NewTopicFixture) -> None:
    source, target = new_topic(), new_topic()
    written(client, source, b'{"a": 1}', None, headers=(("h", b"1"), ("n", None)))
    lines = call("records", source, "--value-format", "json", "--json").out
    assert call("produce", target, "--value-format", "json", "--json", stdin=lines).code == 0
    copied = call("records", target, "--value-format", "json", "--json").out
    assert copied == lines.replace(source, target)


@pytest.mark.parametrize(
    ("arguments", "stdin"),
    [
        (("--value-format", "long"), "one\n"),
        (("--value-format", "hex"), "xyz\n"),
        (("--value-format", "json"), "{\n"),
        (("--value-format", "avro"), "{}\n"),
        (("--json",), "[1]\n"),
        (("--partition", "7"), "a\n"),
    ],
)
def test_what_cannot_be_written(call: Call, new_topic: NewTopicFixture, arguments: tuple[str, ...], stdin: str) -> None:
    name = new_topic()
    done = call("produce", name, *arguments, stdin=stdin)
    assert done.code in (1, 2)
    assert done.err.count("\n") == 1
    assert call("records", name).out == ""


# -- followed ----------------------------------------------------------------------------------------------------


def test_a_group_goes_on_where_it_was(call: Call, client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    name = new_topic()
    written(client, name, b"0", b"1", b"2", b"3")

    def consumed(*more: str) -> list[str]:
        arguments = ("consume", name, "--group", unique, "--from-beginning", "--timeout-ms", "50", "--json")
        return values(call(*arguments, *more))

    assert consumed("--max-messages", "2") == ["0", "1"]
    assert consumed() == ["2", "3"]
    assert consumed() == []
    written(client, name, b"4")
    assert consumed() == ["4"]
    assert client.offset_fetch(unique)[name, 0].offset == 5  # type: ignore[union-attr]
    assert "partitions 0 to 0, not 7" in call("consume", name, "--partition", "7").err


@pytest.mark.parametrize("command", [("records", "--follow"), ("consume", "--from-beginning")])
def test_what_is_followed_comes_through_a_pipe_at_once(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture, command: tuple[str, ...]
) -> None:
    r"""The last records of \`records --follow\` stayed in its buffer, and their reader waited for them."""
    name = new_topic()
    written(client, name, b"a")
    words = [sys.executable, "-m", "suiro", "topic", *command, name]
    words += ["--bootstrap-servers", log_under_test.bootstrap_servers]
    buffered = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=buffered) as process:
        assert process.stdout is not None
        seen, _, _ = select.select([process.stdout], [], [], 60)
        line = process.stdout.readline() if seen else b""
        process.kill()
    assert line.endswith(b"\ta\n")


# -- damage ------------------------------------------------------------------------------------------------------


def test_damage_is_an_error_that_names_its_place() -> None:
    from suiro.client import Fetched
    from suiro.console.records import records_of
    from suiro.errors import CorruptRecordError

    batch = bytearray(encode_batch([Record(offset=0, timestamp=1, key=None, value=b"whole")]))
    batch[HEADER_SIZE + 5] ^= 0xFF
    fetched = Fetched(
        data=memoryview(bytes(batch)), aborted=(), high_watermark=1, last_stable_offset=1, log_start_offset=0
    )
    with pytest.raises(CorruptRecordError, match="t-3"):
        list(records_of("t", 3, 0, fetched, True))


@pytest.mark.parametrize(
    ("last", "why"),
    [
        ("no json\n", "line 3 is not a record in JSON"),
        (json.dumps({"value": "3", "partition": 9}) + "\n", "not 9"),
        (b"\xff\n", "is not UTF-8"),
    ],
)
def test_what_is_before_a_line_that_is_none_is_written_and_told(
    call: Call, client: Client, new_topic: NewTopicFixture, last: str | bytes, why: str
) -> None:
    topic = new_topic()
    lines = b"".join(json.dumps({"value": value}).encode() + b"\n" for value in ("1" * 10_000, "2"))
    done = call("produce", topic, "--json", stdin=lines + (last if isinstance(last, bytes) else last.encode()))
    assert done.code != 0
    assert why in done.err
    there = len(values(call("records", topic, "--json")))
    if isinstance(last, str):  # else Python has decoded some of the lines before it in the same go
        assert there == 2
    if there:
        assert f"wrote {there} records to {topic}, and then stopped" in done.err


@pytest.mark.parametrize("is_header", [False, True])
def test_records_that_fit_one_by_one_are_written(call: Call, new_topic: NewTopicFixture, is_header: bool) -> None:
    """max.message.bytes is a mebibyte, of a batch."""
    topic = new_topic()
    if is_header:
        header = ("trace", "x" * 4_000)
        records = [{"value": str(at), "headers": [header]} for at in range(400)]
    else:
        records = [{"value": "a" * 500_000}, {"value": "b" * 900_000}, {"value": "c"}]
    done = call("produce", topic, "--json", stdin="".join(json.dumps(one) + "\n" for one in records))
    assert done.code == 0, done.err
    assert values(call("records", topic, "--json")) == [one["value"] for one in records]
