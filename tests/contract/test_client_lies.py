"""The client and a broker that lies: each field of each response is changed, one at a time."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any

import pytest
from conftest import LogUnderTest
from support.batches import batch_of, owned_batch, read_all
from support.lies import lies
from support.share import share_of
from support.tcp_proxy import TcpProxy

from suiro.client import EARLIEST, LATEST, AclFilter, Client, NewTopic
from suiro.client import connection as connection_module
from suiro.clock import ManualClock, SystemClock
from suiro.console.groups import Reset, describe_group, plan_reset
from suiro.console.records import Start, read_records
from suiro.console.topics import describe_cluster, describe_topic
from suiro.errors import RefusedError, SuiroError
from suiro.protocol.messages import API_KEYS, response_class
from suiro.topic_table.reading import pairs

NewTopicFixture = Callable[..., str]

HASTY = {
    "default.api.timeout.ms": 1_000,
    "delivery.timeout.ms": 1_000,
    "request.timeout.ms": 500,
    "socket.connection.setup.timeout.ms": 500,
    "retry.backoff.ms": 1,
    "retry.backoff.max.ms": 20,
    "fetch.from.files": "false",
}
REQUESTS_MAX = 1_000
"""In one operation. More are asked without end."""


def check(holds: object) -> None:
    """Not by `assert`: the client has assertions, too, which no broker may break."""
    if not holds:
        raise SuiroError("the answer is another one")


def transaction(client: Client, topic: str, name: str) -> None:
    """Writes the name, and then commits it."""
    producer = client.transaction(name)
    producer.init()
    producer.add_partitions([(topic, 0)])
    producer.produce([(topic, 0, batch_of(name), 1)])
    producer.add_offsets(name)
    producer.commit_offsets(name, {(topic, 0): (1, "")})
    producer.end()
    with suppress(SuiroError):  # it is committed
        producer.renew()


def idempotent(client: Client, topic: str, name: str) -> None:
    producer = client.new_producer()
    batch = owned_batch(name, producer_id=producer.id, epoch=producer.epoch, sequence=0)
    client.produce({(topic, 0): batch})


def committed(client: Client, topic: str, name: str) -> None:
    client.offset_commit(name, {(topic, 0): (1, "")})
    found = client.offset_fetch(name, [(topic, 0)])[topic, 0]
    check(found is not None and found.offset == 1)
    client.offset_fetch(name)


def topics(client: Client, topic: str, name: str) -> None:
    client.create_topics([NewTopic(name, 1)], exist_ok=True)
    client.admin.create_partitions({name: 2})
    client.delete_topics([name], missing_ok=True)


def settings(client: Client, topic: str, name: str) -> None:
    client.admin.alter_configs("topic", {topic: {"file.delete.delay.ms": "60000"}})
    check(client.describe_configs([topic])[topic].get("file.delete.delay.ms") == "60000")
    check(client.admin.config_entries("topic", [topic])[topic])


def groups(client: Client, topic: str, name: str) -> None:
    client.offset_commit(name, {(topic, 0): (1, ""), (topic, 1): (1, "")})
    client.admin.list_groups()
    client.admin.describe_group(name)
    client.admin.delete_offsets(name, [(topic, 0)])
    client.admin.delete_group(name)


def users(client: Client, topic: str, name: str) -> None:
    client.admin.upsert_scram_user(name, "secret")
    check([user.name for user in client.admin.describe_scram_users([name])] == [name])
    client.admin.delete_scram_user(name, mechanism="SCRAM-SHA-512")


def quotas(client: Client, topic: str, name: str) -> None:
    client.admin.alter_quotas({"user": name}, {"producer_byte_rate": 1e9})
    client.admin.describe_quotas({"user": name})
    client.admin.alter_quotas({"user": name}, {"producer_byte_rate": None})


def cluster(client: Client, topic: str, name: str) -> None:
    client.admin.describe_cluster()
    client.brokers()
    client.metadata()
    client.admin.partition_sizes([topic])


def access(client: Client, topic: str, name: str) -> None:
    check(client.has_authorizer() is False)
    with suppress(RefusedError):  # there is none
        client.admin.describe_acls(AclFilter())


def reading(client: Client, topic: str, name: str) -> None:
    begin = client.list_offsets({(topic, 1): EARLIEST, (topic, 0): EARLIEST})
    client.list_offsets({(topic, 1): LATEST}, read_committed=True)
    client.fetch({(topic, 1): begin[topic, 1].offset, (topic, 0): 0}, max_wait_ms=0)
    check(list(pairs(client, (topic, 1), 1, 4)) == [(b"b", b"b"), (b"c", b"c"), (b"d", b"d")])
    client.admin.delete_records({(topic, 2): 0})


def console(client: Client, topic: str, name: str) -> None:
    group = topic  # a group for each lie would be a list of a thousand groups in the end
    client.offset_commit(group, {(topic, 1): (1, "")})
    describe_cluster(client)
    describe_topic(client, topic)
    describe_group(client, group, now_ms=0)
    (planned,) = plan_reset(client, group, Reset(to="shift", value=1), None)
    check(planned.offset == 2)
    found = read_records(client, topic, start=Start(kind="earliest"))
    check([record.value for record in found] == [b"a", b"b", b"c", b"d"])


WRITING = (idempotent, transaction)
OPERATIONS = (*WRITING, committed, topics, settings, groups, users, quotas, cluster, access, reading, console)


@pytest.fixture
def liar(log_under_test: LogUnderTest, monkeypatch: pytest.MonkeyPatch) -> Iterator[TcpProxy]:
    """Every connection to this machine ends at it if the broker is there, and fails if it is to another one."""
    made = TcpProxy(log_under_test.bootstrap_servers)
    redirected = made.redirect(socket.create_connection)

    def connect(address: tuple[str, int], *args: Any, **kwargs: Any) -> socket.socket:
        if address[0] != made.target[0]:
            raise socket.gaierror(socket.EAI_NONAME, "there is no such host")
        return redirected(address, *args, **kwargs)

    monkeypatch.setattr(connection_module.socket, "create_connection", connect)
    yield made
    made.close()


class Liar:
    """Tells one lie, each time that it can or once. Without one, notes which there are."""

    def __init__(self, lying: tuple[str, str] = ("", ""), *, often: bool = False) -> None:
        self._api, self._lie = lying
        self._often = often
        self.asked = self.lied = 0
        self.known: dict[str, list[str]] = {}
        """By API, about its first response."""

    def __call__(self, api: str, version: int, frame: bytes) -> bytes:
        self.asked += 1
        if self.asked > REQUESTS_MAX:
            return b""
        if self._api and (api != self._api or (self.lied and not self._often)):
            return frame
        told = dict(lies(frame, response_class(API_KEYS[api], version)))
        self.known.setdefault(api, list(told))
        self.lied += 1
        return told.get(self._lie, frame)


@pytest.mark.parametrize("operation", OPERATIONS, ids=lambda operation: operation.__name__)
@pytest.mark.parametrize("often", [False, True])
@pytest.mark.usefixtures("impatient")
def test_what_a_broker_says_is_an_answer_or_an_error(
    liar: TcpProxy,
    log_under_test: LogUnderTest,
    client: Client,
    new_topic: NewTopicFixture,
    unique: str,
    operation: Callable[[Client, str, str], None],
    often: bool,
) -> None:
    """Never another exception, and nothing without end. What was acknowledged is there once, and all else at most
    once. `often`: the broker says it each time, else once."""
    topic = new_topic(3)
    client.produce({(topic, 1): batch_of("a", "b", "c", "d")})

    def run(name: str, told: Liar) -> Exception | None:
        liar.rewrite = told
        clock = ManualClock() if often else SystemClock()
        try:
            with Client(log_under_test.bootstrap_servers, settings=HASTY, clock=clock) as lied_to:
                operation(lied_to, topic, name)
        except Exception as error:
            liar.rewrite = None
            if operation is transaction:
                client.transaction(name).init()  # what is left open would hide what comes after it
            return error
        finally:
            liar.rewrite = None
        return None

    truth = Liar()
    assert run(unique, truth) is None
    told = [(api, lie) for api, known in truth.known.items() for lie in known]
    # The id of another producer is one whose batches the broker may have already.
    told = [(api, lie) for api, lie in told if not (lie.startswith("producer_id") and operation is idempotent)]
    acknowledged, failures = {unique}, []
    for number in share_of(397 if often else 97, range(len(told))):
        name, lying = f"{unique}-{number}", Liar(told[number], often=often)
        error = run(name, lying)
        if error is None:
            acknowledged.add(name)
        if not isinstance(error, SuiroError | None) or lying.asked > REQUESTS_MAX:
            failures.append((*told[number], error, lying.asked))
    assert not failures
    if operation in WRITING:
        written = read_all(client, topic)
        assert len(written) == len(set(written))
        assert acknowledged <= set(written)
