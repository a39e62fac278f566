"""The client and brokers that move, refuse, or are no brokers at all."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from datetime import timedelta
from functools import partial
from typing import Any

import pytest
from support.batches import batch_of, owned_batch
from support.scripted_broker import (
    NO_TIME,
    VERSIONS,
    ScriptedBroker,
    coordinator_answer,
    metadata_script,
    produce_answer,
)

from suiro.client import LATEST, NO_LEADER, Acl, AclFilter, Client, NewTopic
from suiro.client.connection import build
from suiro.clock import ManualClock
from suiro.errors import (
    AbortableError,
    BrokenConnectionError,
    BrokerFailureError,
    ConfigError,
    DeadlineExceededError,
    RefusedError,
    RetriableKafkaError,
    TopicExistsError,
    UnknownTopicError,
    UnsupportedVersionError,
    UsageError,
)
from suiro.protocol.messages import API_KEYS, ErrorCode, nested, response_class
from suiro.protocol.record_batch import read_header

QUICK = {"retry.backoff.ms": 1, "socket.connection.setup.timeout.ms": 400}


@pytest.fixture
def brokers() -> Iterator[list[ScriptedBroker]]:
    made = [ScriptedBroker(1), ScriptedBroker(2)]
    yield made
    for broker in made:
        broker.close()


@pytest.fixture
def leaders(brokers: list[ScriptedBroker]) -> dict[tuple[str, int], int]:
    found = {("t", 0): 1}
    for broker in brokers:
        broker.script["metadata"] = metadata_script(brokers, found)
    return found


@pytest.fixture
def client(brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]) -> Iterator[Client]:
    with Client(brokers[0].bootstrap_servers, settings=QUICK) as made:
        yield made


class Log:
    """Appends what is produced, and enforces sequences as a broker does."""

    def __init__(self) -> None:
        self.sequences: list[int] = []

    def append(self, records: bytes) -> tuple[ErrorCode, int]:
        sequence = read_header(records).base_sequence
        if sequence in self.sequences[-5:]:
            return ErrorCode.none, self.sequences.index(sequence)
        if sequence != (self.sequences[-1] + 1 if self.sequences else 0):
            return ErrorCode.out_of_order_sequence_number, -1
        self.sequences.append(sequence)
        return ErrorCode.none, len(self.sequences) - 1


def test_the_leader_moves_in_the_middle_of_a_pipeline(
    client: Client, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    log = Log()

    def old_leader(request: Any) -> Any:
        def code(topic: str, partition: int, records: bytes) -> tuple[ErrorCode, int]:
            if len(log.sequences) >= 4:
                leaders["t", 0] = 2
                return ErrorCode.not_leader_or_follower, -1
            return log.append(records)

        return produce_answer(request, code)

    brokers[0].script["produce"] = old_leader
    brokers[1].script["produce"] = lambda request: produce_answer(request, lambda _t, _p, r: log.append(r))
    batches = [("t", 0, owned_batch("v", producer_id=7, epoch=0, sequence=n)) for n in range(20)]
    assert client.produce_many(batches) == list(range(20))
    assert log.sequences == list(range(20))


def test_batches_behind_a_failed_one_are_sent_again_in_order(client: Client, brokers: list[ScriptedBroker]) -> None:
    """The broker refuses one batch for a moment; those under way behind it are out of order, and not lost."""
    log, refused = Log(), [3]

    def code(topic: str, partition: int, records: bytes) -> tuple[ErrorCode, int]:
        if read_header(records).base_sequence in refused:
            refused.clear()
            return ErrorCode.not_enough_replicas, -1
        return log.append(records)

    brokers[0].script["produce"] = lambda request: produce_answer(request, code)
    batches = [("t", 0, owned_batch("v", producer_id=7, epoch=0, sequence=n)) for n in range(12)]
    assert client.produce_many(batches) == list(range(12))
    assert log.sequences == list(range(12))


def test_a_batch_out_of_order_without_a_failure_before_it_is_an_error(
    client: Client, brokers: list[ScriptedBroker]
) -> None:
    log = Log()
    brokers[0].script["produce"] = lambda request: produce_answer(request, lambda _t, _p, r: log.append(r))
    with pytest.raises(AbortableError):
        client.produce({("t", 0): owned_batch("v", producer_id=7, epoch=0, sequence=5)})


def test_a_duplicate_the_broker_no_longer_places_is_success(client: Client, brokers: list[ScriptedBroker]) -> None:
    answer = (ErrorCode.duplicate_sequence_number, -1)
    brokers[0].script["produce"] = lambda request: produce_answer(request, lambda *_: answer)
    batch = owned_batch("v", producer_id=7, epoch=0, sequence=0)
    assert client.produce({("t", 0): batch}) == {("t", 0): -1}


def test_batches_without_a_producer_are_sent_one_by_one(client: Client, brokers: list[ScriptedBroker]) -> None:
    requests: list[int] = []

    def answer(request: Any) -> Any:
        requests.append(len(request.topic_data[0].partition_data))
        return produce_answer(request, lambda *_: (ErrorCode.none, len(requests) - 1))

    brokers[0].script["produce"] = answer
    assert client.produce_many([("t", 0, batch_of(f"{n}")) for n in range(5)]) == list(range(5))
    assert requests == [1] * 5


def test_the_coordinator_moves(client: Client, brokers: list[ScriptedBroker]) -> None:
    at = [0]
    for broker in brokers:
        broker.script["find_coordinator"] = lambda request: coordinator_answer(request, brokers[at[0]])

    def init(code: ErrorCode) -> Any:
        def answer(request: Any) -> Any:
            if code is not ErrorCode.none:
                at[0] = 1
            return response_class(API_KEYS["init_producer_id"], request.__version__)(
                throttle_time=NO_TIME, error_code=code, producer_id=9, producer_epoch=3
            )

        return answer

    brokers[0].script["init_producer_id"] = init(ErrorCode.not_coordinator)
    brokers[1].script["init_producer_id"] = init(ErrorCode.none)
    identity = client.transaction("id").init()
    assert (identity.id, identity.epoch) == (9, 3)
    assert brokers[1].asked[-1] == "init_producer_id"


def test_a_coordinator_whose_broker_is_gone_is_looked_for_anew(
    client: Client, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    """A broker that died is not among those that metadata name; by then it may have been asked for a leader's sake."""
    at = [1]
    for broker in brokers:
        broker.script["find_coordinator"] = lambda request: coordinator_answer(request, brokers[at[0]])
        broker.script["init_producer_id"] = lambda request: response_class(
            API_KEYS["init_producer_id"], request.__version__
        )(throttle_time=NO_TIME, error_code=ErrorCode.none, producer_id=9, producer_epoch=0)
    transaction = client.transaction("id")
    transaction.init()
    assert "init_producer_id" in brokers[1].asked
    at[0] = 0
    for broker in brokers:
        broker.script["metadata"] = metadata_script(brokers[:1], leaders)
    client.metadata(["t"])
    transaction.init(timeout_ms=5_000)
    assert "init_producer_id" in brokers[0].asked


def test_a_transaction_still_completing_is_waited_for(client: Client, brokers: list[ScriptedBroker]) -> None:
    codes = [ErrorCode.concurrent_transactions] * 5 + [ErrorCode.none]
    brokers[0].script["find_coordinator"] = lambda request: coordinator_answer(request, brokers[0])
    brokers[0].script["init_producer_id"] = lambda request: response_class(
        API_KEYS["init_producer_id"], request.__version__
    )(throttle_time=NO_TIME, error_code=codes.pop(0), producer_id=9, producer_epoch=0)
    client.transaction("id").init()
    assert codes == []


def test_a_partition_without_a_leader_is_waited_for_until_the_deadline(
    client: Client, leaders: dict[tuple[str, int], int]
) -> None:
    leaders["t", 0] = -1
    with pytest.raises(DeadlineExceededError, match="LEADER_NOT_AVAILABLE"):
        client.list_offsets({("t", 0): LATEST}, timeout_ms=100)


def test_answers_of_two_leaders_come_together(
    client: Client, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    leaders["t", 1] = 2
    for broker in brokers:

        def answer(request: Any, broker: ScriptedBroker = broker) -> Any:
            message = response_class(API_KEYS["list_offsets"], request.__version__)
            item = nested(message, "ListOffsetsPartitionResponse")
            topic = nested(message, "ListOffsetsTopicResponse")
            partitions = tuple(
                item(
                    partition_index=p.partition_index,
                    error_code=ErrorCode.none,
                    offset=100 * broker.node_id,
                )
                for p in request.topics[0].partitions
            )
            return message(throttle_time=NO_TIME, topics=(topic(name="t", partitions=partitions),))

        broker.script["list_offsets"] = answer
    found = client.list_offsets({("t", 0): LATEST, ("t", 1): LATEST})
    assert {partition: item.offset for (_, partition), item in found.items()} == {0: 100, 1: 200}


def test_an_answer_that_leaves_a_partition_out_is_an_error(client: Client, brokers: list[ScriptedBroker]) -> None:
    """Asking again at once, without a wait and without a deadline, would never end."""

    def empty(request: Any) -> Any:
        return response_class(API_KEYS["list_offsets"], request.__version__)(throttle_time=NO_TIME, topics=())

    brokers[0].script["list_offsets"] = empty
    with pytest.raises(BrokerFailureError, match="left t-0 out of its answer"):
        client.list_offsets({("t", 0): LATEST})


def test_a_producer_id_below_zero_is_an_error(client: Client, brokers: list[ScriptedBroker]) -> None:
    """Batches with it would be written without a producer: twice if they are sent twice, outside of a transaction."""

    def none(request: Any) -> Any:
        return response_class(API_KEYS["init_producer_id"], request.__version__)(
            throttle_time=NO_TIME, error_code=ErrorCode.none, producer_id=-1, producer_epoch=0
        )

    brokers[0].script["init_producer_id"] = none
    with pytest.raises(BrokerFailureError, match=r"127\.0\.0\.1:\d+ gave producer id -1 with epoch 0"):
        client.new_producer()


def test_a_first_batch_before_the_offset_is_an_error(client: Client, brokers: list[ScriptedBroker]) -> None:
    """Readers asked for the same offset again, without end."""
    message = response_class(API_KEYS["fetch"], 11)
    topic, partition = nested(message, "FetchableTopicResponse"), nested(message, "PartitionData")

    def old(request: Any) -> Any:
        item = partition(
            partition_index=0,
            error_code=ErrorCode.none,
            high_watermark=9,
            aborted_transactions=None,
            records=batch_of("a", "b"),
        )
        return message(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            responses=(topic(topic="t", partitions=(item,)),),
        )

    brokers[0].script["fetch"] = old
    assert len(client.fetch({("t", 0): 1})["t", 0].data)
    with pytest.raises(DeadlineExceededError, match="first batch of t-0 ends before 2"):
        client.fetch({("t", 0): 2}, timeout_ms=100)


def test_a_fetch_that_a_quota_delays_is_asked_again(client: Client, brokers: list[ScriptedBroker]) -> None:
    """Apache Kafka answers it without any partition."""
    message = response_class(API_KEYS["fetch"], 11)
    topic, partition = nested(message, "FetchableTopicResponse"), nested(message, "PartitionData")
    data = batch_of("v")
    found = partition(
        partition_index=0,
        error_code=ErrorCode.none,
        high_watermark=1,
        last_stable_offset=1,
        log_start_offset=0,
        aborted_transactions=(),
        preferred_read_replica=-1,
        records=data,
    )
    delayed = timedelta(milliseconds=40)
    answers = [
        message(throttle_time=delayed, error_code=ErrorCode.none, session_id=0, responses=()),
        message(
            throttle_time=delayed,
            error_code=ErrorCode.none,
            session_id=0,
            responses=(topic(topic="t", partitions=(found,)),),
        ),
    ]
    brokers[0].script["fetch"] = lambda request: answers.pop(0)
    assert bytes(client.fetch({("t", 0): 0})["t", 0].data) == data


def test_a_produce_without_an_answer_is_refused(client: Client) -> None:
    with pytest.raises(UsageError, match="acks"):
        client.produce({("t", 0): batch_of("v")}, acks=0)


def test_a_leader_that_left_the_cluster_is_looked_up_before_anything_is_sent(
    client: Client, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    """Asked for in between, the metadata would be read from the answer that the connection is to bring first."""
    leaders["u", 0] = 2

    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["list_offsets"], request.__version__)
        topic_class = nested(message, "ListOffsetsTopicResponse")
        item = nested(message, "ListOffsetsPartitionResponse")(partition_index=0, error_code=ErrorCode.none, offset=5)
        topics = tuple(topic_class(name=topic.name, partitions=(item,)) for topic in request.topics)
        return message(throttle_time=NO_TIME, topics=topics)

    for broker in brokers:
        broker.script["list_offsets"] = answer
    both = {("t", 0): LATEST, ("u", 0): LATEST}
    assert {item.offset for item in client.list_offsets(both).values()} == {5}
    brokers[0].script["metadata"] = metadata_script(brokers[:1], {("t", 0): 1})
    client.metadata(["t"])
    leaders["u", 0] = 1
    brokers[0].script["metadata"] = metadata_script(brokers[:1], leaders)
    assert {item.offset for item in client.list_offsets(both).values()} == {5}


def fetched(request: Any, code: ErrorCode, partition: int | None = None) -> Any:
    """Without a partition that which is asked for."""
    message = response_class(API_KEYS["fetch"], request.__version__)
    (asked,) = request.topics[0].partitions
    item = nested(message, "PartitionData")(
        partition_index=asked.partition if partition is None else partition,
        error_code=code,
        high_watermark=0,
        aborted_transactions=None,
        records=None,
    )
    topic = nested(message, "FetchableTopicResponse")(topic="t", partitions=(item,))
    return message(throttle_time=NO_TIME, error_code=ErrorCode.none, session_id=0, responses=(topic,))


def test_an_unread_answer_is_not_taken_for_the_next_one(
    client: Client, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    """The answer of the first leader ends the fetch, that of the second is still on its way."""
    leaders["t", 1] = 2
    brokers[0].script["fetch"] = lambda request: fetched(request, ErrorCode.topic_authorization_failed)
    brokers[1].script["fetch"] = lambda request: fetched(request, ErrorCode.none)
    with pytest.raises(RefusedError):
        client.fetch({("t", 0): 0, ("t", 1): 0})
    assert len(client.fetch({("t", 1): 0})["t", 1].data) == 0


@pytest.mark.parametrize("what", ["fetch", "list_offsets"])
def test_the_wait_for_a_leader_may_end_before_the_deadline(
    what: str, brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    leaders["t", 0] = -1
    clock = ManualClock()
    with Client(brokers[0].bootstrap_servers, settings=QUICK, clock=clock) as client:
        began_ms = clock.monotonic_ms()
        with pytest.raises(RetriableKafkaError, match="the leader of t-0 ") as failed:
            getattr(client, what)({("t", 0): LATEST}, leader_wait_ms=500)
    assert failed.value.code_name == NO_LEADER
    assert 500 <= clock.monotonic_ms() - began_ms < 5_000


def test_an_answer_that_cannot_be_read(client: Client, brokers: list[ScriptedBroker]) -> None:
    brokers[0].script["fetch"] = lambda request: b"\0\0\0\1garbage"
    with pytest.raises(DeadlineExceededError, match=r"127\.0\.0\.1:\d+"):
        client.fetch({("t", 0): 0}, timeout_ms=100)


def test_an_answer_of_another_partition(client: Client, brokers: list[ScriptedBroker]) -> None:
    """The offset of that partition was looked up among those that were asked for, which is a KeyError."""
    brokers[0].script["fetch"] = lambda request: fetched(request, ErrorCode.offset_out_of_range, 1)
    with pytest.raises(DeadlineExceededError, match="it names t-1, which was not asked for"):
        client.fetch({("t", 0): 0}, timeout_ms=100)


def test_a_broker_that_lacks_a_version(client: Client, brokers: list[ScriptedBroker]) -> None:
    with pytest.raises(UnsupportedVersionError, match="describe_configs"):
        client.describe_configs(["t"])


def test_an_older_broker_answers_api_versions_in_version_0(brokers: list[ScriptedBroker]) -> None:
    """KIP-511: whatever was asked, the refusal is in version 0."""
    asked: list[int] = []

    def answer(request: Any) -> Any:
        asked.append(request.__version__)
        message = response_class(API_KEYS["api_versions"], 0)
        refused = request.__version__ > 0
        item = nested(message, "ApiVersion")(api_key=API_KEYS["metadata"], min_version=0, max_version=5)
        return message(error_code=ErrorCode.unsupported_version if refused else ErrorCode.none, api_keys=(item,))

    brokers[0].script["api_versions"] = answer
    brokers[0].script["metadata"] = metadata_script(brokers, {("t", 0): 1})
    with Client(brokers[0].bootstrap_servers, settings=QUICK) as client:
        assert list(client.metadata(["t"])) == ["t"]
    assert asked == [3, 0]


def test_a_port_nobody_listens_on() -> None:
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{closed.getsockname()[1]}"
        with Client(address, settings=QUICK) as client, pytest.raises(DeadlineExceededError) as error:
            client.metadata()
    assert f"cannot connect to {address}" in str(error.value)
    assert "is a broker running there?" in str(error.value)
    assert isinstance(error.value.__cause__, BrokenConnectionError)


def test_a_name_that_does_not_resolve() -> None:
    with (
        Client("no-such-host.invalid:9092", settings=QUICK) as client,
        pytest.raises((ConfigError, DeadlineExceededError), match=r"no-such-host\.invalid"),
    ):
        client.metadata()


def test_a_port_that_speaks_http() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve() -> None:
            while True:
                try:
                    connected, _ = server.accept()
                except OSError:
                    return
                with connected:
                    connected.recv(1000)
                    connected.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")

        threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{server.getsockname()[1]}"
        with Client(address, settings=QUICK) as client, pytest.raises(DeadlineExceededError) as error:
            client.metadata()
        server.shutdown(socket.SHUT_RDWR)
    assert "is this a Kafka port?" in str(error.value)


def test_the_second_bootstrap_server_is_tried(brokers: list[ScriptedBroker]) -> None:
    brokers[0].script["metadata"] = metadata_script(brokers, {("t", 0): 1})
    with socket.socket() as closed:
        closed.bind(("127.0.0.1", 0))
        servers = f"127.0.0.1:{closed.getsockname()[1]},{brokers[0].bootstrap_servers}"
        with Client(servers, settings=QUICK) as client:
            assert list(client.metadata()) == ["t"]


def test_the_time_that_a_source_takes_is_not_the_brokers(
    brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int]
) -> None:
    log, clock = Log(), ManualClock()
    brokers[0].script["produce"] = lambda request: produce_answer(request, lambda _t, _p, r: log.append(r))

    def batches() -> Iterator[tuple[str, int, bytes]]:
        for number in range(3):
            clock.advance(100_000)
            yield "t", 0, owned_batch("v", producer_id=7, epoch=0, sequence=number)

    with Client(brokers[0].bootstrap_servers, settings=QUICK, clock=clock) as client:
        assert client.produce_many(batches(), timeout_ms=120_000) == [0, 1, 2]


def test_sizes_of_partitions_where_one_disk_has_failed(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "describe_log_dirs", 4)

    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["describe_log_dirs"], request.__version__)
        folder = nested(message, "DescribeLogDirsResult")
        topic = nested(message, "DescribeLogDirsTopic")
        partition = nested(message, "DescribeLogDirsPartition")
        here = partition(partition_index=0, partition_size=77, offset_lag=0, is_future_key=False)
        return message(
            throttle_time=NO_TIME,
            error_code=ErrorCode.none,
            results=(
                folder(error_code=ErrorCode.kafka_storage_error, log_dir="/bad", topics=()),
                folder(error_code=ErrorCode.none, log_dir="/good", topics=(topic(name="t", partitions=(here,)),)),
            ),
        )

    for broker in brokers:
        broker.script["describe_log_dirs"] = answer
    assert client.admin.partition_sizes(["t"]) == {("t", 0): 77}


def created(code: ErrorCode) -> Any:
    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["create_topics"], request.__version__)
        result = build(
            nested(message, "CreatableTopicResult"),
            name="t",
            topic_id=None,
            error_code=code,
            error_message=None,
            configs=(),
        )
        return message(throttle_time=NO_TIME, topics=(result,))

    return answer


def test_the_controller_has_gone(
    brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "create_topics", 4)
    addresses = ",".join(broker.bootstrap_servers for broker in brokers)
    brokers[1].script["create_topics"] = created(ErrorCode.none)
    with Client(addresses, settings=QUICK) as client:
        client.metadata()  # broker 1 is the controller
        brokers[0].close()
        brokers[1].script["metadata"] = metadata_script(brokers[1:], {("t", 0): 2})
        client.create_topics([NewTopic("t", 1)], timeout_ms=5_000)
    assert "create_topics" in brokers[1].asked


def test_the_controller_is_another_now(
    brokers: list[ScriptedBroker], leaders: dict[tuple[str, int], int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "create_topics", 4)
    brokers[1].script["create_topics"] = created(ErrorCode.none)

    def not_me(request: Any) -> Any:
        for broker in brokers:
            broker.script["metadata"] = metadata_script(brokers[::-1], leaders)
        return created(ErrorCode.not_controller)(request)

    brokers[0].script["create_topics"] = not_me
    with Client(brokers[0].bootstrap_servers, settings=QUICK) as client:
        client.create_topics([NewTopic("t", 1)], timeout_ms=5_000)


def test_a_topic_of_somebody_else_is_not_taken_for_ours(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was refused, so it made nothing."""
    monkeypatch.setitem(VERSIONS, "create_topics", 4)

    def refused(request: Any) -> Any:
        brokers[0].script["create_topics"] = created(ErrorCode.topic_already_exists)
        return created(ErrorCode.not_controller)(request)

    brokers[0].script["create_topics"] = refused
    with pytest.raises(TopicExistsError):
        client.create_topics([NewTopic("t", 1)], timeout_ms=5_000)


def test_rules_are_told_although_the_answer_that_told_of_them_was_lost(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt deletes the rule, so the second finds none."""
    monkeypatch.setitem(VERSIONS, "describe_acls", 3)
    monkeypatch.setitem(VERSIONS, "delete_acls", 3)
    none = {"error_code": ErrorCode.none, "error_message": None}

    def described(request: Any) -> Any:
        message = response_class(API_KEYS["describe_acls"], request.__version__)
        rule = nested(message, "AclDescription")(principal="User:ada", host="*", operation=3, permission_type=3)
        resource = nested(message, "DescribeAclsResource")(
            resource_type=2, resource_name="t", pattern_type=3, acls=(rule,)
        )
        return message(throttle_time=NO_TIME, **none, resources=(resource,))

    def nothing(request: Any, code: ErrorCode = ErrorCode.none) -> Any:
        message = response_class(API_KEYS["delete_acls"], request.__version__)
        result = nested(message, "DeleteAclsFilterResult")(error_code=code, error_message=None, matching_acls=())
        return message(throttle_time=NO_TIME, filter_results=(result,))

    def lost(request: Any) -> Any:
        brokers[0].script["delete_acls"] = nothing

    def timed_out(request: Any) -> Any:
        brokers[0].script["delete_acls"] = nothing
        return nothing(request, ErrorCode.request_timed_out)

    for broker in brokers:
        broker.script["describe_acls"] = described
    brokers[0].script["delete_acls"] = nothing
    assert client.admin.delete_acls([AclFilter()]) == ()
    rule = Acl(resource_type="topic", resource_name="t", principal="User:ada", operation="read", permission="allow")
    for first in (lost, timed_out):
        brokers[0].script["delete_acls"] = first
        assert client.admin.delete_acls([AclFilter()]) == (rule,)


def deleted(code: ErrorCode, name: str = "t") -> Any:
    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["delete_topics"], request.__version__)
        result = nested(message, "DeletableTopicResult")
        return message(throttle_time=NO_TIME, responses=(result(name=name, error_code=code),))

    return answer


def test_a_topic_that_was_not_there_is_not_taken_for_one_that_we_deleted(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first attempt was refused, so it deleted nothing."""
    monkeypatch.setitem(VERSIONS, "delete_topics", 4)

    def refused(request: Any) -> Any:
        brokers[0].script["delete_topics"] = deleted(ErrorCode.unknown_topic_or_partition)
        return deleted(ErrorCode.not_controller)(request)

    brokers[0].script["delete_topics"] = refused
    with pytest.raises(UnknownTopicError):
        client.delete_topics(["t"])


def test_partitions_that_were_added_are_not_asked_for_again(
    client: Client,
    brokers: list[ScriptedBroker],
    leaders: dict[tuple[str, int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Asked for again, a topic that has them is refused, whatever the other one waited for."""
    monkeypatch.setitem(VERSIONS, "create_partitions", 1)
    asked: list[tuple[str, ...]] = []

    def answer(request: Any) -> Any:
        names = tuple(topic.name for topic in request.topics)
        asked.append(names)
        leaders.update({(name, 0): 1 for name in names})
        message = response_class(API_KEYS["create_partitions"], request.__version__)
        result = nested(message, "CreatePartitionsTopicResult")
        code = {"a": ErrorCode.none if len(asked) > 1 else ErrorCode.not_controller}
        return message(
            throttle_time=NO_TIME,
            results=tuple(
                result(name=name, error_code=code.get(name, ErrorCode.none), error_message=None) for name in names
            ),
        )

    brokers[0].script["create_partitions"] = answer
    client.admin.create_partitions({"a": 1, "t": 1})
    assert asked == [("a", "t"), ("a",)]


def test_what_is_only_validated_is_not_taken_for_done(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The topic has as many partitions, and not by our own doing, whatever became of the first answer."""
    monkeypatch.setitem(VERSIONS, "create_partitions", 1)

    def refused(request: Any) -> Any:
        message = response_class(API_KEYS["create_partitions"], request.__version__)
        result = nested(message, "CreatePartitionsTopicResult")
        code = ErrorCode.invalid_partitions
        return message(throttle_time=NO_TIME, results=(result(name="t", error_code=code, error_message=None),))

    brokers[0].script["create_partitions"] = answered_second(brokers[0], "create_partitions", refused)
    with pytest.raises(RefusedError, match="add partitions to 't'"):
        client.admin.create_partitions({"t": 1}, validate_only=True)


def test_a_group_that_went_with_its_last_offset(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "offset_delete", 0)

    def gone(request: Any, code: ErrorCode = ErrorCode.group_id_not_found) -> Any:
        message = response_class(API_KEYS["offset_delete"], request.__version__)
        return message(error_code=code, throttle_time=NO_TIME, topics=())

    brokers[0].script["find_coordinator"] = lambda request: coordinator_answer(request, brokers[0])
    brokers[0].script["offset_delete"] = answered_second(brokers[0], "offset_delete", gone)
    client.admin.delete_offsets("g", [("t", 0)])
    with pytest.raises(RefusedError, match="there is no such group"):
        client.admin.delete_offsets("g", [("t", 0)])
    # Kafka 3.7 names only partitions that had an offset, if it has the new coordinator.
    brokers[0].script["offset_delete"] = partial(gone, code=ErrorCode.none)
    client.admin.delete_offsets("g", [("t", 0)])


def test_a_scram_user_that_went_although_the_controller_had_no_time_to_say_so(
    client: Client, brokers: list[ScriptedBroker], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(VERSIONS, "alter_user_scram_credentials", 0)
    codes = [ErrorCode.resource_not_found, ErrorCode.request_timed_out]

    def answer(request: Any) -> Any:
        message = response_class(API_KEYS["alter_user_scram_credentials"], request.__version__)
        result = nested(message, "AlterUserScramCredentialsResult")
        return message(
            throttle_time=NO_TIME,
            results=(result(user="ada", error_code=codes.pop(), error_message=None),),
        )

    brokers[0].script["alter_user_scram_credentials"] = answer
    client.admin.delete_scram_user("ada", mechanism="SCRAM-SHA-256")
    assert codes == []


def answered_second(broker: ScriptedBroker, api: str, answer: Any) -> Any:
    """The answer to the first request is lost."""

    def lost(request: Any) -> None:
        broker.script[api] = answer

    return lost


def test_what_a_deletion_has_deleted_is_not_asked_for_again(
    client: Client,
    brokers: list[ScriptedBroker],
    leaders: dict[tuple[str, int], int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(VERSIONS, "delete_topics", 4)
    asked: list[tuple[str, ...]] = []

    def answer(request: Any) -> Any:
        asked.append(tuple(request.topic_names))
        message = response_class(API_KEYS["delete_topics"], request.__version__)
        result = nested(message, "DeletableTopicResult")
        busy = ErrorCode.none if len(asked) > 1 else ErrorCode.not_controller
        leaders.clear()
        return message(
            throttle_time=NO_TIME,
            responses=tuple(
                result(name=name, error_code=busy if name == "a" else ErrorCode.none) for name in request.topic_names
            ),
        )

    brokers[0].script["delete_topics"] = answer
    client.delete_topics(["a", "t"])
    assert asked == [("a", "t"), ("a",)]
