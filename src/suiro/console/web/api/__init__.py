"""The endpoints of the console's API, a module for each page."""

from suiro.console.web.api import groups, overview, records, topics
from suiro.console.web.endpoint import Endpoint

__all__ = ["ENDPOINTS"]

ENDPOINTS: tuple[Endpoint, ...] = (
    *overview.ENDPOINTS,
    *topics.ENDPOINTS,
    *records.ENDPOINTS,
    *groups.ENDPOINTS,
)
