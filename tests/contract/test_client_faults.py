"""The client on a bad network: lost, cut and late answers between it and a real log."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from conftest import LogUnderTest
from support.batches import batch_of, owned_batch, read_all
from support.tcp_proxy import Action, TcpProxy
from support.waiting import wait_until
from support.wire import Wire

from suiro.client import EARLIEST, LATEST, Client, NewTopic, transaction
from suiro.client import connection as connection_module
from suiro.errors import DeadlineExceededError, RefusedError

NewTopicFixture = Callable[..., str]


@pytest.mark.parametrize("action", ["refuse", "lose", "cut"])
@pytest.mark.parametrize("skip", [0, 1, 7])
def test_pipelined_batches_arrive_once_and_in_order(
    proxy: TcpProxy,
    far: Client,
    log_under_test: LogUnderTest,
    new_topic: NewTopicFixture,
    action: Action,
    skip: int,
) -> None:
    topic = new_topic(2)
    with Wire(log_under_test.bootstrap_servers) as wire:
        producer_id, epoch = wire.new_producer()
    batches = [
        (
            topic,
            number % 2,
            owned_batch(f"{number}", producer_id=producer_id, epoch=epoch, sequence=number // 2),
        )
        for number in range(40)
    ]
    proxy.plan("produce", action, skip=skip)
    proxy.plan("produce", action, skip=skip + 5)
    assert far.produce_many(batches) == [number // 2 for number in range(40)]
    assert proxy.happened == [f"{action} produce"] * 2
    for partition in range(2):
        assert read_all(far, topic, partition) == [f"{number}" for number in range(partition, 40, 2)]


@pytest.mark.parametrize("action", ["refuse", "lose", "cut"])
def test_a_fetch_is_repeated(proxy: TcpProxy, far: Client, new_topic: NewTopicFixture, action: Action) -> None:
    topic = new_topic()
    values = [f"{number}" * 100 for number in range(500)]
    far.produce({(topic, 0): batch_of(*values)})
    proxy.plan("fetch", action)
    assert read_all(far, topic) == values
    assert proxy.happened == [f"{action} fetch"]


@pytest.mark.parametrize("action", ["refuse", "lose", "cut"])
@pytest.mark.parametrize(
    ("api", "protocol"),
    [
        *((api, "v1") for api in ("add_partitions_to_txn", "add_offsets_to_txn")),
        *((api, "v1") for api in ("init_producer_id", "produce", "txn_offset_commit", "end_txn")),
        *((api, "v2") for api in ("init_producer_id", "produce", "txn_offset_commit", "end_txn")),
        *((api, "v2") for api in ("find_coordinator", "offset_fetch")),
    ],
)
def test_a_transaction_survives_one_lost_answer(
    proxy: TcpProxy,
    far: Client,
    new_topic: NewTopicFixture,
    unique: str,
    monkeypatch: pytest.MonkeyPatch,
    api: str,
    protocol: str,
    action: Action,
) -> None:
    if protocol == "v1":
        monkeypatch.setattr(transaction, "V2", 99)
    topic, marker = new_topic(), new_topic()
    proxy.plan(api, action)
    producer = far.transaction(unique)
    producer.init()
    for number in range(2):
        producer.add_partitions([(topic, 0)])
        producer.add_offsets(unique)
        producer.produce([(topic, 0, batch_of(f"{number}-{half}"), 1) for half in "ab"])
        producer.commit_offsets(unique, {(marker, 0): (number + 1, f"{number}")})
        producer.end()
        producer.renew()
    wait_until(lambda: read_all(far, topic) == ["0-a", "0-b", "1-a", "1-b"], what="the two transactions")
    committed = far.offset_fetch(unique, [(marker, 0)])[marker, 0]
    assert committed is not None
    assert (committed.offset, committed.metadata) == (2, "1")
    assert proxy.happened == [f"{action} {api}"]


def test_administration_that_was_not_answered_is_done(
    proxy: TcpProxy, far: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    """The second attempt finds it done, and says so: no such group, no such user, as many partitions already."""
    topic = new_topic()
    far.offset_commit(unique, {(topic, 0): (1, "")})
    proxy.plan("delete_groups", "lose")
    far.admin.delete_group(unique)
    with pytest.raises(RefusedError, match="there is no such group"):
        far.admin.delete_group(unique)
    far.admin.upsert_scram_user(unique, "secret", mechanism="SCRAM-SHA-256")
    proxy.plan("alter_user_scram_credentials", "lose")
    far.admin.delete_scram_user(unique, mechanism="SCRAM-SHA-256")
    with pytest.raises(RefusedError, match="there is no such user"):
        far.admin.delete_scram_user(unique, mechanism="SCRAM-SHA-256")
    proxy.plan("create_partitions", "lose")
    far.admin.create_partitions({topic: 3})
    assert len(far.metadata([topic])[topic].partitions) == 3
    with pytest.raises(RefusedError, match="partition"):
        far.admin.create_partitions({topic: 3})
    assert proxy.happened == [
        "lose delete_groups",
        "lose alter_user_scram_credentials",
        "lose create_partitions",
    ]


def test_an_idle_connection_that_was_closed_is_no_lost_answer(proxy: TcpProxy, far: Client, unique: str) -> None:
    """What was never there would be told to be deleted."""
    far.admin.describe_group(unique)
    proxy.down()
    proxy.up()
    with pytest.raises(RefusedError, match="there is no such group"):
        far.admin.delete_group(unique)


def test_the_answer_to_a_bump_is_lost_and_the_epoch_is_not(proxy: TcpProxy, far: Client, unique: str) -> None:
    producer = far.transaction(unique)
    first = producer.init()
    proxy.plan("init_producer_id", "lose")
    assert producer.init(first).epoch == first.epoch + 1
    assert proxy.happened == ["lose init_producer_id"]


def test_a_topic_whose_creation_was_not_answered_is_ours(proxy: TcpProxy, far: Client, unique: str) -> None:
    proxy.plan("create_topics", "lose")
    far.create_topics([NewTopic(unique, 1)])
    proxy.plan("delete_topics", "lose")
    far.delete_topics([unique])
    assert proxy.happened == ["lose create_topics", "lose delete_topics"]


def test_a_silent_broker_costs_the_deadline_and_no_more(
    proxy: TcpProxy, far: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    target = (topic, 0)
    far.list_offsets({target: LATEST})
    proxy.plan("list_offsets", "hold")
    with pytest.raises(DeadlineExceededError, match=r"list offsets within 300 ms.*no answer in time"):
        far.list_offsets({target: LATEST}, timeout_ms=300)
    # The late answer belongs to a connection that is gone: it is not taken for the next one's.
    proxy.release()
    assert far.list_offsets({target: LATEST})[target].offset == 0


def test_an_interrupted_call_leaves_nothing_behind(
    proxy: TcpProxy, far: Client, new_topic: NewTopicFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C while waiting: the answer that comes later must not be read as another request's."""
    topic = new_topic()
    far.produce({(topic, 0): batch_of("a")})

    def interrupted(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for call in (
        lambda: far.fetch({(topic, 0): 0}),
        lambda: far.metadata([topic]),
        lambda: far.produce({(topic, 0): batch_of("b")}),
    ):
        with monkeypatch.context() as patch:
            patch.setattr(connection_module.Connection, "receive_frame", interrupted)
            with pytest.raises(KeyboardInterrupt):
                call()
        assert far.list_offsets({(topic, 0): EARLIEST})[topic, 0].offset == 0
