"""IncrementalAlterConfigs: sets or resets single settings of a resource, or adds items to lists and removes them."""

from __future__ import annotations

from collections.abc import Mapping
from enum import IntEnum
from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.context import BrokerContext
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.config_changes import (
    alter_settings,
    answer_each,
    check_may,
    check_node_id,
    kind_of,
    list_default,
    refuse_nulls,
)
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation
from suiro.broker.settings import loggers
from suiro.broker.settings.configs import ResourceKind
from suiro.errors import ConfigError
from suiro.protocol.fields import MAX_STRING_BYTES
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.incremental_alter_configs.v1.request import IncrementalAlterConfigsRequest


class _Op(IntEnum):
    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


def handle(exchange: Exchange, request: IncrementalAlterConfigsRequest) -> Answer:
    broker = exchange.broker

    def alter(resource: Any) -> None:
        changes = resource.configs
        refuse_nulls(c.name for c in changes if c.config_operation != _Op.DELETE and c.value is None)
        kind = kind_of(resource.resource_type)
        for change in changes:
            if change.config_operation not in tuple(_Op):
                raise RefusedError(ErrorCode.invalid_request, f"Unknown operations type {change.config_operation}")
        check_may(exchange, Operation.ALTER_CONFIGS, kind, resource.resource_name)
        if kind is ResourceKind.BROKER_LOGGER:
            _alter_levels(broker, resource.resource_name, changes, validate_only=request.validate_only)
            return
        alter_settings(
            broker,
            kind,
            resource.resource_name,
            lambda content: _changed(broker, kind, content, changes),
            validate_only=request.validate_only,
        )

    return exchange.in_steps(answer_each(exchange, request.resources, alter))


def _changed(broker: BrokerContext, kind: ResourceKind, content: Mapping[str, str], changes: Any) -> dict[str, str]:
    changed = dict(content)
    for change in changes:
        match change.config_operation:
            case _Op.SET:
                changed[change.name] = change.value
            case _Op.DELETE:
                changed.pop(change.name, None)
            case operation:
                default = list_default(broker, kind, change.name)
                if default is None:
                    raise RefusedError(
                        ErrorCode.invalid_config,
                        f"Can't {_Op(operation).name} to key {change.name} because its type is not LIST.",
                    )
                before = [part for part in _parts(changed.get(change.name, default)) if part]
                given = _parts(change.value)
                if operation == _Op.APPEND:
                    known = set(before)
                    after = [*before, *(part for part in given if part not in known)]
                else:
                    gone = set(given)
                    after = [part for part in before if part not in gone]
                changed[change.name] = text = ",".join(after)
                # No answer of DescribeConfigs could hold it. What an earlier build has stored may become shorter.
                if operation == _Op.APPEND and len(text.encode()) > MAX_STRING_BYTES:
                    raise RefusedError(
                        ErrorCode.invalid_config, f"{change.name} has more than {MAX_STRING_BYTES} bytes then"
                    )
    return changed


def _parts(text: str) -> list[str]:
    """As Java splits: a last comma adds nothing, but an empty text is one empty part, which no list takes."""
    parts = [part.strip() for part in text.split(",")]
    while len(parts) > 1 and not parts[-1]:
        parts.pop()
    return parts


def _alter_levels(broker: BrokerContext, name: str, changes: Any, *, validate_only: bool) -> None:
    check_node_id(broker, name)
    checked: list[tuple[str, loggers.Change, str | None]] = []
    for change in changes:
        match change.config_operation:
            case _Op.SET:
                checked.append((change.name, "set", change.value))
            case _Op.DELETE:
                if change.name == loggers.ROOT:
                    raise RefusedError(
                        ErrorCode.invalid_request,
                        "Removing the log level of the root logger is not allowed",
                    )
                checked.append((change.name, "delete", None))
            case operation:
                raise RefusedError(
                    ErrorCode.invalid_request,
                    f"{_Op(operation).name} operation is not allowed for the BROKER_LOGGER resource",
                )
    try:
        for one in checked:
            loggers.check_change(*one)
    except ConfigError as error:
        raise RefusedError(ErrorCode.invalid_config, str(error)) from None
    if not validate_only:
        for one in checked:
            loggers.apply_change(*one)
