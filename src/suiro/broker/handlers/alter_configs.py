"""AlterConfigs: replaces the settings of a resource; settings that are not named get their defaults."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.handlers.shared.config_changes import (
    alter_settings,
    answer_each,
    check_may,
    kind_of,
    refuse_nulls,
)
from suiro.broker.refusals import RefusedError
from suiro.broker.security.acl import Operation
from suiro.broker.settings.configs import ResourceKind
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_configs.v2.request import AlterConfigsRequest


def handle(exchange: Exchange, request: AlterConfigsRequest) -> Answer:
    def alter(resource: Any) -> None:
        refuse_nulls(config.name for config in resource.configs if config.value is None)
        kind = kind_of(resource.resource_type)
        if kind is ResourceKind.BROKER_LOGGER:
            raise RefusedError(ErrorCode.invalid_request, f"Unknown resource type {kind.value}")
        check_may(exchange, Operation.ALTER_CONFIGS, kind, resource.resource_name)
        content = {config.name: config.value for config in resource.configs}
        alter_settings(
            exchange.broker,
            kind,
            resource.resource_name,
            lambda _: content,
            validate_only=request.validate_only,
        )

    return exchange.in_steps(answer_each(exchange, request.resources, alter))
