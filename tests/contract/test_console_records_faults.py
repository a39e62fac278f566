"""Records that the commands and the console write on a bad network: each is in the log once."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from support.batches import read_all
from support.scripted_broker import VERSIONS, ScriptedBroker, metadata_script, produce_answer
from support.tcp_proxy import Action, TcpProxy

from suiro.client import Client
from suiro.console.records import OutgoingRecord, produce, produce_one
from suiro.protocol.messages import ErrorCode
from suiro.protocol.record_batch import read_header

NewTopicFixture = Callable[..., str]


def outgoing(number: int, partition: int) -> OutgoingRecord:
    return OutgoingRecord(key=None, value=b"%d" % number, partition=partition)


@pytest.mark.parametrize("action", ["refuse", "lose", "cut"])
def test_records_are_written_once(proxy: TcpProxy, far: Client, new_topic: NewTopicFixture, action: Action) -> None:
    topic = new_topic(2)
    for skip in (0, 2):
        proxy.plan("produce", action, skip=skip)
    assert produce(far, topic, (outgoing(number, number % 2) for number in range(20)), batch_records=3) == 20
    for partition in range(2):
        assert read_all(far, topic, partition) == [str(number) for number in range(partition, 20, 2)]
    assert proxy.happened == [f"{action} produce"] * 2


@pytest.mark.parametrize("action", ["refuse", "lose", "cut"])
def test_one_record_is_written_once_and_its_offset_is_told(
    proxy: TcpProxy, far: Client, new_topic: NewTopicFixture, action: Action
) -> None:
    topic = new_topic()
    assert produce_one(far, topic, outgoing(0, 0)) == (0, 0)
    proxy.plan("produce", action)
    assert produce_one(far, topic, outgoing(1, 0)) == (0, 1)
    assert read_all(far, topic) == ["0", "1"]


def test_brokers_without_producer_ids_are_written_to(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not all that speak Kafka's protocol have them."""
    monkeypatch.delitem(VERSIONS, "init_producer_id")
    producers: list[int] = []

    def append(topic: str, partition: int, records: bytes) -> tuple[ErrorCode, int]:
        producers.append(read_header(records).producer_id)
        return ErrorCode.none, 7

    broker = ScriptedBroker(1)
    broker.script["metadata"] = metadata_script([broker], {("t", 0): 1})
    broker.script["produce"] = lambda request: produce_answer(request, append)
    with Client(broker.bootstrap_servers) as client:
        assert produce_one(client, "t", outgoing(0, 0)) == (0, 7)
        assert produce(client, "t", [outgoing(0, 0)]) == 1
    broker.close()
    assert producers == [-1, -1]
