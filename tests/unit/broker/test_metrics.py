"""Counters, histograms and what a snapshot of them says."""

from __future__ import annotations

import random

import pytest

from suiro.broker.metrics.metrics import QUANTILES, Histogram, HistogramView, Metrics

TIMES = "kafka_network_requestmetrics_totaltimems"
BYTES_IN = "kafka_server_brokertopicmetrics_bytesin_total"


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float | HistogramView]:
    return {labels: value for family, shown in metrics.snapshot() if family.name == name for labels, value in shown}


@pytest.mark.parametrize("spread", [0.5, 2.0, 6.0])
def test_quantiles_are_near_the_truth(spread: float) -> None:
    chance = random.Random(7)
    values = sorted(int(chance.lognormvariate(6, spread)) for _ in range(10_000))
    histogram = Histogram(1000.0)
    for value in values:
        histogram.record(value)
    view = histogram.view()
    assert (view.count, view.total) == (len(values), sum(values) / 1000)
    for quantile, found in zip(QUANTILES, view.quantiles, strict=True):
        assert found * 1000 == pytest.approx(values[round(quantile * len(values)) - 1], rel=0.035, abs=0.5)


def test_any_number_has_a_bucket() -> None:
    histogram = Histogram()
    for value in (0, 1, 2**41, 2**63):
        histogram.record(value)
    assert histogram.view().count == 4


def test_quantiles_forget_after_two_windows_and_counts_never() -> None:
    metrics = Metrics()
    metrics.histogram(TIMES, request="Fetch").record(8_000)
    for expected in (8.0, 8.0, 0.0):
        view = samples(metrics, TIMES)[("Fetch",)]
        assert isinstance(view, HistogramView)
        assert view.quantiles[0] == pytest.approx(expected, rel=0.03)
        assert view.count == 1
        metrics.rotate()


def test_a_metric_that_is_not_in_the_list_is_a_mistake() -> None:
    metrics = Metrics()
    with pytest.raises(KeyError):
        metrics.counter("kafka_made_up_total")
    with pytest.raises(ValueError):
        metrics.counter(TIMES, request="Fetch")
    with pytest.raises(ValueError):
        metrics.histogram(TIMES, topic="t")


def test_the_same_labels_are_the_same_counter() -> None:
    metrics = Metrics()
    name = "kafka_server_socket_server_metrics_connection_creation_total"
    metrics.counter(name, listener="A").add()
    metrics.counter(name, listener="A").add(2)
    metrics.counter(name, listener="B")
    assert samples(metrics, name) == {("A",): 3, ("B",): 0}


def test_a_deleted_topic_stays_in_the_sum() -> None:
    metrics = Metrics()
    metrics.topic("a").bytes_in += 5
    metrics.topic("b").bytes_in += 7
    assert samples(metrics, BYTES_IN) == {("a",): 5, ("b",): 7, ("",): 12}
    metrics.forget_topic("a")
    assert samples(metrics, BYTES_IN) == {("b",): 7, ("",): 12}
