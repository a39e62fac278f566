"""The names of the files in a version's folder."""

from __future__ import annotations

__all__ = ["CODE", "LOCK", "LOG", "SPEC", "STATE"]

SPEC = "spec.json"
CODE = "code"
STATE = "state"
LOG = "pipeline.log"
LOCK = "pipeline.lock"
