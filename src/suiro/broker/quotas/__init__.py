"""Quotas: how fast a client may produce, fetch, use the node's time and change topics, by user and client id."""

from __future__ import annotations

from suiro.broker.quotas.client_quotas import ClientQuotas, MutationQuota, MutationQuotaExceededError
from suiro.broker.quotas.store import Alteration, QuotaEntity, QuotaStore

__all__ = [
    "Alteration",
    "ClientQuotas",
    "MutationQuota",
    "MutationQuotaExceededError",
    "QuotaEntity",
    "QuotaStore",
]
