"""How clients log in at each listener: the mechanisms that its settings enable, and one login's course.

    connected --SaslHandshake--> mechanism chosen --SaslAuthenticate, once or more--> logged in
    logged in --SaslHandshake, where logins expire--> mechanism chosen, and so on (KIP-368)

While a client logs in, `Connection.authenticated` is false and nothing else is answered; the login's state is in
`Connection.sasl`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from suiro.broker.security.sasl import PlainServer, SaslServer, plain_users
from suiro.broker.security.scram import HASHES, ScramServer
from suiro.broker.security.scram_store import ScramStore
from suiro.clock import Clock
from suiro.config import NodeSettings, node_setting_names
from suiro.errors import ConfigError
from suiro.foundation.jaas import parse_jaas

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER")


@dataclass(slots=True, kw_only=True)
class Login:
    """One login of one connection. `server` is None once it is over."""

    mechanism: str
    server: SaslServer | None
    began_ms: int
    bare: bool = False
    """The client chose the mechanism by version 0: its messages come without a request around them."""
    renews: tuple[str, str] | None = None
    """Mechanism and principal of the login before it on this connection; they must stay."""
    principal: str = ""
    expires: bool = False


class ListenerLogins:
    """The mechanisms of one listener. Raises `ConfigError` where one cannot work as it is set."""

    def __init__(self, listener: str, settings: NodeSettings, scram: ScramStore, *, clock: Clock) -> None:
        own = settings.for_listener(listener)
        names = dict.fromkeys(part for part in own.sasl_enabled_mechanisms.split(",") if part)
        source = f"listener {listener}"
        if not names or not set(names) <= set(MECHANISMS):
            raise ConfigError(
                f"{source}: sasl.enabled.mechanisms = {own.sasl_enabled_mechanisms!r}: a node has "
                f"{', '.join(MECHANISMS)}"
            )
        self.mechanisms = tuple(names)
        self._settings = settings
        self._listener = listener
        self._scram = scram
        self._users: dict[str, str] = {}
        if "PLAIN" in names:
            where = f"{source}: plain.sasl.jaas.config"
            text = settings.for_listener(listener, "PLAIN").sasl_jaas_config
            self._users = plain_users(parse_jaas(text, source=where), source=where)
        if "OAUTHBEARER" in names:
            from suiro.broker.security.oauth import TokenValidator

            of_tokens = settings.for_listener(listener, "OAUTHBEARER")
            self._tokens = TokenValidator(of_tokens, clock=clock, source=source)

    def server(self, mechanism: str) -> SaslServer:
        """The server's half of one login by one of `mechanisms`."""
        if mechanism == "PLAIN":
            return PlainServer(self._users)
        if mechanism == "OAUTHBEARER":
            from suiro.broker.security.oauth import OAuthServer

            return OAuthServer(self._tokens)
        return ScramServer(partial(self._scram.find, mechanism), hash_name=HASHES[mechanism])

    def lifetime_ms(self, mechanism: str, *, expires_at_ms: int | None, now_ms: int) -> int | None:
        """For how long a login holds; None: for as long as the connection."""
        longest = self._settings.for_listener(self._listener, mechanism).connections_max_reauth_ms
        if expires_at_ms is None:
            return longest or None
        left = max(0, expires_at_ms - now_ms)
        return min(left, longest) if longest else left


class Logins:
    """The logins of every listener, made when first needed. `of` raises `ConfigError`."""

    def __init__(self, settings: NodeSettings, scram: ScramStore, *, clock: Clock) -> None:
        self._settings = settings
        self._scram = scram
        self._clock = clock
        self._by_listener: dict[str, ListenerLogins] = {}

    def check(self, settings: NodeSettings) -> None:
        """Raises `ConfigError` where a listener that clients log in at could not work by these settings."""
        if _of_logins(settings) != _of_logins(self._settings):
            for listener in self._by_listener:
                ListenerLogins(listener, settings, self._scram, clock=self._clock)

    def settings_changed(self, settings: NodeSettings) -> None:
        """Use these settings for new logins."""
        if _of_logins(settings) != _of_logins(self._settings):
            self._by_listener = {
                listener: ListenerLogins(listener, settings, self._scram, clock=self._clock)
                for listener in self._by_listener
            }
        self._settings = settings

    def of(self, listener: str) -> ListenerLogins:
        found = self._by_listener.get(listener)
        if found is None:
            found = ListenerLogins(listener, self._settings, self._scram, clock=self._clock)
            self._by_listener[listener] = found
        return found


def _of_logins(settings: NodeSettings) -> tuple[object, ...]:
    """The settings that logins depend on."""
    names = (name for name in node_setting_names() if name.startswith("sasl."))
    every = tuple(settings.value(name) for name in names)
    return (*every, settings.connections_max_reauth_ms, settings.listener_settings)
