"""Sink `webhook`: sends an HTTP request for each record that a rule selects, such as an alert.

    [sink.late-carriers]
    kind = "webhook"
    url = "https://example.org/alerts"
    topics = ["carrier-delays"]
    when = "mean_delay > 15 and flights >= 10"
    quiet_ms = 1800000
    dead_letter_topic = "late-carriers-failed"

At least once: a request whose response was lost, or whose offset was not committed, is sent again with the same
`Idempotency-Key` (TOPIC-PARTITION-OFFSET). A receiver that remembers these keys acts once.

After a temporary failure (no connection, no response, 408, 425, 429, 5xx) a request is repeated up to `attempts` times,
after the time that Retry-After asks for. If it still fails, or if the receiver refuses it, the record becomes a dead
letter; without a dead letter topic, the connector fails. After a request, no other one is sent for the same key for
`quiet_ms` (by the records' timestamps). This is kept in memory, so the first request after a start may come early.
"""

from __future__ import annotations

import hashlib
import hmac
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from suiro.clock import sleep_s
from suiro.connect.connectors import About, SinkBatch, SinkRecord
from suiro.connect.datasets import http_dataset
from suiro.connect.rules import rule
from suiro.connect.values import json_text
from suiro.errors import TransientError
from suiro.foundation.http import ask, is_temporary, retry_after_ms, summary_of
from suiro.foundation.settings import (
    read_settings,
    require_headers,
    require_http,
    require_least,
    require_one_of,
)
from suiro.streams.expressions.expression import ExpressionError
from suiro.telemetry import Dataset

METHODS = ("POST", "PUT", "PATCH")
LONGEST_WAIT_MS = 5_000  # within a batch; for a longer wait the connector restarts, with its own backoff
QUIET_KEYS = 100_000
_OF_A_RECORD = (
    ExpressionError, ArithmeticError, LookupError, ValueError, TypeError, AttributeError, RecursionError
)  # fmt: skip
"""Errors of a rule or of a body that one record can cause."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings:
    url: str
    when: str = "True"
    method: str = "POST"
    headers: dict[str, str] = field(default_factory=dict)
    body: dict[str, str] = field(default_factory=dict)  # texts with {field} of the value; or the whole record
    secret: str | None = None  # signs the body: X-Hub-Signature-256: sha256=...
    attempts: int = 5
    retry_ms: int = 200  # before the second attempt; then twice as long each time
    timeout_ms: int = 10_000
    quiet_ms: int = 0

    def __post_init__(self) -> None:
        require_http(self.url)
        require_one_of("method", self.method, METHODS)
        require_headers(self.headers)
        require_least(self, attempts=1, retry_ms=0, timeout_ms=1, quiet_ms=0)


class WebhookSink:
    DEFAULTS: Mapping[str, Any] = {"max_records": 100}  # so many may be sent again after a crash

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(WebhookSettings, settings)
        self._rule = rule("when", self._settings.when)
        self._about = about
        # For logs and dead letters: the path is often a secret.
        self._receiver = http_dataset(self._settings.url).namespace
        self._http: httpx.Client | None = None
        self._asked_ms: OrderedDict[bytes | None, int] = OrderedDict()

    def datasets(self) -> Sequence[Dataset]:
        return [Dataset(namespace=self._receiver, name="/")]

    def open(self) -> None:
        self._http = httpx.Client(timeout=self._settings.timeout_ms / 1_000)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def put(self, batch: SinkBatch) -> None:
        for record in batch.records:
            try:
                wanted = self._rule(record.value, record.key, record.timestamp_ms) and not self._quiet(record)
                content = self._content(record) if wanted else b""
            except _OF_A_RECORD as error:
                batch.reject(record, f"{type(error).__name__}: {error}")
                continue
            if wanted and (refusal := self._send(record, content)):
                batch.reject(record, refusal)
            elif wanted:
                self._asked(record)

    def _quiet(self, record: SinkRecord) -> bool:
        last = self._asked_ms.get(record.raw_key)
        return last is not None and 0 <= record.timestamp_ms - last < self._settings.quiet_ms

    def _asked(self, record: SinkRecord) -> None:
        if self._settings.quiet_ms:
            self._asked_ms[record.raw_key] = record.timestamp_ms
            self._asked_ms.move_to_end(record.raw_key)
            if len(self._asked_ms) > QUIET_KEYS:
                self._asked_ms.popitem(last=False)

    def _content(self, record: SinkRecord) -> bytes:
        said: Any = {
            "connector": self._about.name,
            "topic": record.topic,
            "partition": record.partition,
            "offset": record.offset,
            "timestamp": record.timestamp_ms,
            "key": record.key,
            "value": record.value,
        }
        if self._settings.body:
            fields = record.value if isinstance(record.value, dict) else {"value": record.value}
            said = {name: text.format_map(fields) for name, text in self._settings.body.items()}
        return json_text(said).encode()

    def _send(self, record: SinkRecord, content: bytes) -> str | None:
        """Returns None if the receiver accepts the request, else why it does not."""
        settings = self._settings
        headers = {
            "Content-Type": "application/json",
            "Idempotency-Key": f"{record.topic}-{record.partition}-{record.offset}",
            **settings.headers,
        }
        if settings.secret:
            digest = hmac.new(settings.secret.encode(), content, hashlib.sha256).hexdigest()
            headers["X-Hub-Signature-256"] = f"sha256={digest}"
        assert self._http is not None
        wait_ms, failure = settings.retry_ms, ""
        for attempt in range(settings.attempts):
            if attempt:
                sleep_s(wait_ms / 1_000)
                wait_ms = min(wait_ms * 2, LONGEST_WAIT_MS)
            try:
                response = ask(
                    self._http,
                    settings.method,
                    settings.url,
                    clock=self._about.clock,
                    max_bytes=None,
                    content=content,
                    headers=headers,
                )
            except (httpx.TransportError, httpx.DecodingError) as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            if response.is_success:
                return None
            failure = summary_of(response)
            if not is_temporary(response):
                return f"{self._receiver} refuses it: {failure}"
            asked_ms = retry_after_ms(response, self._about.clock.wall_ms())
            if asked_ms is not None and asked_ms > LONGEST_WAIT_MS:
                raise TransientError(f"{self._receiver} asks to be left alone for {asked_ms} ms: {failure}")
            wait_ms = max(wait_ms, asked_ms or 0)
        return f"{self._receiver} did not take it in {settings.attempts} attempts; the last: {failure}"
