"""`suiro registry`."""

from __future__ import annotations

import socket
import sys
from pathlib import Path

from suiro.cli.command_groups import Group, option
from suiro.cli.everyday import BOOTSTRAP_SERVERS, ask_password, log_to_stderr, note
from suiro.cli.services import CLIENT_CONFIG, LISTEN, LISTEN_FD, TLS_CERTIFICATE, TLS_KEY, WHILE_STDIN_IS_OPEN
from suiro.errors import SuiroError, TransientError

TRY_LATER = 75  # sysexits.h calls it EX_TEMPFAIL

registry = Group("registry")


@registry.itself
def registry_(
    bootstrap_servers: str = BOOTSTRAP_SERVERS,
    listen: str = option("127.0.0.1:8081", LISTEN, "HOST:PORT"),
    topic: str = option("_schemas", "Topic that stores the schemas.", "NAME"),
    replication_factor: int = option(
        -1, "Replicas of that topic, if the registry creates it. Default: the broker's.", "N"
    ),
    client_config: Path | None = CLIENT_CONFIG,
    auth_file: Path | None = option(
        None,
        "File of users: lines of name:password, or name:HASH from --hash-password, in sections [viewer], [operator] "
        "and [admin]. Default: every client may do everything.",
        "FILE",
    ),
    hash_password: bool = option(False, "Ask for a password, print its hash, and exit."),
    tls_certificate: Path | None = TLS_CERTIFICATE,
    tls_key: Path | None = TLS_KEY,
    listen_fd: int | None = LISTEN_FD,
    while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN,
) -> None:
    """Run a schema registry with Confluent's REST API. It stores its data in the compacted topic _schemas of any Kafka.

    When it is ready, it prints one JSON line on stdout; logs go to stderr. SIGTERM or SIGINT stops it with exit status
    0. The exit status is 1 if the registry cannot run, and 75 if a later start may succeed.
    """
    log_to_stderr()
    try:
        if hash_password:
            from suiro.foundation.http import hash_password as hash_of

            print(hash_of(ask_password()))
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
