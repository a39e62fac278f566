"""Options that several services have, declared once."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from suiro.cli.command_groups import Option

Listen = Annotated[
    str, Option("--listen", metavar="HOST:PORT", help="Address to listen on. Port 0 selects a free port.")
]
TlsCertificate = Annotated[
    Path | None, Option(metavar="FILE", help="PEM file of the certificate and its chain, for HTTPS.")
]
TlsKey = Annotated[Path | None, Option(metavar="FILE", help="PEM file of the private key.")]
ClientConfig = Annotated[
    Path | None,
    Option(
        metavar="FILE",
        path="file",
        help="File of client settings for that Kafka, with Kafka's names: security.protocol, sasl.mechanism...",
    ),
]
ServerConfig = Annotated[
    Path | None, Option("--config", metavar="FILE", help="File of settings, as Kafka's server.properties.")
]
ServerSettings = Annotated[
    list[str] | None, Option("--set", metavar="NAME=VALUE", help="A setting, with Kafka's name; repeatable.")
]
SchemaRegistry = Annotated[
    str | None,
    Option(metavar="URL", env="SUIRO_REGISTRY", help="Schema registry of serdes.avro, json_schema and protobuf."),
]
Metrics = Annotated[str | None, Option(metavar="HOST:PORT", help="Serve /metrics for Prometheus on this address.")]
Otlp = Annotated[
    str | None,
    Option(
        metavar="URL",
        help="Send metrics and traces to this URL by OTLP over HTTP. Default: OTEL_EXPORTER_OTLP_ENDPOINT.",
    ),
]
OpenLineage = Annotated[
    str | None,
    Option(
        "--openlineage",
        metavar="URL-OR-FILE",
        env="OPENLINEAGE_URL",
        help="Send OpenLineage events to this URL or file: the run, its topics and their columns.",
    ),
]
# For a service that another program of suiro starts: it ends with that program, and gets a socket that listens already.
WhileStdinIsOpen = Annotated[bool, Option("--while-stdin-is-open", hidden=True)]
ListenFd = Annotated[int | None, Option("--listen-fd", hidden=True)]
