"""`suiro node`."""

from __future__ import annotations

import json
from pathlib import Path

from suiro.cli.command_groups import Group, option
from suiro.cli.everyday import fail, log_to_stderr
from suiro.cli.services import METRICS, SERVER_CONFIG, SERVER_SETTINGS, WHILE_STDIN_IS_OPEN
from suiro.errors import ConfigError, SuiroError

node = Group("node")


@node.itself
def node_(
    listen: str | None = option(
        None,
        "Address to listen on. Default: 127.0.0.1:9092, or the setting listeners. Port 0 selects a free port.",
        "HOST:PORT",
    ),
    metrics: str | None = METRICS,
    otlp: str | None = option(None, "Push metrics to this URL by OTLP. Default: OTEL_EXPORTER_OTLP_ENDPOINT.", "URL"),
    data: Path | None = option(None, "Data directory. Default: a temporary one, removed at exit.", "DIR"),
    registry: str | None = option(
        None, "Run a schema registry on this address (see `suiro registry --help`).", "HOST:PORT"
    ),
    registry_auth_file: Path | None = option(
        None, "File of users of the registry. Default: every client may use it.", "FILE"
    ),
    registry_client_config: Path | None = option(
        None,
        "File of client settings for the registry, if the first listener of the node requires TLS or SASL.",
        "FILE",
    ),
    console: str | None = option(
        None, "Run the web console on this address (see `suiro console --help`).", "HOST:PORT"
    ),
    console_auth_file: Path | None = option(
        None, "File of users of the console. Default: everybody on this machine may use it.", "FILE"
    ),
    console_client_config: Path | None = option(
        None, "File of client settings for the console, if the first listener of the node requires TLS or SASL.", "FILE"
    ),
    config: Path | None = SERVER_CONFIG,
    set_: list[str] | None = SERVER_SETTINGS,
    add_scram: list[str] | None = option(
        None,
        "Create a user: 'SCRAM-SHA-256=[name=NAME,password=PASSWORD]'; repeatable. An existing user is not changed.",
        "USER",
    ),
    insecure: bool = option(False, "Do not warn about listeners beyond this machine that require no login."),
    while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN,
    # Every user of the machine can read the settings in a command line, which may be passwords.
    settings_on_stdin: bool = option(False, hidden=True),
) -> None:
    """Run a node: a log that any Kafka client can use. When it is ready, it prints one JSON line on stdout; logs go
    to stderr. SIGTERM or SIGINT stops it with exit status 0. The exit status is 1 if the node cannot run."""
    log_to_stderr()
    try:
        from suiro.config import NodeSettings, read_properties
        from suiro.foundation.process import lines_of_stdin
        from suiro.foundation.settings import assignments
        from suiro.node import serve

        settings = NodeSettings()
        if config is not None:
            settings = settings.with_settings(read_properties(config), source=f"--config {config}")
        settings = settings.with_settings(assignments(set_ or (), "--set"), source="--set")
        if settings_on_stdin:
            settings = settings.with_settings(json.loads(next(lines_of_stdin(), b"{}")), source="settings")
        if metrics is not None:
            settings = settings.with_settings({"metrics.listen": metrics}, source="--metrics")
        if otlp is not None:
            settings = settings.with_settings({"metrics.otlp.endpoint": otlp}, source="--otlp")
        serve(
            data=data,
            listen=listen,
            settings=settings,
            add_scram=add_scram or (),
            registry=registry,
            registry_options=_options_of(
                "registry", registry, "--client-config", registry_auth_file, registry_client_config
            ),
            console=console,
            console_options=_options_of(
                "console", console, "--command-config", console_auth_file, console_client_config
            ),
            insecure=insecure,
            while_stdin_is_open=while_stdin_is_open,
        )
    except SuiroError as error:
        fail(str(error), "suiro node")


def _options_of(
    service: str, address: str | None, how: str, auth_file: Path | None, client_config: Path | None
) -> list[str]:
    """Returns the options of a service beside the node. `how` is its option for client settings. Raises
    `ConfigError`."""
    found = []
    for name, words, value in (("auth-file", "--auth-file", auth_file), ("client-config", how, client_config)):
        if value is not None:
            if address is None:
                raise ConfigError(f"--{service}-{name} needs --{service}")
            found += [words, str(value)]
    return found
