"""For tests of the registry: its rules without a log, and Confluent's clients as one kind of object."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import httpx

from suiro.registry import in_memory
from suiro.registry.app import RegistryApp
from suiro.registry.records import Key
from suiro.registry.state import State


class MemoryStorage(in_memory.MemoryStorage):
    def compacted(self) -> list[tuple[bytes, bytes | None]]:
        """The last record of each key, tombstones taken away."""
        last = {key: place for place, (key, _) in enumerate(self.log)}
        return [one for place, one in enumerate(self.log) if last[one[0]] == place and one[1] is not None]


def apply(state: State, key: bytes, value: bytes | None) -> None:
    parsed = Key.parse(key)
    assert parsed is not None
    state.apply(parsed, None if value is None else json.loads(value), raw_key=key, timestamp=1)


class Api:
    """The HTTP API over a `MemoryStorage`, without a socket. Calls return (status, JSON)."""

    def __init__(self, *, loopback_only: bool = False) -> None:
        self.storage = MemoryStorage()
        self.app = RegistryApp(self.storage, loopback_only=loopback_only)  # type: ignore[arg-type]

    def __call__(self, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
        response = self.raw(method, path, body, **headers)
        try:
            return response.status_code, response.json()
        except ValueError:
            return response.status_code, response.text

    def raw(self, method: str, path: str, body: Any = None, **headers: str) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app)
            async with httpx.AsyncClient(transport=transport, base_url="http://registry") as client:
                content = body if isinstance(body, bytes | None) else json.dumps(body).encode()
                kept = {name.replace("_", "-"): value for name, value in headers.items()}
                if content is not None:
                    kept.setdefault("content-type", "application/vnd.schemaregistry.v1+json")
                return await client.request(method, f"/{path}", content=content, headers=kept)

        return asyncio.run(call())

    def get(self, path: str) -> Any:
        status, answer = self("GET", path)
        assert status == 200, answer
        return answer

    def register(self, subject: str, schema: Any, **members: Any) -> int:
        text = schema if isinstance(schema, str) else json.dumps(schema)
        status, answer = self("POST", f"subjects/{subject}/versions", {"schema": text, **members})
        assert status == 200, answer
        found: int = answer["id"]
        return found

    def refused(self, method: str, path: str, body: Any = None) -> int:
        status, answer = self(method, path, body)
        assert status >= 400, answer
        assert str(answer["error_code"]).startswith(str(status)), answer
        assert answer["message"]
        code: int = answer["error_code"]
        return code


class Blocking:
    """Confluent's asynchronous client, called like its other one."""

    def __init__(self, configuration: dict[str, Any]) -> None:
        from confluent_kafka.schema_registry import AsyncSchemaRegistryClient

        self.loop = asyncio.new_event_loop()
        self._client = AsyncSchemaRegistryClient(configuration)

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        def call(*arguments: Any, **named: Any) -> Any:
            result = method(*arguments, **named)
            return self.loop.run_until_complete(result) if asyncio.iscoroutine(result) else result

        return call
