"""Parts of the capture that need no server: what snapshots see, values on disk, transactions that are streamed."""

from __future__ import annotations

import random
import sqlite3
import struct
from collections.abc import Callable
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from suiro.connect.postgres import session
from suiro.connect.postgres.capture import PostgresCapture
from suiro.connect.postgres.encoding import engine
from suiro.connect.postgres.encoding.copy_binary import SIGNATURE
from suiro.connect.postgres.encoding.pgoutput import CorruptMessageError
from suiro.connect.postgres.encoding.records import live_headers, snapshot_headers
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.resources import Resources
from suiro.connect.postgres.server.database import lsn_text, parse_lsn
from suiro.connect.postgres.server.slot import SlotState, release_slot
from suiro.connect.postgres.server.slot_peek import _block
from suiro.connect.postgres.session import Session, Stopped
from suiro.connect.postgres.snapshot.reselect import ReselectKeys
from suiro.connect.postgres.snapshot.snapshots import Snapshots
from suiro.connect.postgres.snapshot.topic_state import KeyedValues, ValuesFile
from suiro.connect.postgres.snapshot.visibility import KEPT, RecentTransactions, Visibility
from suiro.connect.postgres.snapshot.windows import Windows
from suiro.errors import ConfigError, TransientError, UsageError

XIDS = np.array([5, 10, 11, 19, 20, 21], np.int64)
LATE = np.full(6, 1_000, np.int64)


def test_a_snapshot_sees_what_ended_before_it() -> None:
    for text, seen in (
        ("10:20:10,14", [True, False, True, True, False, False]),
        ("20:20:", [True, True, True, True, False, False]),
    ):
        snapshot = Visibility.parse(text)
        assert snapshot.sees(XIDS, LATE).tolist() == seen
        assert snapshot.misses(XIDS, LATE).tolist() == [not one for one in seen]


def test_transaction_numbers_go_round() -> None:
    around = Visibility.parse(f"{(7 << 32) - 5}:{(7 << 32) + 3}:{(7 << 32) - 2}")
    before_and_after = np.array([(1 << 32) - 10, (1 << 32) - 2, (1 << 32) - 1, 0, 2, 3, 100], np.int64)
    late = np.full(7, 1_000, np.int64)
    assert around.sees(before_and_after, late).tolist() == [True, False, True, True, True, False, False]
    standby = Visibility.parse(f"{(7 << 32) - 5}:{(7 << 32) + 3}:", replayed=500)
    assert standby.sees(before_and_after, late).tolist() == [True, *[False] * 6]
    assert standby.misses(before_and_after, late).tolist() == [*[False] * 5, True, True]


def test_a_snapshot_of_a_standby_is_certain_of_what_ended_and_of_what_was_replayed() -> None:
    """It lists no open transactions."""
    snapshot = Visibility.parse("10:20:", replayed=500)
    lsns = np.array([900, 900, 499, 500, 900, 900], np.int64)
    assert snapshot.sees(XIDS, lsns).tolist() == [True, False, True, False, False, False]
    assert snapshot.misses(XIDS, lsns).tolist() == [False, False, False, False, True, True]


def test_a_snapshot_behind_the_stream_is_known() -> None:
    recent = RecentTransactions()
    recent.wait_for_all_before(0)
    recent.add(np.array([11, 14], np.int64))
    behind = Visibility.parse("14:15:14")
    assert not recent.all_seen_by(behind)
    assert recent.blocking_transaction(behind) == 14
    assert recent.all_seen_by(Visibility.parse("15:15:"))


def test_what_earlier_sessions_handed_on_is_waited_for() -> None:
    recent = RecentTransactions()
    assert recent.is_incomplete
    recent.wait_for_all_before(14)
    behind = Visibility.parse("13:20:13")
    assert not recent.all_seen_by(behind)
    assert recent.blocking_transaction(behind) == 13
    assert recent.all_seen_by(Visibility.parse("14:20:14"))
    assert not recent.is_incomplete
    assert recent.all_seen_by(behind)


def test_too_many_to_remember_are_waited_for_and_the_wait_has_an_end() -> None:
    """More than are kept come between any two looks, and there is always an older transaction that is open."""
    recent = RecentTransactions()
    recent.wait_for_all_before(1_000)
    for number in range(1, 6):
        recent.add(np.arange(KEPT + 1, dtype=np.int64) + number * 1_000_000)
        assert recent.is_incomplete, "what is forgotten is waited for, like what was never known"
        recent.wait_for_all_before(number * 10_000_000)
        assert not recent.all_seen_by(Visibility.parse("999:999999999:999"))
    behind = Visibility.parse("1000:999999999:1000")
    assert not recent.all_seen_by(behind)
    recent.add(np.arange(KEPT + 1, dtype=np.int64) + 6_000_000)
    recent.wait_for_all_before(60_000_000)
    for begin, is_over in ((49_999_999, False), (50_000_000, False), (60_000_000, True)):
        assert recent.all_seen_by(Visibility.parse(f"{begin}:999999999:{begin}")) == is_over


def test_what_a_snapshot_saw_takes_no_room() -> None:
    recent = RecentTransactions()
    recent.wait_for_all_before(10)
    for first in range(1_000, 5 * KEPT, 1_000):
        recent.add(np.arange(first, first + 1_000, dtype=np.int64))
        assert not recent.all_seen_by(Visibility.parse(f"9:{first + 1_000}:9,1007"))
    assert not recent.is_incomplete
    behind = Visibility.parse("1007:900000:1007")
    assert not recent.all_seen_by(behind)
    assert recent.blocking_transaction(behind) == 1_007
    assert recent.all_seen_by(Visibility.parse("1008:900000:"))


def test_the_table_that_owes_most_is_named() -> None:
    reselect = ReselectKeys({}, limit=5)
    for number in range(5):
        reselect.add("public.large", bytes([number]), [str(number)])
    reselect.add("public.small", b"k", ["k"])
    assert reselect.is_over_limit
    assert reselect.largest == "public.large"


def test_what_is_owed_outlives_a_kill() -> None:
    kafka: dict[str, Any] = {}

    def committed(reselect: ReselectKeys) -> ReselectKeys:
        for part, value in reselect.drain_changed().items():
            if value is None:
                del kafka[part]  # never one that is not there
            else:
                kafka[part] = value
        assert not reselect.has_changed
        return ReselectKeys(kafka, limit=3)

    reselect = ReselectKeys({"table/a.b": {"oid": 1}}, limit=3)
    reselect.add("a.b", b"\0one", ["1", "x/y"])
    reselect.add("a.b", b"two", ["2", ""])
    reselect.add("c.d", b"one", ["1"])
    reselect.remove("a.b", [b"two", b"never added"])
    reselect = committed(reselect)
    assert {table: dict(reselect.of(table)) for table in reselect.tables} == {
        "a.b": {b"\0one": ["1", "x/y"]},
        "c.d": {b"one": ["1"]},
    }
    reselect.remove("a.b", [b"\0one"])
    reselect.add("a.b", b"\0one", ["1", "x/y"])
    assert not reselect.has_changed, "as the position has it"
    for key in (b"3", b"4"):
        assert not reselect.is_over_limit
        reselect.add("c.d", key, [key.decode()])
    assert reselect.is_over_limit
    reselect.forget("a.b")
    reselect = committed(reselect)
    assert (reselect.tables, len(reselect)) == (["c.d"], 3)
    reselect.forget("c.d")
    assert len(committed(reselect)) == 0
    assert kafka == {}


@pytest.mark.parametrize("limit", [1 << 20, 2_000])
def test_values_on_disk_are_values_in_memory(tmp_path: Path, limit: int) -> None:
    draw = random.Random(3)
    file = ValuesFile(tmp_path / "values", memory_bytes=limit)
    values, others = KeyedValues(file), KeyedValues(file)
    others.update({b"1": b"of another table"})
    plain: dict[bytes, bytes] = {}
    for _ in range(3_000):
        key = b"%d" % draw.randrange(60)
        kind = draw.random()
        if kind < 0.6:
            plain[key] = draw.randbytes(draw.randrange(1, 60))
            values.update({key: plain[key], b"gone": None})
        elif kind < 0.9:
            plain.pop(key, None)
            values.update({key: None})
        elif kind < 0.902:
            plain.clear()
            values.clear()
        assert values.get(key) == plain.get(key)
    assert [key for portion in values.portions() for key in portion] == sorted(plain)
    assert {key: values.get(key) for key in plain} == plain
    values.close()
    assert list(others.portions()) == [[b"1"]]
    file.close()
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("memory_bytes", "is_on_disk"), [(100_000, True), (10_000_000, False)])
def test_values_are_on_disk_once_they_exceed_the_memory(tmp_path: Path, memory_bytes: int, is_on_disk: bool) -> None:
    file = ValuesFile(tmp_path / "values", memory_bytes=memory_bytes)
    values = KeyedValues(file)
    keys = [b"%d" % number for number in range(5_000)]
    values.update(dict.fromkeys(keys, b"x" * 50))
    assert ((tmp_path / "values").stat().st_size > 100_000) == is_on_disk
    values.update(dict.fromkeys(keys))
    assert list(values.portions()) == []
    file.close()


def test_large_values_take_little_more_room_than_their_bytes(tmp_path: Path) -> None:
    """In the tree of the keys, each took pages of its own."""
    file = ValuesFile(tmp_path / "values", memory_bytes=1 << 20)
    values = KeyedValues(file)
    for _ in range(2):
        values.update({b"%d" % number: b"x" * 1_010 for number in range(5_000)})
    assert (tmp_path / "values").stat().st_size < 2 * 1_010 * 5_000
    file.close()


def test_values_that_find_no_room_are_read_again_later(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    file = ValuesFile(tmp_path / "file" / "values", memory_bytes=1 << 20)
    with pytest.raises(TransientError, match="the last values of keys cannot be kept"):
        KeyedValues(file)
    file.close()


def test_values_that_cannot_be_read_back_are_read_again_later(tmp_path: Path) -> None:
    """The error of SQLite ended the capture."""

    def fail(*statement: Any) -> None:
        raise sqlite3.OperationalError("disk I/O error")

    file = ValuesFile(tmp_path / "values", memory_bytes=1 << 20)
    values = KeyedValues(file)
    connection: Any = file._connection
    file._connection = SimpleNamespace(execute=fail, executemany=fail)  # type: ignore[assignment]
    works: tuple[Callable[[], Any], ...] = (
        lambda: values.get(b"key"),
        lambda: list(values.portions()),
        lambda: values.update({b"key": b"value"}),
        values.clear,
    )
    for work in works:
        with pytest.raises(TransientError, match="disk I/O error"):
            work()
    file._connection = connection
    file.close()


def test_a_capture_that_has_ended_holds_no_descriptors(tmp_path: Path) -> None:
    options = CaptureOptions(dsn="", bootstrap_servers="", registry="", topic_prefix="t", state_directory=tmp_path)
    capture = PostgresCapture(options)
    capture.stop()
    capture.run()
    capture.stop()
    assert (capture._wakeup.fileno(), capture._wakeup_sender.fileno()) == (-1, -1)


def test_a_stop_ends_the_wait_for_a_slot() -> None:
    """It lasted a minute when the reader of the slot was not to be ended, such as one of another role."""
    line = {"active_pid": 7, "plugin": "pgoutput", "database": "d", "wal_status": "reserved"}
    line |= {"confirmed_flush_lsn": "0/1", "restart_lsn": "0/1"}
    database: Any = SimpleNamespace(row=lambda *sql, what: (line, None), rows=lambda *sql, what: [])
    looks = iter([None, None, Stopped()])

    def check() -> None:
        if (stop := next(looks)) is not None:
            raise stop

    with pytest.raises(Stopped):
        release_slot(database, "slot", check=check)


@pytest.mark.parametrize(
    ("position", "wal_end", "sent", "restart", "is_far"),
    [
        (100, 100, 0, 100, True),
        (995, 100, 0, 100, False),
        (100, 995, 0, 100, False),
        # Other databases, or a transaction that is open, fill the log. Postgres has decoded it and sent nothing.
        (100, 100, 995, 100, False),
        (100, 100, 400, 350, True),
        # Since long before, a transaction is open, and SQL would begin there.
        (400, 400, 400, 100, True),
        (600, 600, 600, 100, False),
    ],
)
def test_a_backlog_is_read_by_sql_unless_more_would_be_decoded_again(
    monkeypatch: pytest.MonkeyPatch, position: int, wal_end: int, sent: int, restart: int, is_far: bool
) -> None:
    slot = SlotState(plugin="", database="", active_pid=1, confirmed_lsn=0, restart_lsn=restart, sent_lsn=sent, loss="")
    monkeypatch.setattr(session, "read_slot", lambda database, name: slot)
    running: Any = SimpleNamespace(
        _clock=SimpleNamespace(monotonic_ms=lambda: 10_000),
        _is_standby=False,
        _changes=SimpleNamespace(open=False, position=position),
        _lag_checked_ms=0,
        _log_end=1_000,
        _database=SimpleNamespace(wal_position=lambda: 2_000),
        _options=SimpleNamespace(catch_up_bytes=10, slot="s"),
    )
    stream: Any = SimpleNamespace(wal_end=wal_end)
    assert Session._is_far_behind(running, stream) == is_far


def test_headers_are_text_in_the_order_of_the_log() -> None:
    lsns = np.array([(5 << 32) + 0xABCDEF, 1], np.int64)
    one = np.array([0, 1], np.int64)
    made = live_headers(lsns, one, one, np.array([7, 4294967295], np.int64), np.array([0, 1_500_000], np.int64))
    found = [{header["key"]: header["value"] for header in row} for row in made.to_pylist()]
    assert found == [
        {
            "lsn": b"00000005/00ABCDEF",
            "xid": b"7",
            "commit_time": b"1970-01-01T00:00:00.000000Z",
            "op": b"insert",
            "origin": b"live",
        },
        {
            "lsn": b"00000000/00000001",
            "xid": b"4294967295",
            "commit_time": b"1970-01-01T00:00:01.500000Z",
            "op": b"update",
            "origin": b"live",
        },
    ]
    rows = snapshot_headers(2, lsn=1, read_us=0).to_pylist()
    assert rows[0] == rows[1]
    assert [header["value"] for header in rows[0]][3:] == [b"read", b"snapshot"]


EPOCH = datetime(1970, 1, 1)
YEAR_1_US, YEAR_10000_US = -62_135_596_800_000_000, 253_402_300_800_000_000


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("transactions", [1, 7, 2_000])
def test_headers_of_any_transactions(transactions: int, compiled: bool) -> None:
    rows = 2_000
    draw = np.random.default_rng(transactions)
    edges_us = [YEAR_1_US, YEAR_10000_US - 1, -1, 0, 951_782_400_000_000, 4_107_542_399_999_999]
    us = np.concatenate((edges_us, draw.integers(YEAR_1_US, YEAR_10000_US, transactions)))
    xids = np.concatenate(([0, 9, 10, 99, 999_999_999, 0xFFFFFFFF], draw.integers(0, 1 << 32, transactions)))
    columns = (
        draw.integers(0, 1 << 62, rows),
        np.sort(draw.integers(0, len(xids), rows)),
        draw.integers(0, 4, rows),
        xids,
    )
    with engine.choose(compiled=compiled):
        found = live_headers(*columns, us)
        late = live_headers(*columns, us + YEAR_10000_US).to_pylist()  # neither Python nor a kernel knows the year
    found.validate(full=True)
    lsns, of, operations, _ = (column.tolist() for column in columns)
    assert [[header["value"] for header in row] for row in found.to_pylist()] == [
        [
            b"%08X/%08X" % (lsn >> 32, lsn & 0xFFFFFFFF),
            b"%d" % xids[transaction],
            (EPOCH + timedelta(microseconds=int(us[transaction]))).isoformat(timespec="microseconds").encode() + b"Z",
            (b"insert", b"update", b"delete", b"truncate")[operation],
            b"live",
        ]
        for lsn, transaction, operation in zip(lsns, of, operations, strict=True)
    ]
    assert late[0][2]["value"].endswith(b"Z")


def test_no_records_have_no_headers() -> None:
    none = np.zeros(0, np.int64)
    assert len(live_headers(none, none, none, np.array([7]), np.array([1]))) == 0
    assert len(snapshot_headers(0, lsn=1, read_us=0)) == 0


def test_peeked_rows_are_cut_behind_the_last_commit() -> None:
    messages = [b"B1", b"I" * 40, b"C2", b"B", b"I3"]
    rows = b"".join(struct.pack(">hiqi", 2, 8, 100 + at, len(one)) + one for at, one in enumerate(messages))
    for compiled in (False, True):
        with engine.choose(compiled=compiled):
            for start in (SIGNATURE + bytes(8), b""):
                for end in (len(rows), len(rows) - 1):
                    block, rest = _block(start + rows[:end])
                    places = zip(block.starts.tolist(), block.ends.tolist(), strict=True)
                    found = [bytes(block.buffer[first:last]) for first, last in places]
                    assert (found, block.lsns.tolist()) == (messages[:3], [100, 101, 102])
                    assert rest == rows[18 * 3 + 44 : end]
            part, rest = _block(rows[:58] + b"\xff\xff")  # no commit: all of it
            assert part is not None
            assert (len(part), rest) == (1, rows[20:58] + b"\xff\xff")
            with pytest.raises(CorruptMessageError, match="not one row"):
                _block(rows + b"\0\3" + bytes(40))


def test_places_in_the_log_are_read_as_they_are_written() -> None:
    for lsn in (0, 1, (22 << 32) + 0xB374D848):
        assert parse_lsn(lsn_text(lsn)) == lsn


def test_options_are_checked_and_have_names() -> None:
    def made(**given: object) -> CaptureOptions:
        needed = {"dsn": "", "bootstrap_servers": "", "registry": "", "topic_prefix": "Shop-1"}
        return CaptureOptions(**(needed | given))  # type: ignore[arg-type]

    options = made(tables=("t", "other.t", "t"))
    assert options.slot == options.publication == "suiro_shop_1"
    assert options.tables == ("public.t", "other.t")
    assert options.topic("public", "bad name") == "Shop-1.public.bad_name"
    for given, word in (
        ({"slot": "Bad"}, "lower case"),
        ({"topic_prefix": "a b"}, "prefix"),
        ({"snapshot": "x"}, "new"),
        ({"heartbeat_s": 0.0}, "heartbeat_s is more than 0"),
        ({"heartbeat_s": float("nan")}, "heartbeat_s is more than 0"),
        ({"heartbeat_s": float("inf")}, "heartbeat_s is more than 0"),
    ):
        with pytest.raises(ConfigError, match=word):
            made(**given)


def test_rows_that_are_owed_and_ranges_are_read_in_turn() -> None:
    """A row whose key moves before each reading stays owed; the ranges go on."""
    options = CaptureOptions(dsn="", bootstrap_servers="", registry="", topic_prefix="x")
    nothing: Any = None
    waits = {"oid": 3, "running": True, "begins_at": 100}
    parts = {
        "table/s.read": {"oid": 1, "running": True},
        "table/s.owed": {"oid": 2, "running": False},
        "table/s.waits": waits,
        "owed/s.owed/00": ["1"],
    }
    resources = Resources(
        options=options,
        database=nothing,
        is_standby=True,
        tables=nothing,
        delivery=nothing,
        client=nothing,
        registry=nothing,
        values=nothing,
        status=nothing,
        stopped=nothing,
        wakeup=nothing,
        on_event=nothing,
    )
    snapshots = Snapshots(resources, parts=parts, on_begin=lambda topic: None)
    windows = Windows(resources, snapshots)
    assert {windows._next(99), windows._next(99)} == {"s.read", "s.owed"}
    snapshots.states["s.read"].ranges_read = True
    assert {windows._next(99), windows._next(99)} == {"s.owed"}
    assert {windows._next(100), windows._next(100)} == {"s.owed", "s.waits"}, "the stream is there"
    waits["noted_later"] = 1
    with pytest.raises(UsageError, match=r"does not know \(noted_later\): use the release"):
        Snapshots(resources, parts=parts, on_begin=lambda topic: None)
