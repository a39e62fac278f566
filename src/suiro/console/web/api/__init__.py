"""The endpoints of the console's API, a module for each page, which registers its own."""

from suiro.console.web.api import (  # noqa: F401 - they register
    applications,
    connectors,
    dead_letters,
    groups,
    overview,
    records,
    schemas,
    security,
    tails,
    topics,
    views,
    writing,
)
from suiro.console.web.endpoint import ENDPOINTS

__all__ = ["ENDPOINTS"]
