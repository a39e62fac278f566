"""Sink `search`: each record is a document of an OpenSearch or Elasticsearch index, by the bulk API.

    [sink.airports-search]
    kind = "search"
    url = "https://127.0.0.1:9200"
    index = "airports"               # {topic} stands for the topic
    topics = ["airports"]

With `id = "key"` (the default), the record's key is the id of the document, a null value deletes it, and the version is
external: offset + 1. The index refuses an older version (409), so records that are sent again after a crash, or by a
second process, change nothing: the documents end up as the topic says. This requires that all records of a key are in
one partition, as Kafka's producers ensure, and one topic per index. With `id = "offset"`, each record is a document of
its own, TOPIC-PARTITION-OFFSET. Offsets are committed after each batch.

Items for which the index is too busy (429), or at which it fails (5xx), are sent again. Items that it refuses (the
mapping does not fit) are rejected. A request that is too large (413) is halved, down to one document, which is then
rejected. So is a document at which the index has failed (500) for ten minutes while it accepted others. If the index
does not exist, is closed, or may not be written to, the documents are not at fault: the connector fails, and continues
after a restart once the cause is removed.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import httpx

from suiro.clock import sleep_s
from suiro.connect.connectors import About, SinkBatch, SinkRecord
from suiro.connect.datasets import http_dataset
from suiro.connect.values import plain_json
from suiro.errors import TransientError, UsageError
from suiro.foundation.http import ask, is_temporary, retry_after_ms, summary_of
from suiro.foundation.nesting import parse_json
from suiro.foundation.settings import (
    SettingError,
    read_settings,
    require_headers,
    require_http,
    require_least,
    require_one_of,
)
from suiro.telemetry import Dataset

LONGEST_WAIT_MS = 5_000
FAILED_FOR_MS = 600_000
ANSWER_BYTES = 64 * 1024 * 1024  # decompressed; a response has some hundred bytes for each document
ID_BYTES = 512
_BUSY = 429
_FAILED = 500  # and above: a failure of the index, not of the document
_OLDER = 409
_ABSENT = 404
_OF_THE_INDEX = (401, 403, _ABSENT)
# With the status 400. The last one: the cluster has no room for the shards of a new index.
_ERRORS_OF_THE_INDEX = (
    "index_closed_exception",
    "invalid_index_name_exception",
    "routing_missing_exception",  # documents are sent without one
    "validation_exception",
)
# Reasons of an illegal_argument_exception, which may also concern a document.
_REASONS_OF_THE_INDEX = (
    "no write index is defined for alias",
    "only write ops with an op_type of create are allowed in data streams",
    "pipeline with id [",  # which the index names does not exist
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SearchSettings:
    url: str
    index: str = "{topic}"
    id: str = "key"
    username: str | None = None
    password: str | None = None
    headers: dict[str, str] = field(default_factory=dict)  # such as Authorization = "ApiKey ..."
    attempts: int = 5
    retry_ms: int = 200
    timeout_ms: int = 30_000

    def __post_init__(self) -> None:
        require_http(self.url)
        require_one_of("id", self.id, ("key", "offset"))
        if (self.username is None) != (self.password is None):
            raise SettingError("password", "username and password go together")
        require_headers(self.headers)
        require_least(self, attempts=1, retry_ms=0, timeout_ms=1)


@dataclass(frozen=True, slots=True)
class _Item:
    record: SinkRecord
    lines: bytes
    deletes: bool


class SearchSink:
    DEFAULTS: Mapping[str, Any] = {"max_records": 1_000}

    def __init__(self, settings: Mapping[str, Any], about: About) -> None:
        self._settings = read_settings(SearchSettings, settings)
        self._about = about
        # For logs and the status: the URL may have a password.
        self._server = http_dataset(self._settings.url).namespace
        self._http: httpx.Client | None = None
        # By place, since when the index fails at a document. Kept over restarts, which repeat the batch.
        self._failing_since_ms: dict[str, int] = {}

    def datasets(self) -> Sequence[Dataset]:
        return [Dataset(namespace=self._server, name=self._settings.index)]

    def open(self) -> None:
        settings = self._settings
        login = None if settings.username is None else (settings.username, settings.password or "")
        self._http = httpx.Client(auth=login, headers=settings.headers, timeout=settings.timeout_ms / 1_000)

    def close(self) -> None:
        if self._http is not None:
            self._http.close()
            self._http = None

    def put(self, batch: SinkBatch) -> None:
        items: list[_Item] = []
        for record in batch.records:
            try:
                item = self._item(record)
            except (ValueError, TypeError, RecursionError) as error:
                batch.reject(record, str(error))
                continue
            if item is not None:
                items.append(item)
        self._send_all(batch, items)
        if self._failing_since_ms:  # the others may be of partitions whose batches come later
            for record in batch.records:
                self._failing_since_ms.pop(record.place, None)

    def _item(self, record: SinkRecord) -> _Item | None:
        """Returns None for a null value if each record is a document of its own."""
        deletes = record.value is None
        about: dict[str, Any] = {"_index": self._settings.index.replace("{topic}", record.topic)}
        if self._settings.id == "offset":
            if deletes:
                return None
            about["_id"] = f"{record.topic}-{record.partition}-{record.offset}"
        else:
            if record.key is None:
                raise ValueError('the record has no key; id = "offset" does without')
            key = record.key if isinstance(record.key, str) else json.dumps(record.key, default=plain_json)
            about |= {"_id": key, "version": record.offset + 1, "version_type": "external"}
        if not about["_id"] or len(about["_id"].encode()) > ID_BYTES:
            raise ValueError(f"a document's id has 1 to {ID_BYTES} bytes")
        lines = [json.dumps({"delete" if deletes else "index": about})]
        if not deletes:
            if not isinstance(record.value, dict):
                raise ValueError(f"the value is {type(record.value).__name__}, not an object")
            lines.append(json.dumps(record.value, ensure_ascii=False, default=plain_json))
        return _Item(record, ("\n".join(lines) + "\n").encode(), deletes)

    def _send_all(self, batch: SinkBatch, items: Sequence[_Item]) -> None:
        count, wait_ms, failure = len(items), self._settings.retry_ms, ""
        for attempt in range(self._settings.attempts):
            if not items:
                return
            if attempt:
                sleep_s(wait_ms / 1_000)
                wait_ms = min(wait_ms * 2, LONGEST_WAIT_MS)
            try:
                response = self._post(b"".join(item.lines for item in items))
            except (httpx.TransportError, httpx.DecodingError) as error:
                failure = f"{type(error).__name__}: {error}"
                continue
            if response.status_code == 413:
                half = len(items) // 2
                if not half:
                    batch.reject(items[0].record, f"no request may be so large: {summary_of(response)}")
                    return
                self._send_all(batch, items[:half])
                self._send_all(batch, items[half:])
                return
            if response.is_success:
                items, failure = self._sorted(batch, items, response)
            elif is_temporary(response):
                failure = summary_of(response)
                wait_ms = max(wait_ms, min(retry_after_ms(response, self._about.clock.wall_ms()) or 0, LONGEST_WAIT_MS))
            else:
                raise UsageError(f"{self._about.name}: {self._server} refuses the request: {summary_of(response)}")
        if len(items) < count:
            items = self._without_poison(batch, items)
        if items:
            raise TransientError(
                f"{self._about.name}: {self._server} did not take {len(items)} records in "
                f"{self._settings.attempts} attempts; the last failure: {failure}"
            )

    def _without_poison(self, batch: SinkBatch, items: Sequence[_Item]) -> list[_Item]:
        """Rejects the items at which the index has failed for too long, and returns the others. Called if the index
        accepted other items of the batch."""
        now_ms = self._about.clock.monotonic_ms()
        left: list[_Item] = []
        for item in items:
            since_ms = self._failing_since_ms.get(item.record.place, now_ms)
            if now_ms - since_ms < FAILED_FOR_MS:
                left.append(item)
            else:
                minutes = (now_ms - since_ms) // 60_000
                batch.reject(item.record, f"the index fails at it, for {minutes} minutes, and takes others")
        return left

    def _post(self, content: bytes) -> httpx.Response:
        assert self._http is not None
        return ask(
            self._http,
            "POST",
            f"{self._settings.url.rstrip('/')}/_bulk",
            clock=self._about.clock,
            max_bytes=ANSWER_BYTES,
            content=content,
            headers={"Content-Type": "application/x-ndjson"},
        )

    def _sorted(self, batch: SinkBatch, items: Sequence[_Item], response: httpx.Response) -> tuple[list[_Item], str]:
        """Returns the items to send again, and why. Rejects the items that the index refuses."""
        try:
            answers = [one for answer in parse_json(response.content)["items"] for one in answer.values()]
            statuses = [int(answer["status"]) for answer in answers]
            if len(answers) != len(items):
                raise ValueError(f"{len(answers)} answers to {len(items)} items")
        except (ValueError, LookupError, TypeError, AttributeError, OverflowError) as error:
            raise TransientError(f"{self._server} does not answer as a bulk API does: {error}") from error
        again: list[_Item] = []
        failure = ""
        for item, answer, status in zip(items, answers, statuses, strict=True):
            if 200 <= status < 300 or status == _OLDER or (status == _ABSENT and item.deletes):
                continue
            if status == _BUSY or status >= _FAILED:
                again.append(item)
                failure = f"{status}: {answer.get('error')}"
                if status == _FAILED:
                    self._failing_since_ms.setdefault(item.record.place, self._about.clock.monotonic_ms())
                else:  # a shard is away or full
                    self._failing_since_ms.pop(item.record.place, None)
                continue
            fault = answer.get("error")
            if status in _OF_THE_INDEX or _is_of_the_index(fault):
                raise UsageError(
                    f"{self._about.name}: {self._server} takes no document for the index of {item.record.place}: "
                    f"{status}: {json.dumps(fault)}. Create or open it, give its alias a write index, or allow the "
                    "user to write to it"
                )
            batch.reject(item.record, f"the index refuses it: {status}: {json.dumps(fault)}")
        return again, failure


def _is_of_the_index(fault: Any) -> bool:
    """Whether the error concerns the index, so that it would refuse any document."""
    if not isinstance(fault, dict):
        return False
    reason = str(fault.get("reason"))
    return fault.get("type") in _ERRORS_OF_THE_INDEX or reason.startswith(_REASONS_OF_THE_INDEX)
