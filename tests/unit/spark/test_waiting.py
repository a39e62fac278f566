"""Sources wait for a log that is away, where that makes sense, and nobody waits for what time does not mend."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, ClassVar

import pytest

from suiro.clock import ManualClock
from suiro.errors import (
    BrokenConnectionError,
    DeadlineExceededError,
    HostNotFoundError,
    RefusedError,
    UnknownTopicError,
)
from suiro.spark import connections
from suiro.spark.options import SinkOptions, SourceOptions
from suiro.spark.source import StreamReader
from suiro.spark.waiting import TOLD_EVERY_MS, RetryingClient, Waiting

GONE = DeadlineExceededError("could not list offsets within 60000 ms")


class Flaky:
    """Answers after so many failures."""

    def __init__(self, clock: ManualClock, failures: Sequence[Exception], costs_ms: int = 60_000) -> None:
        self._clock, self._costs_ms = clock, costs_ms
        self._failures: Iterator[Exception] = iter(failures)

    def metadata(self, topics: Sequence[str] | None = None) -> Mapping[str, Any]:
        failure = next(self._failures, None)
        if failure is None:
            return {"t": "there"}
        self._clock.advance(self._costs_ms)
        raise failure

    def list_offsets(self, wanted: Any, *, read_committed: bool = False) -> Any:
        return self.metadata()

    def fetch(self, offsets: Any, **limits: Any) -> Any:
        return self.metadata()


@pytest.mark.parametrize("call", ["metadata", "list_offsets", "fetch"])
def test_a_source_waits(call: str, caplog: pytest.LogCaptureFixture) -> None:
    clock = ManualClock()
    client = RetryingClient(Flaky(clock, [GONE, HostNotFoundError("h does not resolve")] * 60), Waiting(clock=clock))
    arguments = {"metadata": (["t"],), "list_offsets": ({("t", 0): -1},), "fetch": ({("t", 0): 5},)}
    assert getattr(client, call)(*arguments[call]) == {"t": "there"}
    assert clock.monotonic_ms() >= 120 * 60_000
    told = [record.getMessage() for record in caplog.records]
    assert len(told) <= 120 * 60_000 // TOLD_EVERY_MS + 2
    assert "waiting for the log, for 60 s now" in told[0]


def test_failures_that_come_at_once_are_not_asked_for_without_a_pause(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = ManualClock()
    failures = [BrokenConnectionError("cannot connect to h:1")] * 1_000
    RetryingClient(Flaky(clock, failures, costs_ms=0), Waiting(clock=clock)).metadata(["t"])
    assert clock.monotonic_ms() > 900_000
    assert len(caplog.records) <= 20


@pytest.mark.parametrize(
    "error",
    [RefusedError("no permission", "TOPIC_AUTHORIZATION_FAILED"), UnknownTopicError("gone", "UNKNOWN_TOPIC")],
)
def test_what_time_does_not_mend_is_raised_at_once(error: Exception) -> None:
    clock = ManualClock()
    client = RetryingClient(Flaky(clock, [GONE, error]), Waiting(clock=clock))
    with pytest.raises(type(error)):
        client.metadata(["t"])
    assert clock.monotonic_ms() < 130_000


def test_a_wrong_address_is_told_at_the_start() -> None:
    """Until it has answered once it is rather the address that is wrong."""
    clock = ManualClock()
    client = RetryingClient(Flaky(clock, [GONE]), Waiting(clock=clock), waits_at_first=False)
    with pytest.raises(DeadlineExceededError):
        client.metadata(["t"])
    assert client.metadata(["t"]) == {"t": "there"}
    client = RetryingClient(Flaky(clock, []), Waiting(clock=clock), waits_at_first=False)
    client.metadata(["t"])
    client._client = Flaky(clock, [GONE] * 3)
    assert client.metadata(["t"]) == {"t": "there"}


def test_a_stream_that_starts_where_nobody_listens_says_so() -> None:
    options = {
        "kafka.bootstrap.servers": "127.0.0.1:1",
        "subscribe": "t",
        "kafka.socket.connection.setup.timeout.ms": "50",
    }
    with pytest.raises(DeadlineExceededError, match=r"bootstrap server.*is a broker running there"):
        StreamReader(SourceOptions.parse(options)).initialOffset()


def test_limits_are_those_of_kafkas_names() -> None:
    source = {"kafka.bootstrap.servers": "h:1", "subscribe": "t"}
    sink = {"kafka.bootstrap.servers": "h:1"}
    assert SourceOptions.parse(source).waiting_limit_ms is None
    assert SinkOptions.parse(sink).waiting_limit_ms is None
    both = {"kafka.default.api.timeout.ms": "7000", "kafka.delivery.timeout.ms": "9000"}
    assert SourceOptions.parse(source | both).waiting_limit_ms == 7_000
    assert SinkOptions.parse(sink | both).waiting_limit_ms == 9_000


def test_partitions_added_to_a_sink_topic_are_used_within_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = ManualClock()

    class Growing:
        partitions: ClassVar = [0]
        is_abandoned = False

        def __init__(self, *arguments: Any, **settings: Any) -> None: ...

        def metadata(self, topics: Sequence[str] | None = None) -> Mapping[str, Any]:
            return {"growing": Growing}

        def close(self) -> None: ...

    monkeypatch.setattr(connections, "Client", Growing)

    options = SinkOptions.parse({"kafka.bootstrap.servers": "h:1"})
    count = connections.partition_counter(options, waiting=Waiting(clock=clock), clock=clock)
    assert count("growing") == 1
    Growing.partitions = [0, 1, 2]
    assert count("growing") == 1, "asked for each record"
    clock.advance(connections.PARTITION_COUNT_MAX_AGE_MS)
    assert count("growing") == 3
    with pytest.raises(UnknownTopicError, match="'nowhere' does not exist"):
        count("nowhere")
