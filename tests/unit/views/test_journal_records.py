"""What others do to the records of the journal: it is refused, or it is noticed that something is missing."""

from __future__ import annotations

import random
import re
from collections.abc import Sequence

import pytest
from msgspec.structs import replace

from suiro.protocol.records import Record
from suiro.views.control.journal_keys import Keys, Signer
from suiro.views.control.journal_records import (
    HEAD_KEY,
    MAX_FAULTS,
    MAX_SHADOWED,
    JournalRecord,
    Known,
    apply,
    as_bytes,
    doubt_of,
    mending_records,
    sealed,
)
from suiro.views.state import Version, View

SIGNER = Signer(keys=Keys.of(b"the secret of the host in these tests"), topic="_suiro_views", topic_id="a")
MARKER = 1  # the offset that the end of a transaction takes


def folded(log: Sequence[Record]) -> Known:
    known = Known()
    for record in log:
        signature = record.headers[0][1] if record.headers else None
        apply(known, SIGNER, record.offset, record.key, record.value, signature)
    return known


def drawn_log(seed: int) -> list[Record]:
    """Transactions over few keys, so that many records are overtaken and many are forgotten."""
    chance = random.Random(seed)
    known, log, end = Known(), list[Record](), 0
    for _ in range(chance.randint(2, 12)):
        keys = chance.sample(["code/a/1", "code/a/2", "code/b/3", "comparison/\udcff/1"], chance.randint(1, 3))
        records: list[JournalRecord] = [
            (key, chance.choice([None, b"", b"%d" % chance.randrange(999)])) for key in keys
        ]
        made = sealed(known, records, SIGNER, base_offset=end, time_ms=1)
        for record in made:
            assert not apply(known, SIGNER, record.offset, record.key, record.value, record.headers[0][1])
        log += made
        end = made[-1].offset + 1 + MARKER
        assert known.is_whole
        assert not known.refused
    return log


def overtaken(log: Sequence[Record]) -> list[int]:
    last = {record.key: place for place, record in enumerate(log)}
    return [place for place, record in enumerate(log) if last[record.key] != place]


@pytest.mark.parametrize("seed", range(100))
def test_what_compaction_leaves_is_whole(seed: int) -> None:
    """However far it went: records that others overtook are there, or not; so are the last tombstones."""
    log = drawn_log(seed)
    chance = random.Random(seed)
    gone = {place for place in overtaken(log) if chance.random() < 0.6}
    left = [record for place, record in enumerate(log) if place not in gone]
    assert folded(left).is_whole
    assert folded(left).live == folded(log).live
    kept = overtaken(left)
    clean = [one for place, one in enumerate(left) if one.value is not None and place not in kept]
    assert folded(clean).is_whole
    assert folded(clean).live == folded(log).live


@pytest.mark.parametrize("seed", range(100))
def test_a_record_that_counts_is_missed(seed: int) -> None:
    log = drawn_log(seed)
    old = overtaken(log)
    for place, record in enumerate(log):
        if place in old:
            continue
        without = folded([*log[:place], *log[place + 1 :]])
        assert not without.is_whole or without.live == folded(log).live
        assert not without.is_whole or record.value is None or record.key == HEAD_KEY.encode()


@pytest.mark.parametrize("seed", range(100))
def test_what_others_write_changes_nothing(seed: int) -> None:
    """Copies of ours at other offsets, changed ones, those of others: all are refused, wherever they are."""
    log = drawn_log(seed)
    chance = random.Random(seed)
    end = log[-1].offset + 1 + MARKER
    forged = [replace(one, offset=end + at) for at, one in enumerate(chance.sample(log, len(log)))]
    forged += [replace(one, offset=end + len(log), headers=()) for one in log]
    forged += [replace(one, value=b"theirs") for one in log if one.value != b"theirs"]
    forged += [replace(one, value=None) for one in log if one.value is not None]
    known = folded([*log, *forged])
    assert known.refusals == len(forged)
    assert known.live == folded(log).live
    assert (known.head, known.head_offset) == (folded(log).head, folded(log).head_offset)
    assert known.is_whole
    assert set(known.shadowed) >= set(known.live)


@pytest.mark.parametrize("seed", range(20))
def test_what_was_mended_is_compacted_to_ours(seed: int) -> None:
    log = drawn_log(seed)
    end = log[-1].offset + 1 + MARKER
    theirs = [
        Record(offset=end + at, timestamp=1, key=key, value=b"theirs")
        for at, key in enumerate(dict.fromkeys([*(one.key for one in log), b"code/new"]))
    ]
    known = folded([*log, *theirs])
    ours = sealed(known, mending_records(known), SIGNER, base_offset=end + len(theirs), time_ms=1)
    after = [*log, *theirs, *ours]
    old = overtaken(after)
    left = folded([one for place, one in enumerate(after) if place not in old])
    assert left.is_whole
    assert not left.refused
    assert {key: one.value for key, one in left.live.items()} == {key: one.value for key, one in known.live.items()}


def test_a_compaction_before_that_is_noticed() -> None:
    log = drawn_log(1)
    end = log[-1].offset + 1 + MARKER
    for key in {
        one.key
        for one in log
        if one.value is not None and (one.key or b"").decode(errors="surrogateescape") in folded(log).live
    }:
        left = [one for one in log if one.key != key]
        theirs = Record(offset=end, timestamp=1, key=key, value=b"theirs")
        assert not folded([*left, theirs]).is_whole
    assert not folded([one for one in log if one.key != HEAD_KEY.encode()]).is_whole


def test_a_topic_without_any_record_is_whole_and_one_of_others_is_not() -> None:
    assert Known().is_whole
    known = Known()
    apply(known, SIGNER, 0, b"view/delays", b"{}", None)
    assert not known.is_whole


def test_what_is_remembered_of_others_is_limited() -> None:
    known = Known()
    for number in range(MAX_SHADOWED + 10):
        signature = b"1 %012x abc" % number
        apply(known, SIGNER, number, b"code/%d" % number, b"x", signature)
    apply(known, SIGNER, number + 1, b"k" * 100_000, b"x", None)
    assert len(known.shadowed) == MAX_SHADOWED
    assert len(known.refused) == MAX_FAULTS + 1
    assert known.refusals == MAX_SHADOWED + 11


def test_a_view_of_a_later_release_is_not_taken_for_none() -> None:
    """A host without the view would let it be deployed again, as version 1, over the data of the first."""
    view = View(name="delays", versions=(Version(number=1, state="ready", key=("carrier",)),)).to_json()
    later = {**view, "routing": {**view["routing"], "paused": True}}
    log, known = list[Record](), Known()
    for value, said in (
        (later, r"cannot read, about views delays \(TypeError.*paused.*Use that release"),
        (view, None),
    ):
        made = sealed(known, [("view/delays", as_bytes(value))], SIGNER, base_offset=len(log) + MARKER, time_ms=1)
        log += made
        known = folded(log)
        doubt = doubt_of("_suiro_views", known, SIGNER.keys, -1)
        assert doubt is None if said is None else re.search(said, doubt or "")
        assert ("delays" in known.views) is (said is None)
