"""`suiro registry`."""

from __future__ import annotations

import argparse
import getpass
import logging
import socket
import sys
from collections.abc import Sequence
from pathlib import Path

from suiro.errors import SuiroError, TransientError

TRY_LATER = 75  # sysexits.h calls it EX_TEMPFAIL

_DESCRIPTION = """\
Run a schema registry with Confluent's REST API, for any Kafka; what it stores is the compacted topic _schemas there.
Once it answers, it prints one JSON line on stdout; logs go to stderr. SIGTERM or SIGINT stops it cleanly."""


def main(arguments: Sequence[str]) -> int:
    """The exit code: 0 after a clean stop, 1 if the registry cannot run, 2 for a wrong call, 75 if it may run later."""
    parser = registry_parser()
    options = parser.parse_args(arguments)
    logging.basicConfig(
        level=logging.INFO, stream=sys.stderr, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    try:
        if options.hash_password:
            from suiro.foundation.http import hash_password

            print(
                hash_password(
                    getpass.getpass("password: ") if sys.stdin.isatty() else sys.stdin.readline().strip()
                )
            )
            return 0
        if options.bootstrap is None:
            parser.error("--bootstrap is missing: the Kafka whose topic holds the schemas, HOST:PORT")
        from suiro.config import read_properties
        from suiro.foundation.settings import parse_address
        from suiro.registry import RegistryConfig, serve

        host, port = parse_address(options.listen)
        settings: dict[str, str | int] = {}
        if options.client_config is not None:
            settings.update(read_properties(options.client_config))
        serve(
            RegistryConfig(
                bootstrap_servers=options.bootstrap,
                host=host,
                port=port,
                topic=options.topic,
                replication_factor=options.replication_factor,
                client_settings=settings,
                users=options.auth_file,
                tls_certificate=options.tls_certificate,
                tls_key=options.tls_key,
            ),
            listener=None if options.listen_fd is None else socket.socket(fileno=options.listen_fd),
            while_stdin_is_open=options.while_stdin_is_open,
        )
    except (SuiroError, OSError) as error:
        print(f"suiro registry: {error}", file=sys.stderr)
        return TRY_LATER if isinstance(error, TransientError) else 1
    return 0


def registry_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="suiro registry", description=_DESCRIPTION, allow_abbrev=False)
    parser.add_argument("--bootstrap", metavar="HOST:PORT", help="the Kafka to use, several with commas")
    parser.add_argument(
        "--listen",
        metavar="HOST:PORT",
        default="127.0.0.1:8081",
        help="default: 127.0.0.1:8081; port 0: a free one",
    )
    parser.add_argument("--topic", metavar="NAME", default="_schemas", help="default: _schemas")
    parser.add_argument(
        "--replication-factor",
        type=int,
        metavar="N",
        default=-1,
        help="copies of that topic, where it is made now; default: the broker's. Give 3 where there are 3 brokers",
    )
    parser.add_argument(
        "--client-config",
        type=Path,
        metavar="FILE",
        help="how to reach that Kafka, by the names of Kafka's clients: security.protocol, sasl.mechanism...",
    )
    parser.add_argument(
        "--auth-file",
        type=Path,
        metavar="FILE",
        help="who may call: lines of name:password, or name:HASH as --hash-password prints it, below [viewer], "
        "[operator] or [admin]; absent: anybody",
    )
    parser.add_argument(
        "--hash-password", action="store_true", help="ask for a password, print its hash, and end"
    )
    parser.add_argument(
        "--tls-certificate", type=Path, metavar="FILE", help="PEM, with its chain: serve https"
    )
    parser.add_argument("--tls-key", type=Path, metavar="FILE", help="PEM")
    # For `suiro node --registry`: a socket that listens already, and an end when the node ends.
    parser.add_argument("--listen-fd", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--while-stdin-is-open", action="store_true", help=argparse.SUPPRESS)
    return parser
