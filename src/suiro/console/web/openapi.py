"""The OpenAPI document of the console's API, generated from its endpoints."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from suiro import __version__
from suiro.console.web.endpoint import Endpoint

_ERROR = {"$ref": "#/components/responses/Error"}


def document(endpoints: Sequence[Endpoint]) -> dict[str, Any]:
    types = [one.body for one in endpoints if one.body is not None]
    types += [one.answer for one in endpoints if one.answer is not None]
    schemas, components = msgspec.json.schema_components(types, ref_template="#/components/schemas/{name}")
    by_type = dict(zip(map(str, types), schemas, strict=True))
    paths: dict[str, dict[str, Any]] = {}
    for one in endpoints:
        operation: dict[str, Any] = {
            "summary": one.summary,
            "operationId": _name(one),
            "description": f"For the role {one.role.name.lower()} and those above it.",
            "parameters": [
                *(
                    {"name": part[1:-1], "in": "path", "required": True, "schema": {"type": "string"}}
                    for part in one.path.split("/")
                    if part.startswith("{")
                ),
                *(
                    {"name": name, "in": "query", "description": text, "schema": {"type": "string"}}
                    for name, text in one.query.items()
                ),
            ],
            "responses": {
                "200": {
                    "description": "what was asked for",
                    "content": {"application/json": {"schema": by_type.get(str(one.answer), {})}},
                },
                "default": _ERROR,
            },
        }
        if one.body is not None:
            content = {"application/json": {"schema": by_type[str(one.body)]}}
            operation["requestBody"] = {"required": True, "content": content}
        paths.setdefault(one.path, {})[one.method.lower()] = operation
    components["Error"] = {
        "type": "object",
        "required": ["error_code", "message"],
        "properties": {"error_code": {"type": "integer"}, "message": {"type": "string"}},
    }
    return {
        "openapi": "3.1.0",
        "info": {"title": "suiro console", "version": __version__},
        "servers": [{"url": "/api/v1"}],
        "paths": paths,
        "components": {
            "schemas": components,
            "responses": {
                "Error": {
                    "description": "why not: 400 a wrong request, 401 who are you, 403 not with this role, 404 no such "
                    "thing, 409 not as it stands, 503 try again",
                    "content": {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}},
                }
            },
        },
    }


def _name(endpoint: Endpoint) -> str:
    parts = [part.strip("{}").replace("-", "_") for part in endpoint.path.split("/") if part]
    return "_".join([endpoint.method.lower(), *parts])
