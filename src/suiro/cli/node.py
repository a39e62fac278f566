"""`suiro node`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import log_to_stderr
from suiro.errors import ConfigError, SuiroError

node = Group("node", "")


@node.itself
def node_(
    listen: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Default: 127.0.0.1:9092, or what the setting listeners says; port 0: a free one.",
        ),
    ] = None,
    metrics: Annotated[
        str | None, Option(metavar="HOST:PORT", help="Serve /metrics there, for Prometheus.")
    ] = None,
    otlp: Annotated[
        str | None,
        Option(metavar="URL", help="Push metrics there by OTLP. Default: OTEL_EXPORTER_OTLP_ENDPOINT."),
    ] = None,
    data: Annotated[Path | None, Option(metavar="DIR", help="Default: temporary, removed at exit.")] = None,
    registry: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Run a schema registry beside the node, listening there (`suiro registry --help`).",
        ),
    ] = None,
    registry_auth_file: Annotated[
        Path | None, Option(metavar="FILE", help="Who may call the registry. Default: anybody.")
    ] = None,
    registry_client_config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="How the registry reaches the node, where its first listener asks for TLS or SASL.",
        ),
    ] = None,
    console: Annotated[
        str | None,
        Option(
            metavar="HOST:PORT",
            help="Run a console beside the node, a page for the browser (`suiro console --help`).",
        ),
    ] = None,
    console_auth_file: Annotated[
        Path | None, Option(metavar="FILE", help="Who may call the console. Default: this machine.")
    ] = None,
    console_client_config: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="How the console reaches the node, where its first listener asks for TLS or SASL.",
        ),
    ] = None,
    config: Annotated[
        Path | None, Option(metavar="FILE", help="Settings as in Kafka's server.properties.")
    ] = None,
    set_: Annotated[
        list[str] | None,
        Option("--set", metavar="NAME=VALUE", help="One setting, by Kafka's name; repeatable."),
    ] = None,
    add_scram: Annotated[
        list[str] | None,
        Option(
            metavar="USER",
            help="A user to begin with: 'SCRAM-SHA-256=[name=NAME,password=PASSWORD]'; repeatable. One that is "
            "there already stays as it is.",
        ),
    ] = None,
    insecure: Annotated[
        bool, Option(help="Do not warn where listeners beyond this machine ask nobody for a login.")
    ] = False,
    # For `NodeProcess`: the node must not outlive the program that started it.
    while_stdin_is_open: Annotated[bool, Option(hidden=True)] = False,
) -> None:
    """Run a node: a log that any Kafka client can use. Once it answers, it prints one JSON line on stdout; logs go to
    stderr. SIGTERM or SIGINT stops it cleanly; then the exit code is 0, and 1 if the node cannot run."""
    log_to_stderr()
    try:
        from suiro.config import NodeSettings, read_properties
        from suiro.foundation.settings import assignments
        from suiro.node import serve

        settings = NodeSettings()
        if config is not None:
            settings = settings.with_settings(read_properties(config), source=f"--config {config}")
        settings = settings.with_settings(assignments(set_ or (), "--set"), source="--set")
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
        print(f"suiro node: {error}", file=sys.stderr)
        sys.exit(1)


def _options_of(
    service: str, address: str | None, how: str, auth_file: Path | None, client_config: Path | None
) -> list[str]:
    """Returns the options of a service beside the node. `how` is its option for client settings. Raises
    `ConfigError`."""
    found = []
    for name, option, value in (
        ("auth-file", "--auth-file", auth_file),
        ("client-config", how, client_config),
    ):
        if value is not None:
            if address is None:
                raise ConfigError(f"--{service}-{name} says something of --{service}, which is not there")
            found += [option, str(value)]
    return found
