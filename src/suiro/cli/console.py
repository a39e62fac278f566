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
from suiro.cli.service_options import Listen, ListenFd, TlsCertificate, TlsKey, WhileStdinIsOpen

if TYPE_CHECKING:
    from collections.abc import Sequence

    from suiro.console.web import Remote
    from suiro.console.web.oidc import OidcSettings

console = Group("console", "A web page and an HTTP API for a cluster and what runs on it.")


@console.itself
def console_(
    connection: Connection,
    listen: Listen = "127.0.0.1:8090",
    registry: Registry = None,
    connect: Annotated[
        list[str] | None,
        Option(
            "--connect",
            "URL",
            "Address of `suiro connect` or Kafka Connect; http://TOKEN@HOST:PORT if it has a token; @FILE "
            "reads it from a file. Repeatable.",
        ),
    ] = None,
    views: Annotated[
        list[str] | None,
        Option(
            "--views",
            "URL",
            "Address of a view host; http://NAME:PASSWORD@HOST:PORT if it has users; @FILE reads it from a file. "
            "Repeatable.",
        ),
    ] = None,
    app: Annotated[
        list[str] | None, Option("--app", "URL", "Address of an application that runs with --console. Repeatable.")
    ] = None,
    auth_file: Annotated[
        Path | None,
        Option(
            "--auth-file", "FILE", "File of users: lines of name:password in sections [viewer], [operator] and [admin]."
        ),
    ] = None,
    oidc_issuer: Annotated[
        str | None,
        Option("--oidc-issuer", "URL", "OpenID Connect provider at which users log in. Needs suiro[console-oidc]."),
    ] = None,
    oidc_client_id: Annotated[str, Option("--oidc-client-id", "ID", "Client id of the console at the provider.")] = "",
    oidc_client_secret_file: Annotated[
        Path | None,
        Option(
            "--oidc-client-secret-file",
            "FILE",
            "File of the client secret. Without it, the console is a public client, with PKCE.",
        ),
    ] = None,
    oidc_role: Annotated[
        list[str] | None,
        Option(
            "--oidc-role",
            "VALUE=ROLE",
            "Role (viewer, operator, admin) of users whose claim has this value; '*=viewer': of "
            "every user. Repeatable.",
        ),
    ] = None,
    oidc_role_claim: Annotated[
        str,
        Option(
            "--oidc-role-claim",
            "NAME",
            "Claim of the ID token that has these values: roles, groups, realm_access.roles. Default: roles.",
        ),
    ] = "roles",
    oidc_user_claim: Annotated[
        str, Option("--oidc-user-claim", "NAME", "Claim that names the user in lists of changes. Default: sub.")
    ] = "sub",
    oidc_scope: Annotated[
        str, Option("--oidc-scope", "SCOPES", "Scopes to request from the provider. Default: 'openid profile'.")
    ] = "openid profile",
    oidc_url: Annotated[
        str | None,
        Option(
            "--oidc-url",
            "URL",
            "Address of the console in the browser, if it differs from --listen, for example behind a proxy.",
        ),
    ] = None,
    oidc_session_minutes: Annotated[
        int, Option("--oidc-session-minutes", "N", "Length of a session. Default: 480.")
    ] = 480,
    tls_certificate: TlsCertificate = None,
    tls_key: TlsKey = None,
    read_only: Annotated[bool, Option("--read-only", help="Make every user a viewer.")] = False,
    mask: Annotated[
        list[str] | None,
        Option(
            "--mask",
            "TOPICS=FIELD",
            "Hide a field of records from all users except admins: 'orders.*=card.number'. Repeatable.",
        ),
    ] = None,
    listen_fd: ListenFd = None,
    while_stdin_is_open: WhileStdinIsOpen = False,
) -> None:
    """Serve the web console. When it is ready, it prints one JSON line with its address. SIGTERM or SIGINT stops it."""
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


def _oidc(issuer: str | None, *, secret_file: Path | None, roles: Sequence[str], **more: Any) -> OidcSettings | None:
    """Raises `ConfigError`."""
    from suiro.errors import ConfigError

    if issuer is None:
        if secret_file is not None or roles or more["client_id"] or more["url"]:
            raise ConfigError("the options --oidc-... need --oidc-issuer")
        return None
    from suiro.console.web.oidc import OidcSettings

    secret = None
    if secret_file is not None:
        secret = _text_of(secret_file, f"--oidc-client-secret-file {secret_file}")
        if not secret:
            raise ConfigError(f"--oidc-client-secret-file {secret_file}: it is empty")
    return OidcSettings(issuer=issuer, client_secret=secret, roles=OidcSettings.parse_roles(roles), **more)


def _remote(url: str, option: str) -> Remote:
    """Raises `ConfigError`."""
    from urllib.parse import unquote, urlsplit

    from suiro.console.web import Remote
    from suiro.errors import ConfigError

    if url.startswith("@"):
        url = _text_of(Path(url[1:]), f"{option} {url}")
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


def _text_of(file: Path, option: str) -> str:
    """Raises `ConfigError`."""
    from suiro.errors import ConfigError

    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"{option}: {error}") from None
