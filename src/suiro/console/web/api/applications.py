"""Applications: what each that runs with `--console` says of itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from suiro.console.web.endpoint import Call, Endpoint
from suiro.foundation.http import Role

__all__ = ["ENDPOINTS"]
