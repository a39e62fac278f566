"""`connectors.toml`: one section for each connector, and one for what they share.

    [connect]
    bootstrap_servers = "127.0.0.1:9092"

    [source.flights]
    kind = "files"
    topic = "flights"
    ...
    [sink.warehouse]
    kind = "delta"
    topics = ["flights"]

Everything is checked before anything is started; an error names file, section and key. A `kind` is one of the tables
below or `module:Class` of the user's own, found as Python finds modules and beside the file.
"""

from __future__ import annotations

import importlib
import sys
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any

from suiro.clock import Clock, SystemClock
from suiro.connect.connectors import About
from suiro.connect.sink_task import SinkSettings, SinkTask
from suiro.connect.source_task import SourceSettings, SourceTask
from suiro.connect.task import Task
from suiro.connect.values import decoder, encoder
from suiro.errors import ConfigError
from suiro.foundation.http import is_loopback
from suiro.foundation.settings import (
    SettingError,
    check_names,
    host_and_port,
    read_settings,
    with_environment,
)

SOURCES = {
    "files": "suiro.connect.sources.files:FilesSource",
    "postgres": "suiro.connect.sources.postgres:PostgresCaptureTask",
    "rest": "suiro.connect.sources.rest:RestSource",
    "webhook": "suiro.connect.sources.webhook:WebhookSource",
}
SINKS = {
    "delta": "suiro.connect.sinks.delta:DeltaSink",
    "iceberg": "suiro.connect.sinks.iceberg:IcebergSink",
    "parquet": "suiro.connect.sinks.parquet:ParquetSink",
    "postgres": "suiro.connect.sinks.postgres:PostgresSink",
    "search": "suiro.connect.sinks.search:SearchSink",
    "webhook": "suiro.connect.sinks.webhook:WebhookSink",
}

OF_LAKE = ("delta", "iceberg")
"""The kinds that need an extra of their own."""


@dataclass(frozen=True, slots=True, kw_only=True)
class ConnectSettings:
    """Section [connect]."""

    bootstrap_servers: str = "127.0.0.1:9092"
    listen: str = "127.0.0.1:8083"  # of status, pause and resume; Kafka Connect's port
    token: str | None = None  # requests there must have it
    auth_file: Path | None = None  # or come from one of these users; relative to the file of connectors
    tls_certificate: Path | None = None
    tls_key: Path | None = None
    registry: str | None = None
    openlineage: str | None = None  # a URL or a file, for OpenLineage events; else OPENLINEAGE_URL
    otlp: str | None = None  # the URL that metrics and traces go to; else OTEL_EXPORTER_OTLP_ENDPOINT
    client: dict[str, str | int] = field(default_factory=dict)  # of the Kafka client, in Kafka's names

    def openlineage_target(self, folder: Path) -> str | None:
        """A path is relative to the file of connectors."""
        where = self.openlineage
        return where if where is None or "://" in where else str(folder / where)

    @property
    def address(self) -> tuple[str, int]:
        address = host_and_port(self.listen)
        if address is None:
            raise SettingError("listen", f"expected HOST:PORT, got {self.listen!r}")
        return address


@dataclass(frozen=True, slots=True, kw_only=True)
class Connector:
    """One section, checked: a task that can be run."""

    name: str
    side: str  # "source" or "sink"
    kind: str
    task: Task
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Configuration:
    folder: Path
    settings: ConnectSettings
    connectors: tuple[Connector, ...]


def read_configuration(path: Path, *, clock: Clock | None = None) -> Configuration:
    """Raises `ConfigError` that names file, section and key."""
    try:
        document = tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path} is not TOML: {error}") from None
    folder = path.resolve().parent
    with _section(path, ""):
        check_names(document, {"connect": None, "source": None, "sink": None})
    with _section(path, "connect"):
        settings = read_settings(ConnectSettings, with_environment(_table(document, "connect"), ""))
        host, _ = settings.address
        if not is_loopback(host) and not (settings.token or settings.auth_file):
            raise SettingError(
                "token",
                f"is missing: anyone who can reach {settings.listen} could pause connectors; give it, or auth_file",
            )
        if settings.token and settings.auth_file:
            raise SettingError("auth_file", "cannot be combined with token; give one of them")
        settings = _below(folder, settings)
    connectors: dict[str, Connector] = {}
    for side in ("source", "sink"):
        with _section(path, side):
            sections = _table(document, side)
        for name, table in sections.items():
            with _section(path, f"{side}.{name}"):
                if name in connectors:
                    raise SettingError("name", f"there is a source {name!r} too; every name is given once")
                about = About(name=name, folder=folder, clock=clock or SystemClock())
                connectors[name] = _connector(side, table, about, settings.registry)
    if not connectors:
        raise ConfigError(f"{path} has no connector; add a section such as [source.NAME] or [sink.NAME]")
    return Configuration(folder=folder, settings=settings, connectors=tuple(connectors.values()))


def _below(folder: Path, settings: ConnectSettings) -> ConnectSettings:
    """The settings with paths that are relative to the folder. Raises `SettingError` for one of two files of TLS."""
    files = {
        name: folder / path
        for name in ("auth_file", "tls_certificate", "tls_key")
        if (path := getattr(settings, name)) is not None
    }
    if len(files.keys() & {"tls_certificate", "tls_key"}) == 1:
        raise SettingError("tls_certificate", "and tls_key belong together; give both")
    return replace(settings, **files)


@contextmanager
def _section(path: Path, section: str) -> Iterator[None]:
    """Adds file and section to errors about one key."""
    try:
        yield
    except ConfigError as error:
        raise ConfigError(f"{path}: [{section}] {error}" if section else f"{path}: {error}") from None


def _table(document: Mapping[str, Any], name: str) -> dict[str, Any]:
    found = document.get(name, {})
    if not isinstance(found, dict):
        raise SettingError(name, "expected a section, such as [source.NAME]")
    return found


def _connector(side: str, table: Any, about: About, registry: str | None) -> Connector:
    if not isinstance(table, dict):
        raise SettingError(about.name, f"expected a section [{side}.NAME]")
    if not about.name or not all(letter.isalnum() or letter in "-_." for letter in about.name):
        raise SettingError("name", f"may have letters, digits, '-', '_' and '.' only, not {about.name!r}")
    table = with_environment(table, "")
    kind = table.pop("kind", None)
    if not isinstance(kind, str):
        known = SOURCES if side == "source" else SINKS
        raise SettingError("kind", f"is missing; one of {', '.join(known)}, or module:Class of your own")
    paused = table.pop("paused", False)
    if not isinstance(paused, bool):
        raise SettingError("paused", f"expected true or false, got {paused!r}")
    made = _class(side, kind, about.folder)
    task: Task
    if hasattr(made, "run"):  # a task with a loop of its own takes all settings
        task = made(table, about)
    elif side == "source":
        shared, own = _split(SourceSettings, table)
        of_source = read_settings(SourceSettings, shared)
        task = SourceTask(made(own, about), of_source)
        file = None if of_source.format_schema is None else about.folder / of_source.format_schema
        encoder("format", of_source.format, registry, subject="", schema_file=file)
    else:
        shared, own = _split(SinkSettings, table)
        defaults = dict(getattr(made, "DEFAULTS", {}))  # a class may have other ones for the shared settings
        of_sink = read_settings(SinkSettings, defaults | shared)
        task = SinkTask(made(own, about), of_sink)
        for key in ("format", "key_format"):
            decoder(key, getattr(of_sink, key), registry)
    return Connector(name=about.name, side=side, kind=kind, task=task, paused=paused)


def _split(cls: type[Any], table: Mapping[str, Any]) -> tuple[dict[str, Any], dict[str, Any]]:
    """The settings that `cls` has, and the others."""
    names = {item.name for item in fields(cls)}
    shared = {name: value for name, value in table.items() if name in names}
    return shared, {name: value for name, value in table.items() if name not in names}


def _class(side: str, kind: str, folder: Path) -> Any:
    known = SOURCES if side == "source" else SINKS
    place = known.get(kind, kind)
    module_name, found, class_name = place.partition(":")
    if not found:
        raise SettingError("kind", f"there is no {side} of kind {kind!r}; one of {', '.join(known)}, or module:Class")
    if str(folder) not in sys.path:
        sys.path.append(str(folder))
    try:
        return getattr(importlib.import_module(module_name), class_name)
    except ImportError as error:
        hint = "; pip install 'suiro[lake]'" if kind in OF_LAKE else ""
        raise SettingError("kind", f"cannot import {module_name}: {error}{hint}") from None
    except AttributeError:
        raise SettingError("kind", f"module {module_name} has no class {class_name}") from None
