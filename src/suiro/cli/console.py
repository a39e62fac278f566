"""`suiro console`."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from suiro.cli.command_groups import Group, Option
from suiro.cli.everyday import (
    Connection,
    Registry,
    connection_settings,
    log_to_stderr,
    profile_of,
    registry_url,
    reporting,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suiro.console.web import Remote
    from suiro.console.web.oidc import OidcSettings

console = Group(
    "console", "A page for the browser: everything that is known of a cluster and what runs on it."
)


@console.itself
def console_(
    connection: Connection,
    listen: Annotated[
        str, Option("--listen", "HOST:PORT", "Default: 127.0.0.1:8090; port 0: a free one.")
    ] = "127.0.0.1:8090",
    registry: Registry = None,
    connect: Annotated[
        list[str] | None,
        Option(
            "--connect",
            "URL",
            "The HTTP of a `suiro connect`; http://TOKEN@HOST:PORT where it has a token. Repeatable.",
        ),
    ] = None,
    views: Annotated[
        list[str] | None,
        Option(
            "--views",
            "URL",
            "A host of views; http://NAME:PASSWORD@HOST:PORT where it has users. Repeatable.",
        ),
    ] = None,
    app: Annotated[
        list[str] | None,
        Option("--app", "URL", "An application that runs with --console. Repeatable."),
    ] = None,
    auth_file: Annotated[
        Path | None,
        Option(
            "--auth-file",
            "FILE",
            "Who may call: lines of name:password below [viewer], [operator] or [admin].",
        ),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        Option(
            "--oidc-issuer",
            "URL",
            "People log in at this OpenID Connect provider. Needs suiro[console-oidc].",
        ),
    ] = None,
    oidc_client_id: Annotated[
        str, Option("--oidc-client-id", "ID", "What the provider calls this console.")
    ] = "",
    oidc_client_secret_file: Annotated[
        Path | None,
        Option(
            "--oidc-client-secret-file", "FILE", "Its secret there; absent: a public client, by PKCE alone."
        ),
    ] = None,
    oidc_role: Annotated[
        list[str] | None,
        Option(
            "--oidc-role",
            "VALUE=ROLE",
            "Whose claim has the value gets the role viewer, operator or admin; '*=viewer': everybody. Repeatable.",
        ),
    ] = None,
    oidc_role_claim: Annotated[
        str,
        Option(
            "--oidc-role-claim",
            "NAME",
            "The claim of the ID token with a user's values: roles, groups, realm_access.roles. Default: roles.",
        ),
    ] = "roles",
    oidc_user_claim: Annotated[
        str,
        Option("--oidc-user-claim", "NAME", "The claim that names a user in lists of changes. Default: sub."),
    ] = "sub",
    oidc_scope: Annotated[
        str, Option("--oidc-scope", "SCOPES", "What is asked of the provider. Default: 'openid profile'.")
    ] = "openid profile",
    oidc_url: Annotated[
        str | None,
        Option(
            "--oidc-url",
            "URL",
            "The console's address as browsers know it, where that is another: behind a proxy, under a name.",
        ),
    ] = None,
    oidc_session_minutes: Annotated[
        int, Option("--oidc-session-minutes", "N", "A login lasts so long. Default: 480.")
    ] = 480,
    tls_certificate: Annotated[
        Path | None, Option("--tls-certificate", "FILE", "PEM, with its chain: serve https.")
    ] = None,
    tls_key: Annotated[Path | None, Option("--tls-key", "FILE", "PEM.")] = None,
    read_only: Annotated[bool, Option("--read-only", help="Nobody changes anything through it.")] = False,
    mask: Annotated[
        list[str] | None,
        Option(
            "--mask",
            "TOPICS=FIELD",
            "Hide a field of records from all but admins: 'orders.*=card.number'. Repeatable.",
        ),
    ] = None,
    listen_fd: Annotated[int | None, Option("--listen-fd", hidden=True)] = None,
    while_stdin_is_open: Annotated[bool, Option("--while-stdin-is-open", hidden=True)] = False,
) -> None:
    """Serve the console. Once it answers, it prints one JSON line with its address; SIGTERM or SIGINT stops it."""
    log_to_stderr()
    with reporting():
        from suiro.console.web import ConsoleSettings, Masks, serve
        from suiro.foundation.http import Tls
        from suiro.foundation.settings import parse_address
        from suiro.registry import registry_client

        address, settings = connection_settings(connection)
        schemas = registry_url(registry, profile_of(connection))
        if schemas is not None:
            registry_client(schemas)  # refuses what is no address
        host, port = parse_address(listen, option="--listen")
        serve(
            ConsoleSettings(
                bootstrap_servers=address,
                client_settings=settings,
                host=host,
                port=port,
                users=auth_file,
                oidc=_oidc(
                    oidc_issuer,
                    secret_file=oidc_client_secret_file,
                    roles=oidc_role or (),
                    client_id=oidc_client_id,
                    role_claim=oidc_role_claim,
                    user_claim=oidc_user_claim,
                    scope=oidc_scope,
                    url=oidc_url,
                    session_minutes=oidc_session_minutes,
                ),
                tls=Tls.of(tls_certificate, tls_key, options="--tls-certificate and --tls-key"),
                read_only=read_only,
                masks=Masks.parse(mask or ()),
                registry=schemas,
                connect=tuple(_remote(url, "--connect") for url in connect or ()),
                views=tuple(_remote(url, "--views") for url in views or ()),
                apps=tuple(_remote(url, "--app") for url in app or ()),
            ),
            listener=None if listen_fd is None else socket.socket(fileno=listen_fd),
            while_stdin_is_open=while_stdin_is_open,
        )


def _oidc(
    issuer: str | None, *, secret_file: Path | None, roles: Sequence[str], **more: Any
) -> OidcSettings | None:
    """Raises `ConfigError`."""
    from suiro.errors import ConfigError

    if issuer is None:
        if secret_file is not None or roles or more["client_id"] or more["url"]:
            raise ConfigError("--oidc-... options say something of --oidc-issuer, which is not there")
        return None
    from suiro.console.web.oidc import OidcSettings

    secret = None
    if secret_file is not None:
        try:
            secret = secret_file.read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise ConfigError(f"--oidc-client-secret-file {secret_file}: {error}") from None
        if not secret:
            raise ConfigError(f"--oidc-client-secret-file {secret_file}: it is empty")
    return OidcSettings(issuer=issuer, client_secret=secret, roles=OidcSettings.parse_roles(roles), **more)


def _remote(url: str, option: str) -> Remote:
    """Raises `ConfigError`."""
    from urllib.parse import unquote, urlsplit

    from suiro.console.web import Remote
    from suiro.errors import ConfigError

    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        parts, port = urlsplit(""), None
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise ConfigError(f"{option}: expected http://HOST:PORT or https://HOST:PORT")
    host = f"[{parts.hostname}]" if ":" in parts.hostname else parts.hostname
    bare = f"{parts.scheme}://{host}" + (f":{port}" if port else "") + parts.path.rstrip("/")
    user = None if parts.username is None else unquote(parts.username)
    if parts.password is None:
        return Remote(url=bare, token=user)
    return Remote(url=bare, user=user, password=unquote(parts.password))
