"""The time of requests by stage and API, and the number that wait in purgatory.

    read -> (queue) -> handler -> (purgatory) -> answer -> (queue) -> sent

A request that waits is the only one of its connection that is not answered, so purgatory has a limit too:
`max.connections`.
"""

from __future__ import annotations

from suiro.broker.metrics.metrics import Counter, Metrics, Samples
from suiro.clock import stopwatch_ns
from suiro.protocol.messages import ErrorCode

_PREFIX = "kafka_network_requestmetrics_"
_COUNTED_AT_ONCE = 256
_PURGATORIES = {"JoinGroup": "Rebalance", "SyncGroup": "Rebalance"}
"""Kafka's names of the purgatories of these requests; those of the others have the API's name."""


class RequestMetrics:
    """The metrics of one API."""

    def __init__(self, metrics: Metrics, api: str) -> None:
        self.name = name = "".join(part.capitalize() for part in api.split("_"))
        self.waiting = 0
        """Requests whose handler is done and whose answer is still to come."""
        self._metrics = metrics
        self._queue = metrics.histogram(_PREFIX + "requestqueuetimems", request=name)
        self._local = metrics.histogram(_PREFIX + "localtimems", request=name)
        self._remote = metrics.histogram(_PREFIX + "remotetimems", request=name)
        self._throttle = metrics.histogram(_PREFIX + "throttletimems", request=name)
        self._response_queue = metrics.histogram(_PREFIX + "responsequeuetimems", request=name)
        self._send = metrics.histogram(_PREFIX + "responsesendtimems", request=name)
        self._total = metrics.histogram(_PREFIX + "totaltimems", request=name)
        self._size = metrics.histogram(_PREFIX + "requestbytes", request=name)
        self._times: list[tuple[int, int, int, int, int, int]] = []
        """The times of answers that are not counted yet: to count many at once takes half the time."""
        metrics.before_looks(self._count_times)
        self._by_version: dict[int, Counter] = {}
        self._by_error: dict[ErrorCode, Counter] = {}
        self._without_error = metrics.counter(_PREFIX + "errors_total", request=name, error="NONE")

    def count(self, version: int, size: int) -> None:
        """Count a request."""
        counter = self._by_version.get(version)
        if counter is None:
            counter = self._by_version[version] = self._metrics.counter(
                _PREFIX + "requests_total", request=self.name, version=str(version)
            )
        counter.value += 1
        self._size.record(size)

    def answered(self, code: ErrorCode) -> None:
        """Count an answer by its error code."""
        if code is ErrorCode.none:
            self._without_error.value += 1
            return
        counter = self._by_error.get(code)
        if counter is None:
            counter = self._by_error[code] = self._metrics.counter(
                _PREFIX + "errors_total", request=self.name, error=code.name.upper()
            )
        counter.value += 1

    def sent(self, arrived_ns: int, began_ns: int, ended_ns: int, answered_ns: int, throttle_ms: int) -> None:
        """The peer has the answer; each time is the end of a stage, by `stopwatch_ns`."""
        times = self._times
        times.append((arrived_ns, began_ns, ended_ns, answered_ns, stopwatch_ns(), throttle_ms))
        if len(times) >= _COUNTED_AT_ONCE:
            self._count_times()

    def _count_times(self) -> None:
        times, self._times = self._times, []
        self._queue.record_all([(began - arrived) // 1000 for arrived, began, _, _, _, _ in times])
        self._local.record_all([(ended - began) // 1000 for _, began, ended, _, _, _ in times])
        self._remote.record_all([(answered - ended) // 1000 for _, _, ended, answered, _, _ in times])
        self._send.record_all([(sent - answered) // 1000 for _, _, _, answered, sent, _ in times])
        self._total.record_all([(sent - arrived) // 1000 for arrived, _, _, _, sent, _ in times])
        throttled = [throttle_ms * 1000 for *_, throttle_ms in times if throttle_ms]
        self._throttle.record_all(throttled)
        self._throttle.record_zeros(len(times) - len(throttled))
        self._response_queue.record_zeros(len(times))  # an answer begins to leave in the same moment


class StageMetrics:
    """The metrics of all APIs, and the gauges of the stages."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._apis: dict[str, RequestMetrics] = {}
        self._looked_ns = stopwatch_ns()
        self._looked_busy_ns = 0
        self.busy_ns = 0
        """Time of all handlers together."""
        metrics.gauges("kafka_server_delayedoperationpurgatory_purgatorysize", self._purgatories)
        metrics.gauges("kafka_server_delayedoperationpurgatory_numdelayedoperations", self._purgatories)
        metrics.gauge("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", self._idle)

    def of(self, api: str) -> RequestMetrics:
        """The metrics of an API, created on first use."""
        found = self._apis.get(api)
        if found is None:
            found = self._apis[api] = RequestMetrics(self._metrics, api)
        return found

    def _purgatories(self) -> Samples:
        waiting = {"Produce": 0, "Fetch": 0, "Rebalance": 0}
        for api in self._apis.values():
            name = _PURGATORIES.get(api.name, api.name)
            if api.waiting or name in waiting:
                waiting[name] = waiting.get(name, 0) + api.waiting
        return [((name,), count) for name, count in waiting.items()]

    def _idle(self) -> float:
        """The share of time in which no handler ran since the last call."""
        now, busy = stopwatch_ns(), self.busy_ns
        passed = max(1, now - self._looked_ns)
        idle = 1 - (busy - self._looked_busy_ns) / passed
        self._looked_ns, self._looked_busy_ns = now, busy
        return max(0.0, idle)
