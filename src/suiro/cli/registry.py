"""`suiro registry`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path
from typing import Annotated

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import DEFAULT_BOOTSTRAP, BootstrapServers, ask_password, log_to_stderr, note
from suiro.cli.service_options import ClientConfig, Listen, ListenFd, TlsCertificate, TlsKey, WhileStdinIsOpen
from suiro.errors import SuiroError, TransientError

TRY_LATER = 75  # sysexits.h calls it EX_TEMPFAIL

registry = Group("registry", "")


@registry.itself
def registry_(
    bootstrap_servers: BootstrapServers = DEFAULT_BOOTSTRAP,
    listen: Listen = "127.0.0.1:8081",
    topic: Annotated[str, Option(metavar="NAME", help="Topic that stores the schemas.")] = "_schemas",
    replication_factor: Annotated[
        int, Option(metavar="N", help="Replicas of that topic, if the registry creates it. Default: the broker's.")
    ] = -1,
    client_config: ClientConfig = None,
    auth_file: Annotated[
        Path | None,
        Option(
            metavar="FILE",
            help="File of users: lines of name:password, or name:HASH from --hash-password, in "
            "sections [viewer], [operator] and [admin]. Default: every client may do everything.",
        ),
    ] = None,
    hash_password: Annotated[bool, Option(help="Ask for a password, print its hash, and exit.")] = False,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    listen_fd: ListenFd = None,
    while_stdin_is_open: WhileStdinIsOpen = False,
) -> None:
    """Run a schema registry with Confluent's REST API. It stores its data in the compacted topic _schemas of any Kafka.

    When it is ready, it prints one JSON line on stdout; logs go to stderr. SIGTERM or SIGINT stops it with exit status
    0. The exit status is 1 if the registry cannot run, and 75 if a later start may succeed.
    """
    log_to_stderr()
    try:
        if hash_password:
            _print_hash()
            return
        from suiro.config import read_properties
        from suiro.foundation.settings import parse_address
        from suiro.registry import RegistryConfig, serve

        host, port = parse_address(listen)
        serve(
            RegistryConfig(
                bootstrap_servers=bootstrap_servers,
                host=host,
                port=port,
                topic=topic,
                replication_factor=replication_factor,
                client_settings={} if client_config is None else dict(read_properties(client_config)),
                users=auth_file,
                tls_certificate=tls_certificate,
                tls_key=tls_key,
            ),
            listener=None if listen_fd is None else socket.socket(fileno=listen_fd),
            while_stdin_is_open=while_stdin_is_open,
        )
    except (SuiroError, OSError) as error:
        note(str(error), "suiro registry")
        sys.exit(TRY_LATER if isinstance(error, TransientError) else 1)


def _print_hash() -> None:
    from suiro.foundation.http import hash_password

    print(hash_password(ask_password()))
