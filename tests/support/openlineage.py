"""Validates OpenLineage events with the published JSON schema: the event, and each facet with the schema it names."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from jsonschema import Draft202012Validator
from jsonschema.validators import validator_for
from referencing import Registry, Resource

VECTORS = Path(__file__).parents[1] / "vectors" / "openlineage"
_DOCUMENTS = [json.loads(path.read_text()) for path in sorted(VECTORS.glob("*.json"))]
_REGISTRY: Registry[Any] = Registry().with_resources((one["$id"], Resource.from_contents(one)) for one in _DOCUMENTS)
_CHECKER = Draft202012Validator.FORMAT_CHECKER


def _validate(value: Any, url: str) -> None:
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$ref": url}
    validator_for(schema)(schema, registry=_REGISTRY, format_checker=_CHECKER).validate(value)


def check_event(event: dict[str, Any]) -> dict[str, Any]:
    """The event; raises `jsonschema.ValidationError`. Facets that the specification does not know are an error too."""
    _validate(event, "https://openlineage.io/spec/2-0-2/OpenLineage.json")
    assert event["schemaURL"] == "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
    holders = [event["run"], event["job"], *event["inputs"], *event["outputs"]]
    for holder in holders:
        for facet in holder.get("facets", {}).values():
            _validate(facet, facet["_schemaURL"])
    return event


def events_of(text: str) -> list[dict[str, Any]]:
    """The events of a file, each checked."""
    return [check_event(json.loads(line)) for line in text.splitlines()]


def turns(events: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Without RUNNING, whose number depends on how long a run took."""
    return [one for one in events if one["eventType"] != "RUNNING"]
