"""The endpoints of the console's API, a module for each page."""

from suiro.console.web.api import (
    applications,
    connectors,
    dead_letters,
    groups,
    overview,
    problems,
    records,
    schemas,
    security,
    tails,
    topics,
    views,
    writing,
)
from suiro.console.web.endpoint import Endpoint

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (
    *overview.ENDPOINTS,
    *problems.ENDPOINTS,
    *topics.ENDPOINTS,
    *records.ENDPOINTS,
    *tails.ENDPOINTS,
    *writing.ENDPOINTS,
    *groups.ENDPOINTS,
    *schemas.ENDPOINTS,
    *dead_letters.ENDPOINTS,
    *security.ENDPOINTS,
    *connectors.ENDPOINTS,
    *views.ENDPOINTS,
    *applications.ENDPOINTS,
)
