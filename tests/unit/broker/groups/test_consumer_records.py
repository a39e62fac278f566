"""The records of consumer groups, byte by byte as Apache Kafka 4.3 writes them."""

from __future__ import annotations

from uuid import UUID

import pytest

from suiro.broker.coordination.groups.consumer_member import ClassicMember, ConsumerMember, MemberState, ResolvedRegex
from suiro.broker.coordination.groups.consumer_records import (
    ConsumerRecord,
    GroupEpoch,
    Ownership,
    Regex,
    Subscription,
    Target,
    TargetEpoch,
    TopicMetadata,
    decode,
    encode,
)

TOPIC = UUID(int=1)
ID = "00" * 15 + "01"
MEMBER = ConsumerMember(
    member_id="m",
    rack_id="r",
    client_id="c",
    client_host="/h",
    topic_names=frozenset(("b", "a")),
    topic_regex="",
    rebalance_timeout_ms=5,
    server_assignor="range",
)

RECORDS: list[tuple[ConsumerRecord, str, str]] = [
    (GroupEpoch(3, 7), "0003000167", "0000" "00000003" "01" "00" "08" "0000000000000007"),
    (GroupEpoch(3), "0003000167", "0000" "00000003" "00"),
    (TargetEpoch(3, 7), "0006000167", "0000" "00000003" "01" "00" "08" "0000000000000007"),
    (Subscription("m", MEMBER), "000500016700016d",
     "0000" "00" "0272" "0263" "032f68" "0302610262" "01" "00000005" "0672616e6765" "01" "00" "01" "00"),
    (Target("m", {TOPIC: frozenset((2, 0))}), "000700016700016d",
     "0000" "02" + ID + "03" "00000000" "00000002" "00" "00"),
    (Ownership("m", ConsumerMember(
        member_id="m", member_epoch=4, previous_member_epoch=3, state=MemberState.UNREVOKED_PARTITIONS,
        assigned={TOPIC: {0: 2}}, pending_revocation={})), "000800016700016d",
     "0000" "00000004" "00000003" "01" "02" + ID + "02" "00000000" "01" "00" "05" "02" "00000002" "01" "00"),
    (Regex("x", ResolvedRegex(topics=frozenset("t"), version=1, timestamp_ms=2)), "0010000167000178",
     "0000" "02" "0274" "0000000000000001" "0000000000000002" "00"),
]  # fmt: skip


@pytest.mark.parametrize(("record", "key", "value"), RECORDS, ids=lambda item: type(item).__name__)
def test_records(record: ConsumerRecord, key: str, value: str) -> None:
    encoded = encode("g", record)
    assert encoded[1] is not None
    assert (encoded[0].hex(), encoded[1].hex()) == (key, value)
    assert decode(*encoded) == ("g", record)


@pytest.mark.parametrize(
    "record",
    [
        GroupEpoch(None), TopicMetadata(False), Subscription("m", None), TargetEpoch(None), Target("m", None),
        Ownership("m", None), Regex("x", None),
    ],
    ids=lambda item: type(item).__name__,
)  # fmt: skip
def test_tombstones(record: ConsumerRecord) -> None:
    key, value = encode("g", record)
    assert value is None
    assert decode(key, None) == ("g", record)


def test_a_member_of_the_classic_protocol() -> None:
    classic = ClassicMember(session_timeout_ms=9, protocols=(("range", b"\x00"),))
    member = ConsumerMember(member_id="m", client_id="c", client_host="h", rebalance_timeout_ms=5, classic=classic)
    encoded = encode("g", Subscription("m", member))
    assert encoded[1] is not None
    assert encoded[1].hex() == (
        "0000" "00" "00" "0263" "0268" "01" "01" "00000005" "00"
        "01" "00" "10" "01" "00000009" "02" "0672616e6765" "0200" "00" "00"
    )  # fmt: skip
    assert decode(*encoded) == ("g", Subscription("m", member))


def test_partitions_without_epochs_have_the_members() -> None:
    """As Kafka before 4.3 wrote them, and as it writes a null."""
    for tags in ("00", "01000100"):
        value = "0000" "00000004" "00000003" "00" "02" + ID + "02" "00000000" + tags + "01" "00"  # fmt: skip
        decoded = decode(bytes.fromhex("000800016700016d"), bytes.fromhex(value))
        assert isinstance(decoded[1], Ownership)
        assert decoded[1].member.assigned == {TOPIC: {0: 4}}


def test_records_of_others_are_left_alone() -> None:
    assert decode(b"\x00\x0f\x00\x01g", b"\x00\x00") is None
    with pytest.raises(ValueError, match="version 9"):
        decode(b"\x00\x03\x00\x01g", b"\x00\x09")
