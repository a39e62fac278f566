"""A schema registry with Confluent's REST API, its client, and codecs for serdes.

- `schemas`: `Schema`, `Reference`, `RegisteredSchema`. `client`: `RegistryClient`, for any registry with this API.
- `process`: the registry as a child process.
- `server`, `app`, `call`, `endpoints`: HTTP. They load Starlette and are imported when a registry is served.
- `registration`, `deletion`, `settings`, `compatibility`, `associations`: the rules, pure.
- `state`: the state of the topic. `records`: its records. `storage`: reads and writes the topic.
- `codecs`: values to bytes and back with schemas of a registry. `in_memory`: a registry for tests (`mock://name`).
- `topic_columns`: the columns of a topic's values, for OpenLineage.
- `formats`: Avro, JSON Schema and Protobuf: parser, canonical form and compatibility rules of each.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from suiro.extras import on_first_use
from suiro.registry.process import RegistryProcess
from suiro.registry.schemas import MOCK_SCHEME, Reference, RegisteredSchema, Schema, SchemaType, SubjectStrategy

if TYPE_CHECKING:
    from suiro.registry.client import AsyncRegistryClient, RegistryClient
    from suiro.registry.codecs import AvroCodec, Codec, CodecSettings, NotOneColumn, Undecodable, Unencodable, codec_of
    from suiro.registry.in_memory import registry_client, use_registry_client
    from suiro.registry.server import InProcessRegistry, RegistryConfig, serve
    from suiro.registry.topic_columns import columns_of_schema, columns_of_topic, schema_of_topic

__all__ = [
    "MOCK_SCHEME",
    "AsyncRegistryClient",
    "AvroCodec",
    "Codec",
    "CodecSettings",
    "InProcessRegistry",
    "NotOneColumn",
    "Reference",
    "RegisteredSchema",
    "RegistryClient",
    "RegistryConfig",
    "RegistryProcess",
    "Schema",
    "SchemaType",
    "SubjectStrategy",
    "Undecodable",
    "Unencodable",
    "codec_of",
    "columns_of_schema",
    "columns_of_topic",
    "registry_client",
    "schema_of_topic",
    "serve",
    "use_registry_client",
]

# A node that starts a registry loads no HTTP client, and a client that encodes records no web server.
__getattr__ = on_first_use(
    __name__,
    {
        "client": "AsyncRegistryClient RegistryClient",
        "codecs": "Codec CodecSettings NotOneColumn Undecodable Unencodable codec_of",
        "codecs.avro": "AvroCodec",
        "in_memory": "registry_client use_registry_client",
        "server": "InProcessRegistry RegistryConfig serve",
        "topic_columns": "columns_of_schema columns_of_topic schema_of_topic",
    },
    extras={"server": "registry"},
)
