"""The header `traceparent` as W3C Trace Context has it, samplers, and spans by OTLP."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

from suiro.errors import ConfigError
from suiro.telemetry import Parent, Span, parent_of, span_id, traces_to
from suiro.telemetry.tracing import encode_spans
from tests.support.http_peer import Answer, HttpPeer

TRACE, SPAN = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.mark.parametrize("flags", ["00", "01", "02", "03", "ff"])
def test_a_valid_header(flags: str) -> None:
    parent = parent_of(f"00-{TRACE}-{SPAN}-{flags}".encode())
    assert parent == Parent(TRACE, SPAN, flags)
    assert parent.is_sampled == (flags in ("01", "03", "ff"))
    assert parent_of(f"cc-{TRACE}-{SPAN}-{flags}-what-the-future-brings".encode()) == parent


@pytest.mark.parametrize(
    "text",
    [
        f"ff-{TRACE}-{SPAN}-01",
        f"00-{'0' * 32}-{SPAN}-01",
        f"00-{TRACE}-{'0' * 16}-01",
        f"00-{TRACE.upper()}-{SPAN}-01",
        f"00-{TRACE}-{SPAN}-01-more",
        f"00-{TRACE}-{SPAN}-01.",
        f"cc-{TRACE}-{SPAN}-01.what",
        f"00-{TRACE}-{SPAN}-0",
        f"00_{TRACE}-{SPAN}-01",
        f" 00-{TRACE}-{SPAN}-01",
        "",
    ],
)
def test_an_invalid_header(text: str) -> None:
    assert parent_of(text.encode()) is None
    assert parent_of(None) is None


@given(st.binary(max_size=80))
def test_any_bytes(value: bytes) -> None:
    parent_of(value)


@pytest.mark.parametrize(
    ("sampler", "argument", "ratio"),
    [
        (None, None, 0.0),
        ("parentbased_always_off", None, 0.0),
        ("parentbased_always_on", None, 1.0),
        ("parentbased_traceidratio", "0.25", 0.25),
        ("traceidratio", None, 1.0),
    ],
)
def test_samplers(sampler: str | None, argument: str | None, ratio: float) -> None:
    given = {"OTEL_TRACES_SAMPLER": sampler, "OTEL_TRACES_SAMPLER_ARG": argument}
    traces = traces_to("http://127.0.0.1:9", "s", {name: value for name, value in given.items() if value})
    assert traces is not None
    assert traces.ratio == ratio


def test_no_traces_and_wrong_samplers() -> None:
    assert traces_to(None, "s", {}) is None
    assert traces_to("http://127.0.0.1:9", "s", {"OTEL_TRACES_SAMPLER": "always_off"}) is None
    for wrong in (
        {"OTEL_TRACES_SAMPLER": "xray"},
        {"OTEL_TRACES_SAMPLER": "traceidratio", "OTEL_TRACES_SAMPLER_ARG": "2"},
    ):
        with pytest.raises(ConfigError, match="OTEL_TRACES_SAMPLER"):
            traces_to("http://127.0.0.1:9", "s", wrong)


def test_spans_reach_the_endpoint() -> None:
    span = Span(
        trace_id=TRACE,
        span_id=span_id("a", 1),
        parent_id=SPAN,
        name="process t",
        start_ns=5,
        end_ns=9,
        attributes={"messaging.kafka.offset": 7, "messaging.system": "kafka"},
        events=(("processed", 6),),
    )
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        traces = traces_to(peer.url, "s", {})
        assert traces is not None
        traces.export([])
        traces.export([span])
        traces.close()
        (asked,) = peer.asked
    assert asked.path == "/v1/traces"
    request = ExportTraceServiceRequest.FromString(asked.body)
    (found,) = request.resource_spans[0].scope_spans[0].spans
    assert (found.trace_id.hex(), found.span_id.hex(), found.parent_span_id.hex()) == (
        TRACE,
        span.span_id,
        SPAN,
    )
    assert (found.start_time_unix_nano, found.end_time_unix_nano, found.kind) == (5, 9, 5)
    assert [(one.name, one.time_unix_nano) for one in found.events] == [("processed", 6)]
    assert {one.key for one in found.attributes} == {"messaging.kafka.offset", "messaging.system"}
    root = Span(trace_id=TRACE, span_id=SPAN, parent_id="", name="x", start_ns=1, end_ns=1)
    assert (
        ExportTraceServiceRequest.FromString(encode_spans([root], {}))
        .resource_spans[0]
        .scope_spans[0]
        .spans[0]
        .parent_span_id
        == b""
    )


def test_spans_of_more_than_a_request_may_have_are_sent_in_several() -> None:
    """As those of a micro-batch of many tasks. None of them arrived."""
    one = Span(trace_id=TRACE, span_id=SPAN, parent_id=SPAN, name="t" * 249, start_ns=1, end_ns=1)
    spans = [replace(one, span_id=f"{number:016x}") for number in range(1, 14_001)]
    with HttpPeer(lambda asked: Answer(200, b"")) as peer:
        traces = traces_to(peer.url, "s", {})
        assert traces is not None
        traces.export(spans)
        traces.close()
        requests = [ExportTraceServiceRequest.FromString(asked.body) for asked in peer.asked]
    arrived = [span.span_id.hex() for each in requests for span in each.resource_spans[0].scope_spans[0].spans]
    assert arrived == [span.span_id for span in spans]
