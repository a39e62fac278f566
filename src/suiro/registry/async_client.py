"""`AsyncRegistryClient`: a `RegistryClient`, with its pool, cache and retries, for programs on asyncio."""

from __future__ import annotations

from suiro.foundation.threads import InThreads
from suiro.registry.client import RegistryClient
from suiro.registry.schemas import RegisteredSchema, Schema


class AsyncRegistryClient(InThreads):
    """`AsyncRegistryClient(RegistryClient(url))`. Closing it also closes the `RegistryClient`."""

    def __init__(self, client: RegistryClient) -> None:
        super().__init__("registry", client.close)
        self._client = client

    async def register(self, subject: str, schema: Schema, *, normalize: bool = False) -> int:
        """Like `RegistryClient.register`; the other methods are alike."""
        return await self._call(self._client.register, subject, schema, normalize=normalize)

    async def lookup(self, subject: str, schema: Schema, *, normalize: bool = False) -> RegisteredSchema:
        return await self._call(self._client.lookup, subject, schema, normalize=normalize)

    async def schema(self, schema_id: int) -> Schema:
        return await self._call(self._client.schema, schema_id)

    async def latest(self, subject: str) -> RegisteredSchema:
        return await self._call(self._client.latest, subject)

    async def version(self, subject: str, version: int, *, fresh: bool = False) -> RegisteredSchema:
        return await self._call(self._client.version, subject, version, fresh=fresh)

    async def subjects(self) -> list[str]:
        return await self._call(self._client.subjects)

    async def versions(self, subject: str) -> list[int]:
        return await self._call(self._client.versions, subject)

    async def delete_subject(self, subject: str, *, permanent: bool = False) -> list[int]:
        return await self._call(self._client.delete_subject, subject, permanent=permanent)

    async def delete_version(self, subject: str, version: int, *, permanent: bool = False) -> int:
        return await self._call(self._client.delete_version, subject, version, permanent=permanent)

    async def compatibility(self, subject: str) -> str:
        return await self._call(self._client.compatibility, subject)

    async def compatible(self, subject: str, schema: Schema) -> list[str]:
        return await self._call(self._client.compatible, subject, schema)

    async def set_compatibility(self, level: str, subject: str | None = None) -> None:
        await self._call(self._client.set_compatibility, level, subject)
