"""Throttle times of clients by their quotas.

The quota of a client is the first one that is set, in Kafka's order, of (user, client id), (user, any client id), user,
(any user, client id), (any user, any client id), any user, client id, any client id. Clients of one quota that names
only the user share one measurement, likewise by client id; otherwise each pair has its own.

Rates are measured as Apache Kafka does: pure arithmetic over given times. `SampledRate` sums what was recorded in
samples of a fixed length and divides by the time they cover; samples that a new client does not have yet count as empty
ones, so that its first burst is allowed. `TokenBucket` holds tokens that come back at the quota's speed, up to a burst.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from hashlib import sha256
from types import MappingProxyType
from typing import Literal, TypeAlias, TypeVar

from suiro.broker.quotas.store import CLIENT_ID, IP, USER, QuotaEntity, QuotaStore
from suiro.broker.refusals import RefusedError
from suiro.broker.security.session import Session, one_text_of
from suiro.clock import Clock
from suiro.config import NodeSettings
from suiro.protocol.messages import ErrorCode

MAX_THROTTLE_MS = 2**31 - 1


@dataclass(slots=True, eq=False)
class SampledRate:
    """Amount per second over the last `samples` samples of `sample_ms` each, the current one included."""

    samples: int
    sample_ms: int
    last_ms: int = 0
    _windows: deque[list[float]] = field(default_factory=deque)  # [when it began, sum], oldest first
    _total: float = 0.0

    def record(self, amount: float, now_ms: int) -> None:
        self._forget(now_ms)
        windows = self._windows
        if not windows or now_ms - windows[-1][0] >= self.sample_ms:
            windows.append([now_ms, 0.0])
        windows[-1][1] += amount
        self._total += amount
        self.last_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The milliseconds until the rate is down to the quota, if nothing is recorded meanwhile."""
        self._forget(now_ms)
        if not self._windows or self._total <= 0:
            return 0
        covered_ms = self._covered_ms(now_ms)
        rate = self._total * 1000 / covered_ms if covered_ms else float("inf")
        if rate <= quota:
            return 0
        if quota <= 0 or rate == float("inf"):
            return MAX_THROTTLE_MS
        return min(MAX_THROTTLE_MS, int((rate - quota) / quota * covered_ms + 0.5))

    def _covered_ms(self, now_ms: int) -> float:
        covered = now_ms - self._windows[0][0]
        missing = self.samples - 1 - covered // self.sample_ms
        return covered + max(0, missing) * self.sample_ms

    def _forget(self, now_ms: int) -> None:
        windows = self._windows
        while windows and now_ms - windows[0][0] >= self.samples * self.sample_ms:
            self._total -= windows.popleft()[1]
        if not windows:
            self._total = 0.0  # the additions' rounding errors go too


@dataclass(slots=True, eq=False)
class TokenBucket:
    """Tokens, filled at `quota` a second up to what `burst_s` seconds bring. It may go below zero once."""

    burst_s: float
    last_ms: int = 0
    _tokens: float | None = None  # full

    def take(self, amount: float, quota: float, now_ms: int) -> None:
        self._tokens = self._filled(quota, now_ms) - amount
        self.last_ms = now_ms

    def throttle_ms(self, quota: float, now_ms: int) -> int:
        """The milliseconds until no tokens are missing."""
        tokens = self._filled(quota, now_ms)
        if tokens >= 0:
            return 0
        return min(MAX_THROTTLE_MS, int(-tokens / quota * 1000 + 0.5)) if quota > 0 else MAX_THROTTLE_MS

    def _filled(self, quota: float, now_ms: int) -> float:
        burst = quota * self.burst_s
        if self._tokens is None:
            return burst
        return min(burst, self._tokens + quota * (now_ms - self.last_ms) / 1000)


QuotaKind: TypeAlias = Literal["produce", "fetch", "request"]

_KEYS: Mapping[str, str] = MappingProxyType(
    {
        "produce": "producer_byte_rate",
        "fetch": "consumer_byte_rate",
        "request": "request_percentage",
        "mutation": "controller_mutation_rate",
    }
)
_PERCENT_OF_A_NANOSECOND = 100 / 1e9
_MOST_MEASURED = 20_000
_CHARACTERS_KEPT = 300
"""Of a client id. Of a longer one its hash is kept: a client may use thousands of them."""
_ADDRESSES = {"localhost": "127.0.0.1"}
"""The addresses of names that a quota may be for."""
_Key = TypeVar("_Key")
_Measurement = TypeVar("_Measurement", SampledRate, TokenBucket)

Measured: TypeAlias = tuple[str, str, str]
"""(kind, user, client id or its hash): whose measurement; user or client id is empty where all share one."""


@dataclass(frozen=True, slots=True)
class _Quota:
    bound: float
    measured: Measured


class MutationQuotaExceededError(RefusedError):
    """Topics are changed faster than the client may; it must wait `throttle_ms`."""

    def __init__(self, throttle_ms: int) -> None:
        super().__init__(ErrorCode.throttling_quota_exceeded, "The throttling quota has been exceeded.")
        self.throttle_ms = throttle_ms


class ClientQuotas:
    """Measures clients. While no quota is set, `active` is false, and nothing need be measured."""

    def __init__(self, store: QuotaStore, settings: Callable[[], NodeSettings], *, clock: Clock) -> None:
        self.store = store
        self._settings = settings
        self._clock = clock
        self._found: dict[tuple[str, str, str], _Quota | None] = {}
        self._rates: dict[Measured, SampledRate] = {}
        self._buckets: dict[Measured, TokenBucket] = {}
        self._connections: dict[str, SampledRate] = {}
        self._of_addresses: Mapping[str, Mapping[str, float]] | None = None
        store.on_change(self._forget)

    def _forget(self) -> None:
        """The quotas have changed."""
        self._found.clear()
        self._of_addresses = None

    @property
    def active(self) -> bool:
        return bool(self.store.quotas)

    def record(self, session: Session, client_id: str, kind: QuotaKind, amount: int) -> int:
        """Count bytes ("produce", "fetch") or nanoseconds of handler time ("request"); a negative amount takes them
        back. Returns the milliseconds for which the client must be throttled."""
        quota = self._quota(session, client_id, kind)
        if quota is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(self._rates, quota.measured)
        if kind != "request":
            rate.record(amount, now_ms)
            return rate.throttle_ms(quota.bound, now_ms) if amount > 0 else 0
        rate.record(amount * _PERCENT_OF_A_NANOSECOND, now_ms)
        longest = self._settings().quota_window_size_seconds * 1000
        return min(longest, rate.throttle_ms(quota.bound, now_ms))

    def most_fetched_at_once(self, session: Session, client_id: str) -> int | None:
        """The bytes that a client who took none lately may have without being held back; None: no quota.

        A fetch that gave more would be held back again and again, and never give anything.
        """
        quota = self._quota(session, client_id, "fetch")
        if quota is None:
            return None
        settings = self._settings()
        return int(quota.bound * (settings.quota_window_num - 1) * settings.quota_window_size_seconds)

    def mutations(self, session: Session, client_id: str, *, strict: bool) -> MutationQuota:
        """The quota for a request that changes topics (KIP-599).

        `strict` is for the versions whose clients know THROTTLING_QUOTA_EXCEEDED.
        """
        quota = self._quota(session, client_id, "mutation")
        if quota is None:
            return MutationQuota(None, 0.0, self._clock, strict)
        bucket = self._buckets.get(quota.measured)
        if bucket is None:
            _make_room(self._buckets)
            settings = self._settings()
            seconds = settings.controller_quota_window_num * settings.controller_quota_window_size_seconds
            self._buckets[quota.measured] = bucket = TokenBucket(burst_s=seconds)
        return MutationQuota(bucket, quota.bound, self._clock, strict)

    def record_connection(self, host: str) -> int:
        """Count a new connection of this address. Returns the milliseconds after which it must be closed; then it is
        not counted. 0: it is accepted."""
        if self._of_addresses is None:
            self._of_addresses = _of_addresses(self.store.quotas)
        values = self._of_addresses.get(host) or self.store.quotas.get(QuotaEntity.of({IP: None}), {})
        bound = values.get("connection_creation_rate")
        if bound is None:
            return 0
        now_ms = self._clock.monotonic_ms()
        rate = self._rate(self._connections, host)
        rate.record(1, now_ms)
        throttle_ms = rate.throttle_ms(bound, now_ms)
        if throttle_ms:
            rate.record(-1, now_ms)
        return min(throttle_ms, self._settings().quota_window_size_seconds * 1000)

    def _rate(self, rates: dict[_Key, SampledRate], key: _Key) -> SampledRate:
        rate = rates.get(key)
        if rate is None:
            _make_room(rates)
            settings = self._settings()
            rate = rates[key] = SampledRate(
                samples=settings.quota_window_num, sample_ms=settings.quota_window_size_seconds * 1000
            )
        return rate

    def _quota(self, session: Session, client_id: str, kind: str) -> _Quota | None:
        short = client_id if len(client_id) <= _CHARACTERS_KEPT else sha256(client_id.encode()).hexdigest()
        key = (kind, session.principal, short)
        try:
            return self._found[key]
        except KeyError:
            pass
        if len(self._found) >= _MOST_MEASURED:
            self._found.clear()
        self._found[key] = quota = self._find(kind, session.principal.partition(":")[2], client_id, short)
        return quota

    def _find(self, kind: str, user: str, client_id: str, short: str) -> _Quota | None:
        pair, of_user, of_client = (kind, user, short), (kind, user, ""), (kind, "", short)
        candidates: list[tuple[dict[str, str | None], Measured]] = [
            ({USER: user, CLIENT_ID: client_id}, pair),
            ({USER: user, CLIENT_ID: None}, pair),
            ({USER: user}, of_user),
            ({USER: None, CLIENT_ID: client_id}, pair),
            ({USER: None, CLIENT_ID: None}, pair),
            ({USER: None}, of_user),
            ({CLIENT_ID: client_id}, of_client),
            ({CLIENT_ID: None}, of_client),
        ]
        for parts, measured in candidates:
            if CLIENT_ID in parts and not client_id:
                continue  # who gives no client id has none that a quota could be for
            bound = self.store.quotas.get(QuotaEntity.of(parts), {}).get(_KEYS[kind])
            if bound is not None:
                return _Quota(bound, measured)
        return None


def _of_addresses(quotas: Mapping[QuotaEntity, Mapping[str, float]]) -> dict[str, Mapping[str, float]]:
    named = ((dict(entity.parts).get(IP), values) for entity, values in quotas.items())
    return {one_text_of(_ADDRESSES.get(name, name)): values for name, values in named if name is not None}


def _make_room(measured: dict[_Key, _Measurement]) -> None:
    """Forget the half that was silent for the longest if too many are measured: a client that uses many names must not
    fill the memory."""
    if len(measured) < _MOST_MEASURED:
        return
    by_silence = sorted(measured, key=lambda key: measured[key].last_ms)
    for key in by_silence[: len(by_silence) // 2]:
        del measured[key]


@dataclass(slots=True, eq=False)
class MutationQuota:
    """One request's use of its client's quota of topic changes."""

    bucket: TokenBucket | None
    bound: float
    clock: Clock
    strict: bool
    throttle_ms: int = 0
    """The throttle time for the answer; grows with `record`."""

    def record(self, partitions: int) -> None:
        """Count partitions to be made or deleted. Raises `MutationQuotaExceededError` where the quota is strict
        and was used up before; the last ones before that may go over it."""
        if self.bucket is None:
            return
        now_ms = self.clock.monotonic_ms()
        if self.strict:
            self.throttle_ms = self.bucket.throttle_ms(self.bound, now_ms)
            if self.throttle_ms:
                raise MutationQuotaExceededError(self.throttle_ms)
            self.bucket.take(partitions, self.bound, now_ms)
            return
        self.bucket.take(partitions, self.bound, now_ms)
        self.throttle_ms = self.bucket.throttle_ms(self.bound, now_ms)
