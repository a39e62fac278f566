"""AlterClientQuotas: set and remove quotas."""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.broker.answers import Answer
from suiro.broker.exchange import Exchange
from suiro.broker.quotas.store import Alteration, QuotaEntity
from suiro.broker.security.acl import Operation
from suiro.log import StorageError
from suiro.protocol.messages import ErrorCode

if TYPE_CHECKING:
    from kio.schema.alter_client_quotas.v1.request import AlterClientQuotasRequest


def handle(exchange: Exchange, request: AlterClientQuotasRequest) -> Answer:
    alterations = [
        Alteration(
            entity=QuotaEntity.of({part.entity_type: part.entity_name for part in entry.entity}),
            values=tuple((op.key, None if op.remove else float(op.value)) for op in entry.ops),
        )
        for entry in request.entries
    ]
    results: dict[QuotaEntity, tuple[ErrorCode, str] | None]
    if exchange.may_on_cluster(Operation.ALTER_CONFIGS):
        try:
            results = exchange.broker.client_quotas.store.alter(alterations, validate_only=request.validate_only)
        except StorageError as error:
            results = {alteration.entity: (error.code, str(error)) for alteration in alterations}
    else:
        refusal = ErrorCode.cluster_authorization_failed, "Cluster authorization failed."
        results = {alteration.entity: refusal for alteration in alterations}
    return exchange.response(
        entries=tuple(
            exchange.make(
                "EntryData",
                error_code=ErrorCode.none if problem is None else problem[0],
                error_message=None if problem is None else problem[1],
                entity=tuple(
                    exchange.make("EntityData", entity_type=kind, entity_name=name) for kind, name in entity.parts
                ),
            )
            for entity, problem in results.items()
        ),
    )
