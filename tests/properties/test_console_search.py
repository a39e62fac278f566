"""A search that looks at many records at once, against one that looks at each of them."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from suiro.client import EARLIEST, Fetched, ListedOffset, PartitionInfo, TopicInfo
from suiro.clock import ManualClock
from suiro.console import records as console_records
from suiro.console.formats import column_reader, decoder, value_reader
from suiro.console.web import Masks
from suiro.console.web.api import records as api
from suiro.console.web.endpoint import Call
from suiro.console.web.record_json import RecordView
from suiro.foundation.http import Role
from suiro.protocol import records as records_of_batches
from suiro.protocol.compression import compress
from suiro.protocol.crc32c import crc32c
from suiro.protocol.record_batch import HEADER_SIZE, pack_header, read_header
from suiro.protocol.records import Record, encode_batch
from suiro.registry import CodecSettings, Schema, codec_of

REGISTRY = "mock://of-the-search"
SCHEMA = Schema(
    json.dumps(
        {
            "type": "record",
            "name": "R",
            "fields": [
                {"name": "a", "type": ["null", "int", "double", "string", "bytes"]},
                {"name": "b", "type": {"type": "map", "values": ["boolean", "string"]}},
            ],
        }
    )
)


def _object(pairs: Sequence[tuple[str, str]]) -> str:
    return "{" + ", ".join(f'"{name}": {value}' for name, value in pairs) + "}"


def _encoded(a: Any, b: Any) -> bytes:
    return codec_of("AVRO", CodecSettings(registry=REGISTRY, schema=SCHEMA)).encode("t", {"a": a, "b": b})


def _damaged(drawn: tuple[bytes, int, bytes, int]) -> bytes:
    data, place, put, gone = drawn
    at = place % (len(data) + 1)
    return data[:at] + put + data[at + gone :]


_scalars = (
    st.sampled_from(
        [
            "1",
            "7",
            "-0.0",
            "7.0",
            "7e0",
            "70E-1",
            "1e999",
            "01",
            "1.",
            "NaN",
            "-Infinity",
            "12345678901234567890",
        ]
    )
    | st.integers().map(str)
    | st.sampled_from(
        ["null", "true", "false", '"x"', '"\\u0078"', '"x\\ny"', '"x\ny"', '"\\ud83d\\ude00"', '"\\ud800"']
    )
    | st.text(max_size=3).map(json.dumps)
)
_values = st.recursive(
    _scalars,
    lambda inner: (
        st.lists(inner, max_size=2).map(lambda items: f"[{', '.join(items)}]")
        | st.lists(st.tuples(st.sampled_from(["a", "b", "\\u0061", "é"]), inner), max_size=3).map(_object)
    ),
    max_leaves=4,
)
_names = st.sampled_from(["a", "b", "\\u0061", "A", "a.b", "né", "\\ud800", ""])


_objects = st.lists(st.tuples(_names, _values), max_size=4).map(
    lambda pairs: _object(pairs).encode(errors="surrogatepass")
)
_longer = st.sampled_from(
    [b'{"a": 7, "c": "' + b"x" * 5_000 + b'"}', b'{"a": 7, "c": ' + b"1" * 4_400 + b"}", b"x" * 9_000]
)
_broken = st.tuples(
    _objects,
    st.integers(0, 1_000),
    st.sampled_from([b"", b"{", b"}", b"\n", b'"', b",", b"\xff", b"{}", b"}\n{"]),
    st.integers(0, 2),
).map(_damaged)
_others = st.none() | st.sampled_from([b"", b"x", b"x\n", b"{", b"}", b"[7]", b"\0\0\0\0\0\0\0\7", b"{}\n{}", b"\xc3"])
_avro = st.builds(
    lambda a, b, cut: _encoded(a, b)[: -cut or None],
    st.none() | st.sampled_from([7, 1.5, float("nan"), "x", "é", b"x"]),
    st.dictionaries(st.sampled_from(["x", "y"]), st.booleans() | st.just("x"), max_size=2),
    st.sampled_from([0, 0, 0, 1]),
)
_contents = st.one_of(_objects, _objects, _broken, _others, _longer, _avro)
_topics = st.lists(st.tuples(_others | _objects | st.sampled_from([b"x", b"xy"]), _contents), min_size=2, max_size=12)

_operands = st.sampled_from(["a", "b", "c", "né", "a.b", "a.a", "record_key()"])
_tests = (
    st.builds(
        "{} {} {}".format,
        _operands,
        st.sampled_from(["==", "!=", "<", ">="]),
        st.sampled_from(["7", "7.0", "'x'", "True", "record_key()", "'7b'"]),
    )
    | st.builds(
        "{}.{}".format,
        _operands,
        st.sampled_from(["contains('x')", "is_null()", "is_not_null()", "is_in(['x', 'y'])", "cast('string') == '7'"]),
    )
    | st.sampled_from(["1 == 1", "record_timestamp() > 3", "1 == 2"])
)
_filters = st.recursive(
    _tests,
    lambda inner: (
        st.builds("({} and {})".format, inner, inner)
        | st.builds("({} or {})".format, inner, inner)
        | st.builds("not ({})".format, inner)
    ),
    max_leaves=3,
)


class Log:
    """A partition with these batches."""

    def __init__(self, batches: Sequence[bytes], end: int) -> None:
        self._data = b"".join(batches)
        self._end = end

    def metadata(self, topics: Any = None) -> dict[str, TopicInfo]:
        partitions = (PartitionInfo(partition=0, leader=1, leader_epoch=0),)
        return {"t": TopicInfo(name="t", topic_id=None, internal=False, partitions=partitions)}

    def list_offsets(self, wanted: Mapping[Any, int], **more: Any) -> dict[Any, ListedOffset]:
        return {
            place: ListedOffset(offset=0 if which == EARLIEST else self._end, timestamp=-1, leader_epoch=-1)
            for place, which in wanted.items()
        }

    def fetch(self, offsets: Mapping[Any, int], **more: Any) -> dict[Any, Fetched]:
        return {
            place: Fetched(
                data=memoryview(self._data),
                aborted=(),
                high_watermark=self._end,
                last_stable_offset=self._end,
                log_start_offset=0,
            )
            for place in offsets
        }


def _found(log: Log, **query: str) -> tuple[list[Any], bytes]:
    """Of a search, and of a file."""

    @contextmanager
    def client() -> Iterator[Any]:
        yield log

    console: Any = SimpleNamespace(
        client=client, clock=ManualClock(), settings=SimpleNamespace(registry=REGISTRY, masks=Masks())
    )
    call = Call(
        console=console,
        path={"topic": "t"},
        query=query,
        body=None,
        user=None,
        role=Role.ADMIN,
        gone=threading.Event(),
    )
    told = list(api._scan(call).parts)  # type: ignore[arg-type]
    try:
        file = b"".join(api._export(call).parts)
    except Exception as error:
        file = repr(error).encode()
    return told, file


def _both(log: Log, together: int, **query: str) -> list[tuple[list[Any], bytes]]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(records_of_batches, "CHOSEN_FROM", together)
        patch.setattr(console_records, "CHOSEN_FROM_LEAST", 1)
        quick = _found(log, **query)
        patch.setattr(RecordView, "choose", lambda self, wanted: None)
        return [quick, _found(log, **query)]


def _batches(drawn: Sequence[Sequence[tuple[bytes | None, bytes | None]]], codec: int, step: int) -> list[bytes]:
    batches, base = [], 0
    for contents in drawn:
        records = [
            Record(
                offset=base + at * step,
                timestamp=at * 7 << 5 * at,
                key=key,
                value=value,
                headers=(("h", b"v"), ("n", None)) if at % 3 == 2 else (),
            )
            for at, (key, value) in enumerate(contents)
        ]
        batches.append(encode_batch(records, base_offset=base, compression=codec))
        base += len(contents) * step
    return batches


_queries = st.fixed_dictionaries(
    {
        "filter": _filters,
        "key": st.sampled_from(["auto", "string", "json", "hex"]),
        "value": st.sampled_from(["auto", "auto", "json", "avro", "string"]),
        "limit": st.sampled_from(["1", "3", "100"]),
        "from": st.sampled_from(["0", "0", "2"]),
    }
)


def _wanted(value: Any, fields: Sequence[str]) -> str:
    """The fields that a filter names."""
    return repr({name: value[name] for name in fields if name in value} if type(value) is dict else value)


@given(
    st.lists(_contents, max_size=4) | st.lists(_objects, max_size=4),
    st.sampled_from(["auto", "json", "avro", "string"]),
)
@example([b'{"a": 7, "c": "\xff"}'], "auto")
@example([b'{"a": 7, "c": ' + b"1" * 4_400 + b"}"], "auto")
@example([b'{"a":', b"7}", b"{}{}"], "json")
@example([b'{"a": "', b'"}', b"{}{}"], "json")
@example([b'{"a": 7}{}', b"{}"], "json")
@example(['{"né": 7, "c": 1}'.encode()], "auto")
@example([b"x", b"x\1y"], "auto")
@example([b"x", b"[7]"], "auto")
@example([b"x\ny", b"x"], "string")
@example([_encoded(b"x", {"x": True}), _encoded(float("nan"), {})], "auto")
def test_values_are_read_together_as_one_by_one(data: list[bytes | None], name: str) -> None:
    one = value_reader(name, REGISTRY, is_patient=False)
    shown = decoder(name, REGISTRY, is_patient=False)
    for fields in (("a", "b"), ("a", "né")):
        found = [_wanted(value, fields) for value in column_reader(name, REGISTRY, fields=fields)(data)]
        assert found == [_wanted(one(item), fields) for item in data]
        assert found == [_wanted(shown(item).value, fields) for item in data]
    texts = column_reader(name, REGISTRY)(data)
    assert list(map(repr, texts)) == [repr(one(item)) for item in data]


@given(
    st.lists(_topics, min_size=1, max_size=3),
    _queries,
    st.sampled_from([0, 3, 4]),
    st.sampled_from([1, 100]),
    st.integers(0, 3),
    st.sampled_from([1, 4, 100]),
)
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_a_search_finds_what_it_finds_one_by_one(
    drawn: list[list[tuple[bytes | None, bytes | None]]],
    query: dict[str, str],
    codec: int,
    step: int,
    before_end: int,
    together: int,
) -> None:
    batches = _batches(drawn, codec, step)
    end = max(read_header(batches[-1]).next_offset - before_end, 2)
    quick, slow = _both(Log(batches, end), together, **query)
    assert quick == slow


@given(_topics, _queries, st.integers(0, 1 << 20), st.integers(0, 255), st.sampled_from([1, 4, 100]))
@settings(suppress_health_check=[HealthCheck.too_slow])
def test_damage_is_reported_as_one_by_one(
    drawn: list[tuple[bytes | None, bytes | None]],
    query: dict[str, str],
    place: int,
    byte: int,
    together: int,
) -> None:
    """Its checksum is right: the producer has written nonsense."""
    (batch,) = _batches([drawn], 0, 1)
    header = read_header(batch)
    payload = bytearray(batch[HEADER_SIZE:])
    payload[place % len(payload)] = byte
    damaged = pack_header(header, crc_tail=crc32c(payload)) + compress(0, payload)
    quick, slow = _both(Log([damaged], header.next_offset), together, **query)
    # Records that are not found may lie about their offsets, and are counted.
    assert _without_counts(quick) == _without_counts(slow)


def _without_counts(found: tuple[list[Any], bytes]) -> tuple[list[bytes], bytes]:
    return [re.sub(rb'"scanned":\d+', b"", part) for part in found[0]], found[1]
