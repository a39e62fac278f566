"""`suiro console`."""

from __future__ import annotations

import socket
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

from suiro.cli.command_groups import Group, option, options
from suiro.cli.everyday import (
    REGISTRY,
    Connection,
    connection_settings,
    log_to_stderr,
    profile_of,
    registry_url,
    reporting,
)
from suiro.cli.services import LISTEN, LISTEN_FD, TLS_CERTIFICATE, TLS_KEY, WHILE_STDIN_IS_OPEN

if TYPE_CHECKING:
    from suiro.console.web import Remote
    from suiro.console.web.oidc import OidcSettings

console = Group("console")


@options
class _Oidc:
    oidc_issuer: str | None = option(
        None, "OpenID Connect provider at which users log in. Needs suiro[console-oidc].", "URL"
    )
    oidc_client_id: str = option("", "Client id of the console at the provider.", "ID")
    oidc_client_secret_file: Path | None = option(
        None, "File of the client secret. Without it, the console is a public client, with PKCE.", "FILE"
    )
    oidc_role: list[str] | None = option(
        None,
        "Role (viewer, operator, admin) of users whose claim has this value; '*=viewer': of every user. Repeatable.",
        "VALUE=ROLE",
    )
    oidc_role_claim: str = option(
        "roles", "Claim of the ID token that has these values: roles, groups, realm_access.roles.", "NAME"
    )
    oidc_user_claim: str = option("sub", "Claim that names the user in lists of changes.", "NAME")
    oidc_scope: str = option(
        "openid profile", "Scopes to request from the provider. Default: 'openid profile'.", "SCOPES"
    )
    oidc_url: str | None = option(
        None, "Address of the console in the browser, if it differs from --listen, for example behind a proxy.", "URL"
    )
    oidc_session_minutes: int = option(480, "Length of a session.", "N")

    def settings(self) -> OidcSettings | None:
        """Raises `ConfigError`."""
        from suiro.errors import ConfigError

        more = {name.removeprefix("oidc_"): value for name, value in asdict(self).items()}
        file, roles, secret = more.pop("client_secret_file"), more.pop("role") or (), None
        if self.oidc_issuer is None:
            if file is not None or roles or self.oidc_client_id or self.oidc_url:
                raise ConfigError("the options --oidc-... need --oidc-issuer")
            return None
        from suiro.console.web.oidc import OidcSettings

        if file is not None:
            secret = _text_of(file, f"--oidc-client-secret-file {file}")
            if not secret:
                raise ConfigError(f"--oidc-client-secret-file {file}: it is empty")
        return OidcSettings(client_secret=secret, roles=OidcSettings.parse_roles(roles), **more)


@console.itself
def console_(
    connection: Connection,
    listen: str = option("127.0.0.1:8090", LISTEN, "HOST:PORT"),
    registry: str | None = REGISTRY,
    connect: list[str] | None = option(
        None,
        "Address of `suiro connect` or Kafka Connect; http://TOKEN@HOST:PORT if it has a token; @FILE reads it from a "
        "file. Repeatable.",
        "URL",
    ),
    views: list[str] | None = option(
        None,
        "Address of a view host; http://NAME:PASSWORD@HOST:PORT if it has users; @FILE reads it from a file. "
        "Repeatable.",
        "URL",
    ),
    app: list[str] | None = option(None, "Address of an application that runs with --console. Repeatable.", "URL"),
    auth_file: Path | None = option(
        None, "File of users: lines of name:password in sections [viewer], [operator] and [admin].", "FILE"
    ),
    *,
    oidc: _Oidc,
    tls_certificate: Path | None = TLS_CERTIFICATE,
    tls_key: Path | None = TLS_KEY,
    read_only: bool = option(False, "Make every user a viewer."),
    mask: list[str] | None = option(
        None,
        "Hide a field of records from all users except admins: 'orders.*=card.number'. Repeatable.",
        "TOPICS=FIELD",
    ),
    listen_fd: int | None = LISTEN_FD,
    while_stdin_is_open: bool = WHILE_STDIN_IS_OPEN,
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
                oidc=oidc.settings(),
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
