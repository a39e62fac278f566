"""The counters and histograms of a node. `families.FAMILIES` lists everything that may be measured.

The hot path changes plain integers (`Counter.add`, `Histogram.record`, the fields of `TopicCounts`), in counters that
it holds on to. The numbers are put together when they are requested: `Metrics.snapshot` is quick and runs on the event
loop's thread; any other thread may format it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import TypeAlias

from suiro.broker.metrics.families import FAMILIES, OF_TOPICS, Family, Kind

Samples: TypeAlias = Iterable[tuple[tuple[str, ...], float]]
"""(label values, value) of one family."""

QUANTILES = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of Kafka's histograms."""
_SUB_BITS = 4
_SUB = 1 << _SUB_BITS  # buckets per power of two: a quantile is within 3 % of the truth
_BUCKETS = _SUB * 38  # up to 2**41 microseconds, which is 25 days


@dataclass(frozen=True, slots=True, kw_only=True)
class HistogramView:
    """A histogram's numbers at one moment, in the name's unit."""

    count: int
    total: float
    quantiles: tuple[float, ...]


Sample: TypeAlias = tuple[tuple[str, ...], float | HistogramView]
"""(label values, value)."""
Snapshot: TypeAlias = list[tuple[Family, list[Sample]]]
"""The numbers of each family at one moment."""


class Counter:
    """A number that grows."""

    __slots__ = ("value",)

    def __init__(self) -> None:
        self.value = 0

    def add(self, amount: int = 1) -> None:
        self.value += amount


class Histogram:
    """Integers in buckets that grow with the value. Quantiles are of the last one to two windows (`rotate`)."""

    __slots__ = ("_before", "_counted", "_now", "scale", "total")

    def __init__(self, scale: float = 1.0) -> None:
        self._now = [0] * _BUCKETS
        self._before = [0] * _BUCKETS
        self._counted = 0  # in earlier windows
        self.total = 0
        self.scale = scale

    def record(self, value: int) -> None:
        """Count one value, not negative; times are in microseconds."""
        self.total += value
        self._now[_SMALL[value] if value < _SMALL_END else _bucket(value)] += 1

    def record_all(self, values: Iterable[int]) -> None:
        """The same for many values."""
        now, total = self._now, 0
        for value in values:
            total += value
            now[_SMALL[value] if value < _SMALL_END else _bucket(value)] += 1
        self.total += total

    def record_zeros(self, count: int) -> None:
        self._now[0] += count

    @property
    def count(self) -> int:
        return self._counted + sum(self._now)

    def rotate(self) -> None:
        self._counted = self.count
        self._before, self._now = self._now, [0] * _BUCKETS

    def view(self) -> HistogramView:
        counts = [a + b for a, b in zip(self._now, self._before, strict=True)]
        return HistogramView(
            count=self.count,
            total=self.total / self.scale,
            quantiles=tuple(value / self.scale for value in _quantiles(counts)),
        )


def _bucket(value: int) -> int:
    if value < 2 * _SUB:
        return value
    shift = value.bit_length() - _SUB_BITS - 1
    return min((shift << _SUB_BITS) + (value >> shift), _BUCKETS - 1)


_SMALL_END = 4096
_SMALL = [_bucket(value) for value in range(_SMALL_END)]


def _quantiles(counts: list[int]) -> list[float]:
    whole = sum(counts)
    found: list[float] = []
    seen, bucket = 0, -1
    for quantile in QUANTILES:
        wanted = quantile * whole
        while seen < wanted:
            bucket += 1
            seen += counts[bucket]
        found.append(_middle(bucket) if whole else 0.0)
    return found


def _middle(bucket: int) -> float:
    if bucket < 2 * _SUB:
        return float(bucket)
    shift = (bucket >> _SUB_BITS) - 1
    low = (_SUB + (bucket & (_SUB - 1))) << shift
    return low + ((1 << shift) - 1) / 2


@dataclass(slots=True)
class TopicCounts:
    """The counts of one topic (Kafka's BrokerTopicMetrics). Handlers add to the fields."""

    messages_in: int = 0
    bytes_in: int = 0
    bytes_out: int = 0
    bytes_rejected: int = 0
    produce_requests: int = 0
    fetch_requests: int = 0
    failed_produce_requests: int = 0
    failed_fetch_requests: int = 0
    remote_copy_requests: int = 0
    remote_copy_bytes: int = 0
    remote_copy_errors: int = 0
    remote_fetch_requests: int = 0
    remote_fetch_bytes: int = 0
    remote_fetch_errors: int = 0

    def take_over(self, other: TopicCounts) -> None:
        for name in TopicCounts.__slots__:
            setattr(self, name, getattr(self, name) + getattr(other, name))


class Metrics:
    """All counters of one node. Lives on the event loop's thread."""

    def __init__(self) -> None:
        self._counters: dict[str, dict[tuple[str, ...], Counter]] = {}
        self._histograms: dict[str, dict[tuple[str, ...], Histogram]] = {}
        self._gauges: dict[str, list[Callable[[], Samples]]] = {}
        self._before_looks: list[Callable[[], None]] = []
        self._topics: dict[str, TopicCounts] = {}
        self._all_topics = TopicCounts()  # of topics that were deleted

    def counter(self, name: str, **labels: str) -> Counter:
        """The counter of these label values; made when first asked for, so keep it. Unknown names raise."""
        of_name = self._counters.setdefault(name, {})
        return of_name.setdefault(_label_values(name, "counter", labels), Counter())

    def histogram(self, name: str, **labels: str) -> Histogram:
        """As `counter`."""
        of_name = self._histograms.setdefault(name, {})
        values = _label_values(name, "histogram", labels)
        found = of_name.get(values)
        if found is None:
            found = of_name[values] = Histogram(FAMILIES[name].scale)
        return found

    def gauge(self, name: str, read: Callable[[], float], **labels: str) -> None:
        """A number that is read when the metrics are requested."""
        values = _label_values(name, "gauge", labels)
        self._gauges.setdefault(name, []).append(lambda: ((values, read()),))

    def gauges(self, name: str, read: Callable[[], Samples]) -> None:
        """Numbers whose label values are only known when the metrics are requested: of partitions, of groups."""
        if FAMILIES[name].kind == "histogram":
            raise ValueError(f"{name} is a histogram")
        self._gauges.setdefault(name, []).append(read)

    def before_looks(self, count: Callable[[], None]) -> None:
        """Register a function that counts what is still uncounted. It is called before the numbers are read."""
        self._before_looks.append(count)

    def topic(self, name: str) -> TopicCounts:
        """The counts of one topic."""
        found = self._topics.get(name)
        if found is None:
            found = self._topics[name] = TopicCounts()
        return found

    def forget_topic(self, name: str) -> None:
        """A deleted topic is no longer shown by name; its counts stay in the sums."""
        found = self._topics.pop(name, None)
        if found is not None:
            self._all_topics.take_over(found)

    def rotate(self) -> None:
        """Begin a new window of every histogram's quantiles."""
        for count in self._before_looks:
            count()
        for of_name in self._histograms.values():
            for histogram in of_name.values():
                histogram.rotate()

    def snapshot(self) -> Snapshot:
        """The current numbers of every family that has any."""
        for count in self._before_looks:
            count()
        shown: Snapshot = []
        for family in FAMILIES.values():
            samples: list[Sample] = [
                (values, counter.value) for values, counter in self._counters.get(family.name, {}).items()
            ]
            for values, histogram in self._histograms.get(family.name, {}).items():
                samples.append((values, histogram.view()))
            for read in self._gauges.get(family.name, ()):
                samples.extend(read())
            if family.name in OF_TOPICS:
                samples.extend(self._topic_samples(OF_TOPICS[family.name]))
            if samples:
                shown.append((family, samples))
        return shown

    def _topic_samples(self, field: str) -> Samples:
        whole = getattr(self._all_topics, field)
        for topic, counts in self._topics.items():
            value = getattr(counts, field)
            whole += value
            yield (topic,), value
        yield ("",), whole


def _label_values(name: str, kind: Kind, labels: dict[str, str]) -> tuple[str, ...]:
    family = FAMILIES[name]
    if family.kind != kind or set(labels) != set(family.labels):
        raise ValueError(f"{name} is a {family.kind} with the labels {family.labels}, not a {kind} with {labels}")
    return tuple(labels[label] for label in family.labels)
