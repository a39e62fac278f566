"""`suiro node`."""

from __future__ import annotations

import argparse
import logging
import sys
from collections.abc import Sequence
from pathlib import Path

from suiro.errors import ConfigError, SuiroError

_DESCRIPTION = """\
Run a node: a log that any Kafka client can use. Once it answers, it prints one JSON line on stdout; logs go to
stderr. SIGTERM or SIGINT stops it cleanly."""


def main(arguments: Sequence[str]) -> int:
    """Returns the exit code: 0 after a clean stop, 1 if the node cannot run, 2 for a wrong call."""
    options = node_parser().parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        from suiro.config import NodeSettings, read_properties
        from suiro.foundation.settings import assignments
        from suiro.node import serve

        settings = NodeSettings()
        if options.config is not None:
            settings = settings.with_settings(
                read_properties(options.config), source=f"--config {options.config}"
            )
        settings = settings.with_settings(assignments(options.set, "--set"), source="--set")
        if options.metrics is not None:
            settings = settings.with_settings({"metrics.listen": options.metrics}, source="--metrics")
        if options.otlp is not None:
            settings = settings.with_settings({"metrics.otlp.endpoint": options.otlp}, source="--otlp")
        registry_options = []
        for name in ("auth_file", "client_config"):
            value = getattr(options, f"registry_{name}")
            if value is not None:
                if options.registry is None:
                    raise ConfigError(
                        f"--registry-{name.replace('_', '-')} says something of --registry, which is not there"
                    )
                registry_options += [f"--{name.replace('_', '-')}", str(value)]
        serve(
            data=options.data,
            listen=options.listen,
            settings=settings,
            add_scram=options.add_scram,
            registry=options.registry,
            registry_options=registry_options,
            console=options.console,
            console_options=_options_of_console(options),
            insecure=options.insecure,
            while_stdin_is_open=options.while_stdin_is_open,
        )
    except SuiroError as error:
        print(f"suiro node: {error}", file=sys.stderr)
        return 1
    return 0


def _options_of_console(options: argparse.Namespace) -> list[str]:
    """Raises `ConfigError`."""
    found = []
    for name, option in (("auth_file", "--auth-file"), ("client_config", "--command-config")):
        value = getattr(options, f"console_{name}")
        if value is not None:
            if options.console is None:
                raise ConfigError(
                    f"--console-{name.replace('_', '-')} says something of --console, which is not there"
                )
            found += [option, str(value)]
    return found


def node_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="suiro node", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        help="default: 127.0.0.1:9092, or what the setting listeners says; port 0: a free one",
    )
    parser.add_argument("--metrics", metavar="HOST:PORT", help="serve /metrics there, for Prometheus")
    parser.add_argument(
        "--otlp", metavar="URL", help="push metrics there by OTLP; default: OTEL_EXPORTER_OTLP_ENDPOINT"
    )
    parser.add_argument("--data", type=Path, metavar="DIR", help="default: temporary, removed at exit")
    parser.add_argument(
        "--registry",
        metavar="HOST:PORT",
        help="run a schema registry beside the node, listening there (`suiro registry --help`)",
    )
    parser.add_argument(
        "--registry-auth-file", type=Path, metavar="FILE", help="who may call the registry; absent: anybody"
    )
    parser.add_argument(
        "--registry-client-config",
        type=Path,
        metavar="FILE",
        help="how the registry reaches the node, where its first listener asks for TLS or SASL",
    )
    parser.add_argument(
        "--console",
        metavar="HOST:PORT",
        help="run a console beside the node, a page for the browser (`suiro console --help`)",
    )
    parser.add_argument(
        "--console-auth-file",
        type=Path,
        metavar="FILE",
        help="who may call the console; absent: this machine",
    )
    parser.add_argument(
        "--console-client-config",
        type=Path,
        metavar="FILE",
        help="how the console reaches the node, where its first listener asks for TLS or SASL",
    )
    parser.add_argument(
        "--config", type=Path, metavar="FILE", help="settings as in Kafka's server.properties"
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="one setting, by Kafka's name; repeatable",
    )
    parser.add_argument(
        "--add-scram",
        action="append",
        default=[],
        metavar="USER",
        help="a user to begin with: 'SCRAM-SHA-256=[name=NAME,password=PASSWORD]'; repeatable; one that is "
        "there already stays as it is",
    )
    parser.add_argument(
        "--insecure",
        action="store_true",
        help="do not warn where listeners beyond this machine ask nobody for a login",
    )
    # For `NodeProcess`: a node must not outlive the program that started it for itself.
    parser.add_argument("--while-stdin-is-open", action="store_true", help=argparse.SUPPRESS)
    return parser
