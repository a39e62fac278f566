"""What is in the topic `_suiro_views`, folded: records in order become what is known. No I/O."""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from suiro.views.state import Event, View

__all__ = [
    "HOST_KEY",
    "JournalRecord",
    "Known",
    "apply",
    "as_bytes",
    "code_key",
    "comparison_record",
    "event_records",
    "forgetting_records",
]

HOST_KEY = "host"
KEPT_EVENTS = 1_000
"""Of each view's history."""
JournalRecord = tuple[str, bytes | None]
"""Key and value; None forgets it."""

logger = logging.getLogger(__name__)


@dataclass(slots=True)
class Known:
    """The topic, folded."""

    views: dict[str, View] = field(default_factory=dict)
    history: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    codes: dict[str, bytes] = field(default_factory=dict)  # by what follows `code/` in their keys
    comparisons: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    host: dict[str, Any] | None = None
    position: int = 0


def apply(known: Known, key: bytes | None, value: bytes | None) -> bool:
    """True where a host has to look at it."""
    kind, _, rest = (key or b"").decode(errors="replace").partition("/")
    try:
        match kind:
            case "view":
                if value is None:
                    known.views.pop(rest, None)
                else:
                    known.views[rest] = View.from_json(json.loads(value))
                return True
            case "history":
                name, _, revision = rest.rpartition("/")
                events = known.history.setdefault(name, {})
                events.pop(int(revision), None)
                if value is not None:
                    events[int(revision)] = json.loads(value)
            case "code":
                known.codes.pop(rest, None)
                if value is not None:
                    known.codes[rest] = value
            case "comparison":
                name, _, comparison_id = rest.rpartition("/")
                kept = known.comparisons.setdefault(name, {})
                kept.pop(comparison_id, None)
                if value is not None:
                    kept[comparison_id] = json.loads(value)
            case "host":
                known.host = None if value is None else json.loads(value)
                return True
            case _:
                logger.warning("a record of key %r is not ours, and is skipped", key)
    except (ValueError, KeyError, TypeError) as error:
        logger.warning("the record of key %r cannot be understood, and is skipped: %r", key, error)
    return False


def event_records(view: View, event: Event, *, event_id: str, who: str, time_ms: int) -> list[JournalRecord]:
    """A view as it is then, and the line of its history that says why."""
    line = {
        "id": event_id,
        "revision": view.revision,
        "time_ms": time_ms,
        "who": who,
        "command": event.command,
        "version": event.version,
        "before": event.before,
        "after": event.after,
        "detail": event.detail,
    }
    return [
        (f"history/{view.name}/{view.revision}", as_bytes(line)),
        (f"view/{view.name}", as_bytes(view.to_json())),
    ]


def forgetting_records(known: Known, view: View) -> list[JournalRecord]:
    """What is not needed any more once a view is as it is then: codes that none of its versions runs, and the oldest
    events. Written with every change, so that the topic does not grow with their number."""
    wanted = {
        code_key(view.name, str(version.spec.get("code"))) for version in view.versions if not version.freed
    }
    codes = [f"code/{rest}" for rest in known.codes if rest.rpartition("/")[0] == view.name]
    events = known.history.get(view.name, {})
    old = [revision for revision in sorted(events) if revision <= view.revision - KEPT_EVENTS]
    keys = [key for key in codes if key not in wanted] + [
        f"history/{view.name}/{revision}" for revision in old
    ]
    return [(key, None) for key in keys]


def code_key(view: str, sha256: str) -> str:
    """A view's own: of a code that two views have, neither can take the other's away."""
    return f"code/{view}/{sha256}"


def comparison_record(view: str, comparison_id: str, result: Mapping[str, Any] | None) -> JournalRecord:
    return f"comparison/{view}/{comparison_id}", None if result is None else as_bytes(result)


def as_bytes(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()
