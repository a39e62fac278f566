"""Traces of records: the header `traceparent` of W3C Trace Context, and spans as requests of OTLP.

A span's id is a hash of what it is about. So a task that runs again writes the same bytes, and its span arrives again
with the same id. The id of a trace that begins here is such a hash, too.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from hashlib import blake2b
from typing import NamedTuple

import suiro
from suiro.errors import ConfigError
from suiro.numerals import number
from suiro.telemetry.otlp import Exporter, add_attributes, exporter_to

TRACEPARENT = "traceparent"
REQUESTS_MAX = 50
"""Export requests that wait for the endpoint."""
SPANS_PER_REQUEST = 2_000
"""So many, with the longest names, are half of what an event may have (`sending.EVENT_BYTES_MAX`)."""
_FORM = re.compile(rb"(?!ff)[0-9a-f]{2}-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})")
_LENGTH = 55
_CONSUMER = 5
_RATIOS = {
    "always_on": 1.0,
    "parentbased_always_on": 1.0,
    "parentbased_always_off": 0.0,
    "traceidratio": None,
    "parentbased_traceidratio": None,
}


class Parent(NamedTuple):
    trace_id: str
    span_id: str
    flags: str

    @property
    def is_sampled(self) -> bool:
        return bool(int(self.flags, 16) & 1)


def parent_of(value: bytes | None) -> Parent | None:
    """None where it is not a traceparent. A later version than 00 may have more behind it."""
    if value is None or len(value) < _LENGTH:
        return None
    found = _FORM.match(value)
    if found is None or (len(value) > _LENGTH and (value[:2] == b"00" or value[_LENGTH : _LENGTH + 1] != b"-")):
        return None
    return Parent(*(part.decode() for part in found.groups()))


def span_id(*facts: object) -> str:
    return _hash(8, facts)


def trace_id(*facts: object) -> str:
    return _hash(16, facts)


def _hash(size: int, facts: Iterable[object]) -> str:
    text = "\0".join(map(str, facts)).encode("utf-8", "backslashreplace")
    return blake2b(text, digest_size=size).hexdigest()


@dataclass(frozen=True, slots=True, kw_only=True)
class Tracing:
    """The part of `Traces` that a task needs. `ratio`: of records without a traceparent, the part whose trace begins
    here."""

    application_id: str
    ratio: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Span:
    """A record that was taken from a topic, or is written to one. `events`: names and times of what happened meanwhile.
    `kind`: by default OTLP's CONSUMER."""

    trace_id: str
    span_id: str
    parent_id: str
    name: str
    start_ns: int
    end_ns: int
    attributes: Mapping[str, str | int] = field(default_factory=dict)
    events: tuple[tuple[str, int], ...] = ()
    kind: int = _CONSUMER

    def ended(self, at_ns: int, records: int) -> Span:
        """With its end, and the number of records that name it."""
        attributes = {**self.attributes, "messaging.batch.message_count": records}
        return replace(self, end_ns=max(at_ns, self.start_ns), attributes=attributes)


class Traces:
    """Where spans go. `ratio`: of records without a traceparent, the part whose trace begins here."""

    def __init__(self, exporter: Exporter, ratio: float) -> None:
        self.ratio = ratio
        self._attributes = exporter.attributes
        self.sender = exporter.sender("OTLP traces", queue_max=REQUESTS_MAX)

    def begins(self, trace: str) -> bool:
        """Whether the sampler chooses a trace that would begin here: by the last bits of its id, as OpenTelemetry's
        samplers do."""
        return int(trace[-14:], 16) < self.ratio * (1 << 56)

    def of(self, application_id: str) -> Tracing:
        return Tracing(application_id=application_id, ratio=self.ratio)

    def export(self, spans: Sequence[Span]) -> None:
        """Returns at once."""
        for start in range(0, len(spans), SPANS_PER_REQUEST):
            self.sender.put(partial(encode_spans, spans[start : start + SPANS_PER_REQUEST], self._attributes))

    def close(self) -> None:
        self.sender.close()


def traces_to(where: str | None, service: str, environment: Mapping[str, str] | None = None) -> Traces | None:
    """`where`: as `exporter_to` has it; the sampler is that of OTEL_TRACES_SAMPLER. Raises `ConfigError`."""
    given = os.environ if environment is None else environment
    sampler = given.get("OTEL_TRACES_SAMPLER") or "parentbased_always_off"
    if sampler == "always_off":
        return None
    exporter = exporter_to(where, "traces", service, given)
    if exporter is None:
        return None
    if sampler not in _RATIOS:
        raise ConfigError(f"OTEL_TRACES_SAMPLER={sampler[:40]}: expected always_off or one of {', '.join(_RATIOS)}")
    ratio = _RATIOS[sampler]
    if ratio is None:
        text = given.get("OTEL_TRACES_SAMPLER_ARG", "1")
        try:
            ratio = number(text)
        except ValueError:
            ratio = -1.0
        if not 0 <= ratio <= 1:
            raise ConfigError(f"OTEL_TRACES_SAMPLER_ARG={text[:40]}: expected a number from 0 to 1")
    return Traces(exporter, ratio)


def encode_spans(spans: Sequence[Span], attributes: Mapping[str, str]) -> bytes:
    from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest

    request = ExportTraceServiceRequest()
    resource = request.resource_spans.add()
    add_attributes(resource.resource, attributes)
    scope = resource.scope_spans.add()
    scope.scope.name, scope.scope.version = "suiro", suiro.__version__
    for span in spans:
        made = scope.spans.add()
        made.trace_id, made.span_id = bytes.fromhex(span.trace_id), bytes.fromhex(span.span_id)
        made.parent_span_id = bytes.fromhex(span.parent_id)
        made.name = span.name
        made.kind = span.kind
        made.start_time_unix_nano, made.end_time_unix_nano = span.start_ns, span.end_ns
        add_attributes(made, span.attributes)
        for name, at_ns in span.events:
            event = made.events.add()
            event.name, event.time_unix_nano = name, at_ns
    encoded: bytes = request.SerializeToString()
    return encoded
