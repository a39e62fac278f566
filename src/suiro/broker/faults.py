"""Faults on purpose, for the tests of those who use the node: rules say which requests go wrong, and how.

A rule matches an API, and if it says so a topic and a partition that the request names. It is used up after `times`
requests. With the error of a rule, what it matched is not done at all: the other partitions of the same request are
handled as ever, and both go into one answer. Without rules a node has no `Faults`, and pays nothing.
"""

from __future__ import annotations

import dataclasses
import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeAlias, cast

from suiro.broker.apis import APIS
from suiro.broker.exchange import NOTHING, ZEROS, Answer, Exchange, Handler, Later, RawResponse, Response, build
from suiro.errors import UsageError
from suiro.protocol import messages
from suiro.protocol.frame_check import layout
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from suiro.broker.context import BrokerContext

logger = logging.getLogger(__name__)

_TOPIC_FIELDS = ("topic", "name", "topic_name")
_PARTITION_FIELDS = ("partition_index", "index", "partition")
_EMPTY = {**ZEROS, "records": b""}


@dataclasses.dataclass(frozen=True, slots=True)
class Error:
    """Answer with this error; do nothing."""

    code: ErrorCode


@dataclasses.dataclass(frozen=True, slots=True)
class Delay:
    """Handle the request so much later; those behind it on the connection wait, as they do for a slow broker."""

    ms: int


@dataclasses.dataclass(frozen=True, slots=True)
class Drop:
    """Close the connection: before the request is handled, or after, which its client cannot tell apart."""

    handled: bool


@dataclasses.dataclass(frozen=True, slots=True)
class Crash:
    """The node dies as by kill -9: before the request is handled, or after and before the answer is sent."""

    handled: bool


Fault: TypeAlias = Error | Delay | Drop | Crash


@dataclasses.dataclass(slots=True, kw_only=True)
class Rule:
    """One fault and when it happens. `left` None: always."""

    api: str
    fault: Fault
    topic: str | None = None
    partition: int | None = None
    left: int | None = 1

    def __post_init__(self) -> None:
        if self.api not in {api.name for api in APIS.values()}:
            known = ", ".join(sorted(api.name for api in APIS.values()))
            raise UsageError(f"a fault in {self.api!r}: the node has no such API; it has {known}")
        if self.partition is not None and self.topic is None:
            raise UsageError(f"a fault in partition {self.partition} needs the topic too")

    def names(self, topic: str | None, partition: int | None) -> bool:
        return self.topic in (None, topic) and (
            self.partition is None or partition is None or self.partition == partition
        )


class Faults:
    """The rules of one broker, in the order they were added: the first that matches a request is used."""

    def __init__(self, crash: Callable[[], None]) -> None:
        self._crash = crash
        self._rules: list[Rule] = []

    def add(self, rule: Rule) -> None:
        self._rules.append(rule)

    def clear(self) -> None:
        self._rules.clear()

    def around(self, api: str, handler: Handler) -> Handler:
        """The handler with the faults of its API."""
        if not any(rule.api == api for rule in self._rules):
            return handler

        def handle(exchange: Exchange, request: Any) -> Answer:
            rule = self._take(api, exchange.broker, request)
            if rule is None:
                return handler(exchange, request)
            return self._act(rule, handler, exchange, request)

        return handle

    def _take(self, api: str, broker: BrokerContext, request: Any) -> Rule | None:
        named = _named(broker, request)
        for rule in self._rules:
            if rule.api != api:
                continue
            if rule.topic is not None and not any(rule.names(topic, index) for topic, index in named):
                continue
            if rule.left is not None:
                rule.left -= 1
                if rule.left == 0:
                    self._rules.remove(rule)
            return rule
        return None

    def _act(self, rule: Rule, handler: Handler, exchange: Exchange, request: Any) -> Answer:
        match rule.fault:
            case Error(code=code):
                return _refuse(rule, code, handler, exchange, request)
            case Delay(ms=ms):
                later = Later()
                exchange.broker.loop.call_later(ms / 1000, _late, later, handler, exchange, request)
                return later
            case Drop(handled=handled) | Crash(handled=handled):
                answer = handler(exchange, request) if handled else NOTHING
                if isinstance(rule.fault, Crash):
                    self._crash()
                exchange.connection.close()
                return answer if isinstance(answer, Later) else Later()


def _late(later: Later, handler: Handler, exchange: Exchange, request: Any) -> None:
    if not exchange.connection.is_open:
        exchange.connection.let_go_of_request()
        return
    try:
        later.follow(handler(exchange, request))
    except Exception:
        logger.exception("a delayed request failed; closing its connection")
        exchange.connection.close()


def _refuse(rule: Rule, code: ErrorCode, handler: Handler, exchange: Exchange, request: Any) -> Answer:
    """The error for what the rule names. What it does not name is handled, where the answer can take both."""
    refused, rest = _split(exchange.broker, request, rule)
    answer: Response = build(exchange.response_class, _mirror(exchange.response_class, refused, code))
    if rest is None:
        if exchange.api_key == messages.API_KEYS["metadata"]:
            if hasattr(request, "allow_auto_topic_creation"):
                request = dataclasses.replace(request, allow_auto_topic_creation=False)
            answer = _with_error(_message(exchange, handler(exchange, request)), rule, code)
        return answer
    answered = handler(exchange, rest)
    if isinstance(answered, Later) or answered is NOTHING or exchange.api_key == messages.API_KEYS["fetch"]:
        return answer  # a long poll is not waited for: the client asks again for the others
    return cast("Response", _merged(_message(exchange, answered), answer))


def _message(exchange: Exchange, answered: Answer) -> Any:
    if not isinstance(answered, RawResponse):
        return answered
    laid_out = b"".join(piece for piece in answered.pieces if isinstance(piece, bytes))
    message, _ = messages.read_body(exchange.response_class, laid_out)
    return message


def _named(broker: BrokerContext, request: Any) -> set[tuple[str | None, int | None]]:
    """The topics and partitions that a request names."""
    found: set[tuple[str | None, int | None]] = set()
    for topic in _entries(request):
        name = _topic_of(broker, topic)
        found |= {(name, _partition_of(entry)) for entry in _entries(topic)} or {(name, None)}
    return found


def _entries(message: Any) -> list[Any]:
    """The elements of a message's first array: its topics, or a topic's partitions. A name or a number has none."""
    for field in dataclasses.fields(message) if dataclasses.is_dataclass(message) else ():
        value = getattr(message, field.name)
        if isinstance(value, tuple):
            return list(value)
    return []


def _topic_of(broker: BrokerContext, entry: Any) -> str | None:
    if isinstance(entry, str):
        return entry
    for name in _TOPIC_FIELDS:
        value = getattr(entry, name, None)
        if isinstance(value, str):
            return value
    topic = broker.topics.topic_by_id(getattr(entry, "topic_id", None))
    return topic.name if topic is not None else None


def _partition_of(entry: Any) -> int | None:
    if isinstance(entry, int):
        return int(entry)
    if not dataclasses.is_dataclass(entry):
        return None
    return next((int(getattr(entry, name)) for name in _PARTITION_FIELDS if hasattr(entry, name)), None)


def _split(broker: BrokerContext, request: Any, rule: Rule) -> tuple[Any, Any]:
    """The request with what the rule names, and with what it does not (None: there is nothing of the kind)."""
    array = _first_array(type(request))
    if rule.topic is None or array is None or not getattr(request, array):
        return request, None
    refused, rest = [], []
    for topic in getattr(request, array):
        inner = _first_array(type(topic)) if dataclasses.is_dataclass(topic) else None
        if not rule.names(_topic_of(broker, topic), None):
            rest.append(topic)
        elif inner is None or rule.partition is None:
            refused.append(topic)
        else:
            entries = getattr(topic, inner)
            hit = tuple(entry for entry in entries if _partition_of(entry) == rule.partition)
            missed = tuple(entry for entry in entries if _partition_of(entry) != rule.partition)
            refused += [dataclasses.replace(topic, **{inner: hit})] if hit else []
            rest += [dataclasses.replace(topic, **{inner: missed})] if missed else []
    return (
        dataclasses.replace(request, **{array: tuple(refused)}),
        dataclasses.replace(request, **{array: tuple(rest)}) if rest else None,
    )


def _merged(answered: Any, refused: Any) -> Any:
    """Two answers to parts of one request as one: a topic in both gets its partitions from both."""
    array = _first_array(type(answered))
    if array is None:
        return refused
    topics = {_key(topic): topic for topic in getattr(answered, array)}
    for topic in getattr(refused, array):
        known, inner = topics.get(_key(topic)), _first_array(type(topic))
        if known is not None and inner is not None:
            both = (*getattr(known, inner), *getattr(topic, inner))
            topic = dataclasses.replace(known, **{inner: both})
        topics[_key(topic)] = topic
    return dataclasses.replace(answered, **{array: tuple(topics.values())})


def _with_error(answered: Any, rule: Rule, code: ErrorCode) -> Any:
    """Metadata with the error for each topic that the rule names, without partitions, so that clients ask again."""
    topics = tuple(
        dataclasses.replace(topic, error_code=code, partitions=()) if rule.names(topic.name, None) else topic
        for topic in answered.topics
    )
    of_all = {"error_code": code} if rule.topic is None and hasattr(answered, "error_code") else {}
    return dataclasses.replace(answered, topics=topics, **of_all)


def _key(topic: Any) -> Any:
    return getattr(topic, "topic_id", None), *(getattr(topic, name, None) for name in _TOPIC_FIELDS)


def _mirror(response_class: Any, request: Any, code: ErrorCode) -> dict[str, Any]:
    """The fields of a response that gives `code` to all that the request names: arrays stand for arrays, names for
    names."""
    fields: dict[str, Any] = {}
    mirrored = False
    for field in layout(response_class):
        if field.name.endswith("error_code"):
            fields[field.name] = code
        elif field.many and field.nested is not None and not mirrored:
            mirrored = True
            fields[field.name] = [_mirror(field.nested, entry, code) for entry in _entries(request)]
        elif field.many:
            fields[field.name] = ()
        else:
            value = _same_field(field.name, request)
            if value is not None:
                fields[field.name] = value
            elif field.required:
                fields[field.name] = None if field.optional else _EMPTY.get(field.metadata.get("kafka_type", ""), -1)
    return fields


def _same_field(name: str, entry: Any) -> Any:
    """The request's value of the field that the response calls `name`."""
    if not dataclasses.is_dataclass(entry):
        wanted = str if name in _TOPIC_FIELDS else int if name in _PARTITION_FIELDS else None
        return entry if wanted is not None and isinstance(entry, wanted) else None
    for names in (_TOPIC_FIELDS, _PARTITION_FIELDS, (name,)):
        if name in names:
            return next((getattr(entry, other) for other in names if hasattr(entry, other)), None)
    return None


def _first_array(message_class: Any) -> str | None:
    return next((field.name for field in layout(message_class) if field.many), None)
