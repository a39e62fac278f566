"""`Client.admin` on the node and on Apache Kafka: partitions, settings, groups, users, quotas, access rules."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import Consumer
from conftest import LogUnderTest
from support.waiting import wait_until

from suiro.client import EARLIEST, Acl, AclFilter, Client
from suiro.errors import FatalError, KafkaError, RefusedError, UnknownTopicError, UsageError
from suiro.protocol.records import Record, encode_batch

NewTopicFixture = Callable[..., str]


def batch(*values: bytes) -> bytes:
    records = [Record(offset=at, timestamp=1_000 + at, key=None, value=value) for at, value in enumerate(values)]
    return encode_batch(records)


@pytest.fixture
def consumer(log_under_test: LogUnderTest, unique: str) -> Iterator[Consumer]:
    made = Consumer(
        {
            "bootstrap.servers": log_under_test.bootstrap_servers,
            "group.id": unique,
            "auto.offset.reset": "earliest",
            "enable.auto.commit": False,
        }
    )
    yield made
    made.close()


def test_the_cluster_names_its_brokers(client: Client, log_under_test: LogUnderTest) -> None:
    found = client.admin.describe_cluster()
    assert f"{found.brokers[0].host}:{found.brokers[0].port}" == log_under_test.bootstrap_servers
    assert found.cluster_id
    assert {broker.id for broker in found.brokers} == client.brokers()


def test_metadata_names_replicas(client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    (broker,) = client.brokers()
    assert [one.replicas for one in client.metadata([name])[name].partitions] == [(broker,)] * 2
    assert [one.in_sync for one in client.metadata([name])[name].partitions] == [(broker,)] * 2


def test_partitions_are_added(client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic(1)
    client.admin.create_partitions({name: 3}, validate_only=True)
    assert len(client.metadata([name])[name].partitions) == 1
    client.admin.create_partitions({name: 3})
    assert len(client.metadata([name])[name].partitions) == 3
    with pytest.raises(RefusedError, match=name):
        client.admin.create_partitions({name: 2})


def test_records_are_deleted_up_to_an_offset(client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic(2)
    for partition in (0, 1):
        for value in (b"a", b"b", b"c"):
            client.produce({(name, partition): batch(value)})
    assert client.admin.delete_records({(name, 0): 2, (name, 1): -1}) == {(name, 0): 2, (name, 1): 3}
    assert client.list_offsets({(name, 0): EARLIEST})[name, 0].offset == 2
    with pytest.raises(KafkaError, match=f"{name}-0 before offset 9"):
        client.admin.delete_records({(name, 0): 9})


def test_sizes_are_those_of_the_partitions_asked_for(client: Client, new_topic: NewTopicFixture) -> None:
    name, other = new_topic(2), new_topic(1)
    data = batch(b"x" * 1000)
    client.produce({(name, 1): data, (other, 0): data})
    assert client.admin.partition_sizes([name]) == {(name, 0): 0, (name, 1): len(data)}
    assert {(name, 1), (other, 0)} <= client.admin.partition_sizes().keys()


def test_a_topics_settings_are_set_and_taken_back(client: Client, new_topic: NewTopicFixture) -> None:
    name = new_topic(1)

    def entry() -> tuple[str | None, str]:
        entries = client.admin.config_entries("topic", [name])[name]
        found = next(one for one in entries if one.name == "max.message.bytes")
        return found.value, found.source

    default = entry()
    assert default[1] == "default"
    client.admin.alter_configs("topic", {name: {"max.message.bytes": "2000"}}, validate_only=True)
    assert entry() == default
    client.admin.alter_configs("topic", {name: {"max.message.bytes": "2000"}})
    wait_until(lambda: entry() == ("2000", "topic"), what="the new value")
    client.admin.alter_configs("topic", {name: {"max.message.bytes": None}})
    wait_until(lambda: entry() == default, what="the default")
    with pytest.raises(RefusedError, match=r"no\.such"):
        client.admin.alter_configs("topic", {name: {"no.such": "1"}})


def test_a_brokers_settings_are_asked_of_that_broker(client: Client) -> None:
    (broker,) = client.brokers()
    entries = {one.name: one for one in client.admin.config_entries("broker", [str(broker)])[str(broker)]}
    assert entries["log.retention.check.interval.ms"].value == str(24 * 3_600_000)


def test_a_classic_group_with_its_member(
    client: Client, new_topic: NewTopicFixture, consumer: Consumer, unique: str
) -> None:
    name = new_topic(2)
    client.produce({(name, 0): batch(b"a")})
    consumer.subscribe([name])
    wait_until(lambda: consumer.poll(0.2), what="a record")
    consumer.commit(asynchronous=False)
    found = client.admin.describe_group(unique)
    assert (found.state, found.type, found.protocol_type, found.has_members) == (
        "Stable",
        "classic",
        "consumer",
        True,
    )
    (member,) = found.members
    assert member.assignment == ((name, 0), (name, 1))
    listed = {one.group: one for one in client.admin.list_groups()}
    assert (listed[unique].state, listed[unique].type) == ("Stable", "classic")
    with pytest.raises(RefusedError, match="stop them first"):
        client.admin.delete_group(unique)
    with pytest.raises(RefusedError, match="stop it first"):
        client.admin.delete_offsets(unique, [(name, 0)])


def test_a_group_of_the_new_protocol(
    client: Client, log_under_test: LogUnderTest, new_topic: NewTopicFixture, unique: str
) -> None:
    name = new_topic(2)
    client.produce({(name, 0): batch(b"a")})
    consumer = Consumer(
        {
            "bootstrap.servers": log_under_test.bootstrap_servers,
            "group.id": unique,
            "auto.offset.reset": "earliest",
            "group.protocol": "consumer",
        }
    )
    try:
        consumer.subscribe([name])
        wait_until(lambda: consumer.poll(0.2), what="a record")
        found = client.admin.describe_group(unique)
        assert (found.state, found.type) == ("Stable", "consumer")
        assert [sorted(member.assignment) for member in found.members] == [[(name, 0), (name, 1)]]
    finally:
        consumer.close()


def test_what_a_group_committed_is_deleted(client: Client, new_topic: NewTopicFixture, unique: str) -> None:
    name = new_topic(2)
    client.offset_commit(unique, {(name, 0): (0, ""), (name, 1): (0, "")})
    client.admin.delete_offsets(unique, [(name, 0)])
    assert client.offset_fetch(unique, [(name, 0)]) == {(name, 0): None}
    assert client.offset_fetch(unique, [(name, 1)])[name, 1] is not None
    client.admin.delete_group(unique)
    assert client.admin.describe_group(unique).state == "Dead"
    with pytest.raises(RefusedError, match="no such group"):
        client.admin.delete_group(unique)


def test_a_group_that_never_was_is_dead(client: Client, unique: str) -> None:
    found = client.admin.describe_group(unique)
    assert (found.state, found.members, found.has_members) == ("Dead", (), False)


def test_scram_users_come_and_go(client: Client, unique: str) -> None:
    client.admin.upsert_scram_user(unique, "secret", mechanism="SCRAM-SHA-256", iterations=8192)
    client.admin.upsert_scram_user(unique, "secret")

    def mechanisms() -> dict[str, int] | None:
        return next((dict(user.mechanisms) for user in client.admin.describe_scram_users([unique])), None)

    wait_until(lambda: mechanisms() == {"SCRAM-SHA-256": 8192, "SCRAM-SHA-512": 4096}, what="both mechanisms")
    assert unique in [user.name for user in client.admin.describe_scram_users()]
    client.admin.delete_scram_user(unique, mechanism="SCRAM-SHA-256")
    wait_until(lambda: mechanisms() == {"SCRAM-SHA-512": 4096}, what="one mechanism")
    client.admin.delete_scram_user(unique, mechanism="SCRAM-SHA-512")
    wait_until(lambda: mechanisms() is None, what="no user")
    with pytest.raises(RefusedError, match="no such user"):
        client.admin.delete_scram_user(unique, mechanism="SCRAM-SHA-512")


@pytest.mark.parametrize(
    ("password", "more"),
    [("", {}), ("secret", {"iterations": 100}), ("secret", {"mechanism": "SCRAM-MD5"})],
)
def test_what_is_no_scram_user_is_refused_here(
    client: Client, unique: str, password: str, more: dict[str, object]
) -> None:
    with pytest.raises(UsageError):
        client.admin.upsert_scram_user(unique, password, **more)  # type: ignore[arg-type]


def test_quotas_are_set_and_taken_away(client: Client, unique: str) -> None:
    entity = {"user": unique, "client-id": None}
    client.admin.alter_quotas(entity, {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0})

    def values() -> list[dict[str, float]]:
        return [dict(quota.values) for quota in client.admin.describe_quotas(entity)]

    wait_until(lambda: values() == [{"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0}], what="both quotas")
    assert (("client-id", None), ("user", unique)) in [one.entity for one in client.admin.describe_quotas()]
    client.admin.alter_quotas(entity, {"producer_byte_rate": None})
    wait_until(lambda: values() == [{"consumer_byte_rate": 2000.0}], what="one quota")
    client.admin.alter_quotas(entity, {"consumer_byte_rate": None})
    wait_until(lambda: values() == [], what="no quota")
    with pytest.raises(RefusedError):
        client.admin.alter_quotas(entity, {"no_such_rate": 1.0})


def test_access_rules_need_an_authorizer(client: Client) -> None:
    rule = Acl(resource_type="topic", resource_name="t", principal="User:ada", operation="read", permission="allow")
    for ask in (
        client.admin.describe_acls,
        lambda: client.admin.create_acls([rule]),
        lambda: client.admin.delete_acls([AclFilter()]),
    ):
        with pytest.raises(RefusedError, match="no authorizer"):
            ask()


@pytest.mark.usefixtures("impatient")
def test_what_does_not_exist_is_said_so(client: Client) -> None:
    with pytest.raises((UnknownTopicError, RefusedError, FatalError), match="absent"):
        client.admin.create_partitions({"absent": 3})
