"""The client's transactions: on both brokers, each with `transaction.version` at 2 and at 1; one contract for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator

import pytest
from conftest import LogUnderTest
from support.admin import ask
from support.batches import batch_of, read_all
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import LATEST, Client
from suiro.client.connection import Connection
from suiro.errors import (
    AbortableError,
    DeadlineExceededError,
    FencedError,
    RefusedError,
    UnknownTopicError,
    UsageError,
)
from suiro.protocol.messages import API_NAMES

NewTopicFixture = Callable[..., str]
FEATURE = "transaction.version"


@pytest.fixture(scope="module", params=[2, 1], ids=["v2", "v1"], autouse=True)
def protocol(request: pytest.FixtureRequest, log_under_test: LogUnderTest) -> Iterator[int]:
    """The level that the cluster has finalized; afterwards it is the newest again."""
    finalize(log_under_test, request.param)
    yield request.param
    finalize(log_under_test, 2)


def finalize(log: LogUnderTest, level: int) -> None:
    with Wire(log.bootstrap_servers) as wire:
        if finalized(wire) != level:
            update = {"feature": FEATURE, "max_version_level": level, "upgrade_type": 1 if level == 2 else 2}
            answer = ask(wire, "update_features", 2, timeout=10_000, feature_updates=[update], validate_only=False)
            assert answer["error_code"] == "none", answer
        wait_until(lambda: finalized(wire) == level, what=f"{FEATURE} {level}")


def finalized(wire: Wire) -> int:
    answer = ask(wire, "api_versions", 3, client_software_name="test", client_software_version="1")
    return next((item["max_version_level"] for item in answer["finalized_features"] if item["name"] == FEATURE), 0)


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> Counter[str]:
    """How many requests of each kind clients send: {"produce v12": 1}."""
    counted: Counter[str] = Counter()
    send_frame = Connection.send_frame

    def spy(self: Connection, parts: list[bytes], *, deadline_ms: int) -> None:
        key, version = (int.from_bytes(parts[0][at : at + 2], "big") for at in (0, 2))
        counted[f"{API_NAMES[key]} v{version}"] += 1
        send_frame(self, parts, deadline_ms=deadline_ms)

    monkeypatch.setattr(Connection, "send_frame", spy)
    return counted


def settled(client: Client, topic: str, partition: int = 0) -> None:
    """Readers see to the end: in V2 the markers may still be on their way when `end` returns."""
    target = (topic, partition)

    def done() -> bool:
        ends = [client.list_offsets({target: LATEST}, read_committed=it)[target].offset for it in (True, False)]
        return ends[0] == ends[1]

    wait_until(done, what=f"the markers in {topic}-{partition}")


def test_a_transaction_becomes_visible_as_a_whole(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic, marker = new_topic(2), new_topic()
    producer = client.transaction(unique)
    first = producer.init()
    producer.add_partitions([(topic, 0), (topic, 1)])
    producer.add_offsets(unique)
    batches = [(topic, 0, batch_of("a", "b"), 2), (topic, 1, batch_of("c"), 1), (topic, 0, batch_of("d"), 1)]
    assert producer.produce(batches) == [0, 0, 2]
    producer.commit_offsets(unique, {(marker, 0): (7, "marker 7")})

    assert read_all(client, topic, 0) == []
    assert read_all(client, topic, 0, committed=False) == ["a", "b", "d"]
    target = (topic, 0)
    assert client.list_offsets({target: LATEST}, read_committed=True)[target].offset == 0
    assert client.list_offsets({target: LATEST})[target].offset == 3
    with pytest.raises(DeadlineExceededError, match="UNSTABLE_OFFSET_COMMIT"):
        client.offset_fetch(unique, [(marker, 0)], timeout_ms=1_000)
    assert client.offset_fetch(unique, [(marker, 0)], require_stable=False) == {(marker, 0): None}

    producer.end()
    second = producer.renew()
    settled(client, topic)
    settled(client, topic, 1)
    assert (second.id, second.epoch) == (first.id, first.epoch + 1)
    assert read_all(client, topic, 0) == ["a", "b", "d"]
    assert read_all(client, topic, 1) == ["c"]
    committed = client.offset_fetch(unique, [(marker, 0)])[marker, 0]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (7, "marker 7")
    # The marker takes an offset, and is not a record.
    assert client.list_offsets({target: LATEST}, read_committed=True)[target].offset == 4


def test_abort_by_fencing(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic, marker = new_topic(), new_topic()
    producer = client.transaction(unique)
    first = producer.init()
    producer.add_partitions([(topic, 0)])
    producer.add_offsets(unique)
    producer.produce([(topic, 0, batch_of("lost", "too"), 2)])
    producer.commit_offsets(unique, {(marker, 0): (7, "")})
    second = producer.abort()
    assert (second.id, second.epoch > first.epoch) == (first.id, True)
    assert client.offset_fetch(unique, [(marker, 0)]) == {(marker, 0): None}

    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("kept"), 1)])
    producer.end()
    settled(client, topic)
    assert read_all(client, topic) == ["kept"]
    assert read_all(client, topic, committed=False) == ["lost", "too", "kept"]
    fetched = client.fetch({(topic, 0): 0})[topic, 0]
    assert fetched.aborted == ((first.id, 0),)
    assert client.fetch({(topic, 0): 0}, read_committed=False)[topic, 0].aborted == ()


def test_after_a_failed_write_too(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(max_message_bytes="1000")
    producer = client.transaction(unique)
    first = producer.init()
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("lost"), 1)])
    with pytest.raises(RefusedError):
        producer.produce([(topic, 0, batch_of("too long" * 200), 1)])
    assert producer.abort().epoch > first.epoch
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("kept"), 1)])
    producer.end()
    settled(client, topic)
    assert read_all(client, topic) == ["kept"]


def test_an_abort_leaves_a_rival_alone(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    zombie = client.transaction(unique)
    zombie.init()
    zombie.add_partitions([(topic, 0)])
    zombie.produce([(topic, 0, batch_of("zombie"), 1)])
    with Client(log_under_test.bootstrap_servers) as other:
        rival = other.transaction(unique)
        identity = rival.init()
        with pytest.raises(FencedError):
            zombie.abort()
        assert rival.init(identity).epoch == identity.epoch + 1


def test_end_with_abort(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic()
    producer = client.transaction(unique)
    producer.init()
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("lost"), 1)])
    producer.end(commit=False)
    producer.renew()
    settled(client, topic)
    assert read_all(client, topic) == []


def test_an_interleaved_plain_producer_waits_behind_the_transaction(
    client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch_of("before")})
    producer = client.transaction(unique)
    producer.init()
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("inside"), 1)])
    client.produce({(topic, 0): batch_of("behind")})
    assert read_all(client, topic) == ["before"]
    producer.end()
    settled(client, topic)
    assert read_all(client, topic) == ["before", "inside", "behind"]


def test_a_new_producer_fences_the_old_one_in_every_call(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture, unique: str, protocol: int
) -> None:
    topic = new_topic()
    zombie = client.transaction(unique)
    identity = zombie.init()
    zombie.add_partitions([(topic, 0)])
    zombie.add_offsets(unique)
    zombie.produce([(topic, 0, batch_of("zombie"), 1)])
    joining: list[Callable[[], object]] = [
        lambda: zombie.add_partitions([(topic, 0)]),
        lambda: zombie.add_offsets(unique),
    ]
    with Client(log_under_test.bootstrap_servers) as other:
        successor = other.transaction(unique)
        successor.init()
        for call in (
            *(joining if protocol == 1 else ()),  # by V2 nothing is sent
            lambda: zombie.commit_offsets(unique, {(topic, 0): (1, "")}),
            lambda: zombie.end(),
            lambda: zombie.produce([(topic, 0, batch_of("late"), 1)]),
            lambda: zombie.init(identity),
        ):
            with pytest.raises(FencedError):
                call()
        successor.add_partitions([(topic, 0)])
        successor.produce([(topic, 0, batch_of("successor"), 1)])
        successor.end()
        settled(other, topic)
        assert read_all(other, topic) == ["successor"]


def test_an_empty_transaction_commits_its_offsets(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    marker = new_topic()
    producer = client.transaction(unique)
    producer.init()
    producer.add_offsets(unique)
    producer.commit_offsets(unique, {(marker, 0): (1, "")})
    producer.end()
    producer.renew()
    committed = client.offset_fetch(unique, [(marker, 0)])[marker, 0]
    assert committed is not None
    assert committed.offset == 1


def test_ending_a_transaction_that_never_began(client: Client, unique: str) -> None:
    producer = client.transaction(unique)
    producer.init()
    with pytest.raises(AbortableError) as error:
        producer.end()
    assert error.value.code_name == "INVALID_TXN_STATE"


def test_many_transactions_one_epoch_each(
    client: Client, new_topic: NewTopicFixture, unique: str, sent: Counter[str], protocol: int
) -> None:
    """And what each costs."""
    topic, marker = new_topic(), new_topic()
    client.list_offsets({(topic, 0): LATEST})
    producer = client.transaction(unique)
    identity = producer.init()
    for number in range(10):
        if number == 1:
            sent.clear()
        producer.add_partitions([(topic, 0)])
        producer.add_offsets(unique)
        producer.produce([(topic, 0, batch_of(f"{number}-{half}"), 1) for half in "ab"])
        producer.commit_offsets(unique, {(marker, 0): (number, "")})
        producer.end()
        following = producer.renew()
        assert (following.id, following.epoch) == (identity.id, identity.epoch + 1)
        identity = following
    # More of them where markers of the transaction before were still on their way.
    names = {name for name in sent if not name.startswith("find_coordinator")}
    if protocol == 2:
        assert names == {"produce v12", "txn_offset_commit v5", "end_txn v5"}
    else:
        assert names == {
            "add_partitions_to_txn v3",
            "add_offsets_to_txn v4",
            "produce v11",
            "txn_offset_commit v4",
            "end_txn v4",
            "init_producer_id v5",
        }
    assert sent["end_txn v5"] + sent["end_txn v4"] == 9
    settled(client, topic)
    assert read_all(client, topic) == [f"{number}-{half}" for number in range(10) for half in "ab"]


def test_after_an_end_an_identity_is_spent(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic()
    producer = client.transaction(unique)
    with pytest.raises(UsageError, match=r"call init\(\)"):
        producer.renew()
    identity = producer.init()
    assert producer.renew() == identity, "nothing is spent yet"
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("a"), 1)])
    producer.end()
    with pytest.raises(UsageError, match=r"call renew\(\)"):
        producer.produce([(topic, 0, batch_of("b"), 1)])
    assert producer.init(identity).epoch == identity.epoch + 1, "as renew, for whoever kept the identity only"


def test_the_protocol_is_that_of_the_epoch(
    log_under_test: LogUnderTest, client: Client, new_topic: NewTopicFixture, unique: str, protocol: int
) -> None:
    """An administrator moves the cluster's level while a transaction is open: it ends as it began, the next identity of
    a new connection is of the new level. No record is lost or doubled on the way there and back."""
    topic = new_topic()
    producer = client.transaction(unique)
    identity = producer.init()
    for number, level in enumerate((3 - protocol, protocol)):
        producer.add_partitions([(topic, 0)])
        producer.produce([(topic, 0, batch_of(f"{number} begun"), 1)])
        finalize(log_under_test, level)
        producer.add_partitions([(topic, 0)])
        producer.produce([(topic, 0, batch_of(f"{number} ended"), 1)])
        producer.end()
        producer.renew()
        client.close()
        after = producer.init(producer.identity)
        assert (after.id, after.epoch) == (identity.id, identity.epoch + 2)
        identity = after
    settled(client, topic)
    assert read_all(client, topic) == ["0 begun", "0 ended", "1 begun", "1 ended"]


@pytest.mark.usefixtures("impatient")
def test_offsets_of_a_topic_that_does_not_exist(client: Client, unique: str) -> None:
    producer = client.transaction(unique)
    producer.init()
    producer.add_offsets(unique)
    with pytest.raises(UnknownTopicError, match="no-such-topic"):
        producer.commit_offsets(unique, {("no-such-topic", 0): (1, "")})


@pytest.mark.usefixtures("impatient")
def test_a_partition_that_does_not_exist(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    producer = client.transaction(unique)
    producer.init()

    def write() -> None:
        producer.add_partitions([(topic, 0), (topic, 1)])
        producer.produce([(topic, 1, batch_of("nowhere"), 1)])

    with pytest.raises(UnknownTopicError, match=f"{topic}-1"):
        write()


def test_a_transaction_timeout_beyond_the_brokers_limit(client: Client, unique: str) -> None:
    with pytest.raises(RefusedError) as refused:
        client.transaction(unique, timeout_ms=24 * 3600 * 1000).init()
    assert refused.value.code_name == "INVALID_TRANSACTION_TIMEOUT"


def test_producing_to_a_partition_that_was_not_added(
    client: Client, new_topic: NewTopicFixture, unique: str, protocol: int
) -> None:
    """V1: refused. V2: that adds it, so it ends with the others."""
    topic = new_topic(2)
    producer = client.transaction(unique)
    producer.init()
    producer.add_partitions([(topic, 0)])
    late = [(topic, 1, batch_of("late"), 1)]
    if protocol == 1:
        with pytest.raises(AbortableError):
            producer.produce(late)
        producer.init()
        assert read_all(client, topic, 1, committed=False) == []
    else:
        producer.produce(late)
        producer.end()
        settled(client, topic, 1)
        assert read_all(client, topic, 1) == ["late"]


def test_a_transaction_left_open_is_aborted_by_the_coordinator(
    client: Client, new_topic: NewTopicFixture, unique: str, protocol: int
) -> None:
    """After its timeout and the next scan (10 s by default) readers go on; a commit comes too late, and by V2 its
    producer may begin anew, unless somebody else took the id over."""
    topic = new_topic()
    producer = client.transaction(unique, timeout_ms=1_000)
    producer.init()
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of("forgotten"), 1)])
    target = (topic, 0)
    wait_until(
        lambda: client.list_offsets({target: LATEST}, read_committed=True)[target].offset == 2,
        deadline_s=30,
        what="the abort of the forgotten transaction",
    )
    with pytest.raises(AbortableError if protocol == 2 else FencedError):
        producer.end()
    identity = producer.abort()
    assert producer.identity == identity
    assert read_all(client, topic) == []


def test_who_comes_after_one_that_lost_touch_goes_on_and_aborts_what_was_left_open(
    client: Client, log_under_test: LogUnderTest, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic(1)
    lost = client.transaction(unique)
    identity = lost.init()
    lost.add_partitions([(topic, 0)])
    lost.produce([(topic, 0, batch_of("left open"), 1)])
    with Wire(log_under_test.bootstrap_servers) as wire:  # its own abort, whose answer it never gets
        answer = wire.init_producer_id(unique, producer_id=identity.id, epoch=identity.epoch)
        assert answer[0] == "concurrent_transactions"
    following = client.transaction(unique)
    following.resume(identity, left_open=lost.is_open)
    following.add_partitions([(topic, 0)])
    following.produce([(topic, 0, batch_of("whole"), 1)])
    following.end()
    settled(client, topic)
    assert read_all(client, topic) == ["whole"]


def test_nobody_comes_after_one_whose_rival_took_over(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    topic = new_topic(1)
    lost = client.transaction(unique)
    identity = lost.init()
    lost.add_partitions([(topic, 0)])
    lost.produce([(topic, 0, batch_of("left open"), 1)])
    client.transaction(unique).init()
    with pytest.raises(FencedError):
        client.transaction(unique).resume(identity, left_open=lost.is_open)
