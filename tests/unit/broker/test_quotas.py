"""How a client's speed is measured, which quota is whose, and what may be set."""

from __future__ import annotations

from pathlib import Path

import pytest

from suiro.broker.quotas.client_quotas import (
    MAX_THROTTLE_MS,
    ClientQuotas,
    MutationQuotaExceededError,
    SampledRate,
    TokenBucket,
)
from suiro.broker.quotas.store import Alteration, QuotaEntity, QuotaStore
from suiro.broker.security.session import Session
from suiro.broker.settings.cluster_state import ClusterState
from suiro.clock import ManualClock
from suiro.config import NodeSettings


def test_a_first_burst_is_spread_over_all_samples() -> None:
    rate = SampledRate(samples=11, sample_ms=1000)
    rate.record(10_000, 5_000)
    assert rate.throttle_ms(1000, 5_000) == 0
    rate.record(1, 5_000)
    assert rate.throttle_ms(1000, 5_000) == 1
    rate.record(9_999, 5_000)
    assert rate.throttle_ms(1000, 5_000) == 10_000


def test_samples_age() -> None:
    rate = SampledRate(samples=3, sample_ms=1000)
    rate.record(3_000, 0)
    assert rate.throttle_ms(1000, 0) == 1_000  # 3000 over 2 s
    assert rate.throttle_ms(1000, 999) == 1
    assert rate.throttle_ms(1000, 1_000) == 1_000, "as Kafka: a sample's end takes its time back"
    assert rate.throttle_ms(1000, 2_999) == 1
    assert rate.throttle_ms(1000, 3_000) == 0
    rate.record(1_000, 3_500)
    rate.record(-1_000, 3_500)
    assert rate.throttle_ms(0, 3_500) == 0
    rate.record(1, 3_500)
    assert rate.throttle_ms(0, 3_500) == MAX_THROTTLE_MS


def test_a_bucket_may_go_below_zero_once() -> None:
    bucket = TokenBucket(burst_s=10)
    assert bucket.throttle_ms(2, 0) == 0
    bucket.take(20, 2, 0)
    assert bucket.throttle_ms(2, 0) == 0
    bucket.take(5, 2, 0)
    assert bucket.throttle_ms(2, 0) == 2_500
    assert bucket.throttle_ms(2, 2_500) == 0
    bucket.take(0, 2, 100_000)
    bucket.take(21, 2, 100_000)
    assert bucket.throttle_ms(2, 100_000) == 500, "it fills up to the burst and no further"


@pytest.fixture
def store(tmp_path: Path) -> QuotaStore:
    return QuotaStore(ClusterState(tmp_path))


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def quotas(store: QuotaStore, clock: ManualClock) -> ClientQuotas:
    return ClientQuotas(store, NodeSettings, clock=clock)


def entity(text: str) -> QuotaEntity:
    """`user=alice client-id=` (no name: the default)"""
    return QuotaEntity.of({k: v or None for k, _, v in (part.partition("=") for part in text.split())})


def put(store: QuotaStore, text: str, value: float | None, key: str = "producer_byte_rate") -> None:
    change = Alteration(entity=entity(text), values=((key, value),))
    assert store.alter([change], validate_only=False) == {entity(text): None}


def session(user: str = "alice") -> Session:
    return Session(principal=f"User:{user}", host="10.0.0.7", listener="L")


def test_the_most_specific_quota_counts(store: QuotaStore, quotas: ClientQuotas) -> None:
    """Set from the least to the most specific: each new one takes over."""
    order = [
        "client-id=",
        "client-id=c",
        "user=",
        "user= client-id=",
        "user= client-id=c",
        "user=alice",
        "user=alice client-id=",
        "user=alice client-id=c",
    ]
    for number, text in enumerate(order, start=1):
        put(store, text, number * 1000)
        quota = quotas._quota(session(), "c", "produce")
        assert quota.bound == number * 1000
    assert quotas._quota(session(), "c", "fetch") is None
    for text in reversed(order):
        put(store, text, None)
    assert quotas._quota(session(), "c", "produce") is None
    assert not quotas.active


def test_long_client_ids_are_told_apart_and_take_no_room(store: QuotaStore, quotas: ClientQuotas) -> None:
    long = "c" * 30_000
    put(store, "client-id=", 1)
    put(store, f"client-id={long}", 1_000_000)
    assert quotas.record(session(), long, "produce", 500_000) == 0
    assert quotas.record(session(), long + "d", "produce", 500_000) > 0
    assert quotas.record(session(), long + "e", "produce", 1) == 0
    kept = [*quotas._found, *quotas._rates]
    assert len(kept) == 6
    assert max(len(part) for key in kept for part in key) < 400


@pytest.mark.parametrize(
    ("text", "shared"),
    [
        ("user=alice", [True, False]),
        ("user=", [True, False]),
        ("client-id=c", [False, True]),
        ("client-id=", [False, True]),
        ("user= client-id=", [False, False]),
    ],
)
def test_who_shares_a_measurement(store: QuotaStore, quotas: ClientQuotas, text: str, shared: list[bool]) -> None:
    put(store, text, 1000)
    assert quotas.record(session(), "c", "produce", 10_000) == 0
    same_user = quotas.record(session(), "d", "produce", 10)
    same_client = quotas.record(session("bob"), "c", "produce", 10)
    assert [same_user > 0, same_client > 0] == shared


def test_a_client_without_an_id_has_only_its_users_quota(store: QuotaStore, quotas: ClientQuotas) -> None:
    put(store, "client-id=", 10)
    assert quotas.record(session(), "", "produce", 10**9) == 0
    put(store, "user=", 10)
    assert quotas.record(session(), "", "produce", 10**9) > 0


def test_bytes_are_taken_back(store: QuotaStore, quotas: ClientQuotas) -> None:
    put(store, "user=alice", 1000, "consumer_byte_rate")
    assert quotas.record(session(), "c", "fetch", 20_000) == 10_000
    assert quotas.record(session(), "c", "fetch", -20_000) == 0
    assert quotas.record(session(), "c", "fetch", 10_000) == 0


def test_a_change_holds_at_once(store: QuotaStore, quotas: ClientQuotas, clock: ManualClock) -> None:
    put(store, "user=alice", 1000)
    assert quotas.record(session(), "c", "produce", 20_000) == 10_000
    put(store, "user=alice", 4000)
    assert quotas.record(session(), "c", "produce", 1) == 0
    clock.advance(20_000)
    put(store, "user=alice", 1)
    assert quotas.record(session(), "c", "produce", 10) == 0


def test_the_nodes_time_is_held_back_for_a_sample_at_most(store: QuotaStore, quotas: ClientQuotas) -> None:
    put(store, "user=alice", 1.0, "request_percentage")
    assert quotas.record(session(), "c", "request", 50_000_000) == 0  # 5 % of a second over 10 s
    assert quotas.record(session(), "c", "request", 5_000_000_000) == 1000


def test_topic_changes(store: QuotaStore, quotas: ClientQuotas, clock: ManualClock) -> None:
    free = quotas.mutations(session(), "c", strict=True)
    free.record(1_000_000)
    free.record(1_000_000)
    assert free.throttle_ms == 0
    put(store, "user=alice", 1.0, "controller_mutation_rate")
    strict = quotas.mutations(session(), "c", strict=True)
    strict.record(11)
    assert strict.throttle_ms == 0
    strict.record(5)
    with pytest.raises(MutationQuotaExceededError) as caught:
        strict.record(1)
    assert caught.value.throttle_ms == strict.throttle_ms == 5_000
    permissive = quotas.mutations(session(), "c", strict=False)
    permissive.record(1)
    assert permissive.throttle_ms == 6_000
    clock.advance(6_000)
    strict.record(1)


def test_connections_of_an_address(store: QuotaStore, quotas: ClientQuotas, clock: ManualClock) -> None:
    assert quotas.record_connection("10.0.0.7") == 0
    put(store, "ip=", 1, "connection_creation_rate")
    put(store, "ip=10.0.0.8", 100, "connection_creation_rate")
    assert [quotas.record_connection("10.0.0.7") for _ in range(10)] == [0] * 10
    assert quotas.record_connection("10.0.0.7") == 1000
    assert quotas.record_connection("10.0.0.8") == 0
    clock.advance(11_000)
    assert quotas.record_connection("10.0.0.7") == 0


@pytest.mark.parametrize(
    ("name", "host"),
    [("0:0:0:0:0:0:0:1", "::1"), ("::FFFF:10.0.0.7", "10.0.0.7"), ("localhost", "127.0.0.1")],
)
def test_an_address_has_a_quota_however_it_is_written(
    store: QuotaStore, quotas: ClientQuotas, name: str, host: str
) -> None:
    put(store, f"ip={name}", 1, "connection_creation_rate")
    assert [quotas.record_connection(host) for _ in range(11)] == [0] * 10 + [1000]


def test_a_client_that_goes_through_names_fills_nothing(
    store: QuotaStore, quotas: ClientQuotas, clock: ManualClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """And who is held back all the while stays held back."""
    monkeypatch.setattr("suiro.broker.quotas.client_quotas._MOST_MEASURED", 200)
    put(store, "client-id=", 100)
    for number in range(450):
        clock.advance(1)
        quotas.record(session(), f"name-{number}", "produce", 1)
        if number % 10 == 0:
            held_back = quotas.record(session(), "busy", "produce", 100)
    assert held_back > 0
    assert len(quotas._rates) <= 200


def test_what_is_set_is_there_after_a_restart(store: QuotaStore, tmp_path: Path) -> None:
    put(store, "user=alice client-id=", 1.5, "request_percentage")
    put(store, "ip=", 7, "connection_creation_rate")
    assert dict(QuotaStore(ClusterState(tmp_path)).quotas) == {
        entity("user=alice client-id="): {"request_percentage": 1.5},
        entity("ip="): {"connection_creation_rate": 7},
    }
    change = Alteration(entity=entity("ip="), values=(("connection_creation_rate", None),))
    assert store.alter([change], validate_only=True) == {entity("ip="): None}
    assert len(store.quotas) == 2


@pytest.mark.parametrize(
    ("parts", "values", "message"),
    [
        ({}, {"producer_byte_rate": 1.0}, "Invalid empty client quota entity"),
        ({"group": "g"}, {"producer_byte_rate": 1.0}, "Unhandled client quota entity type: group"),
        ({"user": ""}, {"producer_byte_rate": 1.0}, "Empty user not supported"),
        ({"user": "a", "ip": "::1"}, {"producer_byte_rate": 1.0}, "IP entity shouldnot be combined"),
        ({"ip": "300.1.1.1"}, {"connection_creation_rate": 1.0}, "not a valid IP or resolvable host"),
        ({"ip": "::1"}, {"producer_byte_rate": 1.0}, "Invalid configuration key producer_byte_rate"),
        ({"user": "a"}, {"connection_creation_rate": 1.0}, "Invalid configuration key"),
        ({"user": "a"}, {"producer_byte_rate": 1.5}, "cannot be a fractional value"),
        ({"user": "a"}, {"producer_byte_rate": 1e19}, "too large for a LONG."),
        ({"user": "a"}, {"request_percentage": 0.0}, "must be greater than 0"),
        ({"user": "a"}, {"request_percentage": float("nan")}, "must be greater than 0"),
    ],
)
def test_what_cannot_be_set(
    store: QuotaStore, parts: dict[str, str | None], values: dict[str, float | None], message: str
) -> None:
    wrong = Alteration(entity=QuotaEntity.of(parts), values=tuple(values.items()))
    good = Alteration(entity=entity("user=bob"), values=(("producer_byte_rate", 5.0),))
    results = store.alter([wrong, good], validate_only=False)
    problem = results[wrong.entity]
    assert message in problem[1]
    assert list(store.quotas) == [good.entity]


def test_filters(store: QuotaStore) -> None:
    for text in ("user=alice", "user=", "user=alice client-id=c", "client-id=c"):
        put(store, text, 1)

    def found(exact: dict[str, str | None], of_type: set[str], *, strict: bool = False) -> set[QuotaEntity]:
        return set(store.matching(exact, of_type, strict=strict))

    assert len(found({}, set())) == 4
    assert found({}, set(), strict=True) == set()
    assert found({"user": "alice"}, set()) == {entity("user=alice"), entity("user=alice client-id=c")}
    assert found({"user": "alice"}, set(), strict=True) == {entity("user=alice")}
    assert found({"user": None}, set()) == {entity("user=")}
    assert found({"client-id": "c"}, {"user"}) == {entity("user=alice client-id=c")}
    assert found({}, {"client-id"}, strict=True) == {entity("client-id=c")}
