"""The names of the files in a version's folder."""

from __future__ import annotations

SPEC = "spec.json"
CODE = "code"
STATE = "state"
LOG = "pipeline.log"
LOCK = "pipeline.lock"
