"""Logins of the console by an OpenID Connect provider, and those who try to get in without one."""

from __future__ import annotations

import base64
import json
import re
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from joserfc.jwk import RSAKey
from starlette.responses import JSONResponse, Response
from support.oidc_console import PLAIN, ROLES, Served, log_in, me
from support.oidc_provider import CLIENT_ID, OidcProvider

from suiro.clock import ShiftedClock
from suiro.console.web import ConsoleServer, ConsoleSettings
from suiro.console.web import login as login_module
from suiro.console.web import login as sessions_module
from suiro.console.web.api import overview
from suiro.console.web.login import LoginSessions
from suiro.console.web.oidc import KEYS_AGAIN_MS, Identity, OidcSettings
from suiro.errors import ConfigError
from suiro.foundation.http import Role, Users


@pytest.fixture(scope="module")
def running() -> Iterator[OidcProvider]:
    provider = OidcProvider()
    yield provider
    provider.stop()


@pytest.fixture
def provider(running: OidcProvider) -> OidcProvider:
    running.reset()
    return running


@pytest.fixture
def served(provider: OidcProvider) -> Iterator[Served]:
    running = Served(provider.issuer)
    yield running
    running.stop()


@pytest.fixture(scope="module")
def shared(running: OidcProvider) -> Iterator[Served]:
    """For tests that turn no clock and look at no counts."""
    console = Served(running.issuer)
    yield console
    console.stop()


def test_a_login_has_a_session_of_its_role_until_it_logs_out(served: Served, provider: OidcProvider) -> None:
    browser = served.browser()
    assert browser.get("/").status_code == 200  # the page itself
    refused = browser.get("/api/v1/me")
    assert refused.status_code == 401
    assert refused.json()["login"] == "/login"
    assert "www-authenticate" not in refused.headers  # a browser would ask for a password
    answer = log_in(browser, "/login?to=%23%2Ftopics%2Forders")
    assert (answer.status_code, answer.headers["location"]) == (303, "/#/topics/orders")
    cookies = answer.headers.get_list("set-cookie")
    session = next(one for one in cookies if "-session=" in one)
    assert {"HttpOnly", "SameSite=Strict", "Path=/"} <= set(session.split("; "))
    assert next(one for one in cookies if "-login=" in one).split("; ")[1] == "Max-Age=0"
    found = me(browser)
    assert (found["user"], found["role"], found["can_log_out"]) == ("ada", "admin", True)
    kept = dict(browser.cookies)
    ended = browser.post("/logout", json={})
    assert ended.json()["url"].startswith(f"{provider.issuer}/end?id_token_hint=ey")
    assert me(browser) == 401
    assert httpx.get(f"{served.url}/api/v1/me", cookies=kept, verify=PLAIN).status_code == 401  # a copy of the cookie
    assert [(one.user, one.what) for one in served.console.audit()[::-1]] == [
        ("ada", "login as admin"),
        ("ada", "logout"),
    ]


@pytest.mark.parametrize(
    ("claims", "role"),
    [
        ({"roles": ["kafka"]}, "viewer"),
        ({"roles": ["kafka", "ops", "else"]}, "operator"),
        ({"roles": "ops"}, "operator"),
        ({"roles": []}, None),
        ({"roles": None}, None),
        ({"roles": {"kafka-admins": True}}, None),
        ({"roles": [["kafka-admins"]]}, None),
    ],
)
def test_the_claim_says_the_role(
    shared: Served, provider: OidcProvider, claims: dict[str, Any], role: str | None
) -> None:
    provider.claims.update(claims)
    browser = shared.browser()
    answer = log_in(browser)
    if role is None:
        assert (answer.status_code, me(browser)) == (403, 401)
        assert "You have no role here" in answer.text
    else:
        assert me(browser)["role"] == role
        refused = browser.post("/api/v1/topics/orders/delete", json={"confirm": "orders"})
        assert refused.status_code == 403


def test_a_claim_within_claims_and_a_role_for_everybody(provider: OidcProvider) -> None:
    provider.claims.update({"realm_access": {"roles": ["ops"]}, "email": "ada@example.com"})
    for roles, expected in ((ROLES, "operator"), ((("*", Role.VIEWER),), "viewer")):
        served = Served(provider.issuer, roles=roles, role_claim="realm_access.roles", user_claim="email")
        try:
            browser = served.browser()
            log_in(browser)
            assert (me(browser)["user"], me(browser)["role"]) == ("ada@example.com", expected)
        finally:
            served.stop()


def test_users_of_a_file_have_their_passwords_beside(provider: OidcProvider, tmp_path: Path) -> None:
    path = tmp_path / "users"
    path.write_text("[viewer]\nvera:secret\n")
    served = Served(provider.issuer, Users(path))
    try:
        browser = served.browser()
        found = browser.get("/api/v1/me", auth=("vera", "secret")).json()
        assert (found["user"], found["role"], found["can_log_out"]) == ("vera", "viewer", False)
        refused = browser.get("/api/v1/me", auth=("vera", "guess"))
        assert refused.status_code == 401
        assert refused.headers["www-authenticate"].startswith("Basic")
        assert browser.get("/api/v1/me").status_code == 401
    finally:
        served.stop()


# -- tokens that are not the provider's, or not for this login -----------------------------------------------------


def _unsigned(claims: dict[str, Any]) -> str:
    parts = [json.dumps(part).encode() for part in ({"alg": "none", "kid": "one"}, claims)]
    return ".".join(base64.urlsafe_b64encode(part).rstrip(b"=").decode() for part in parts) + "."


def _altered(token: str) -> str:
    """Another user in it, and the old signature."""
    head, payload, signature = token.split(".")
    claims = json.loads(base64.urlsafe_b64decode(payload + "=="))
    claims["sub"] = "root"
    changed = base64.urlsafe_b64encode(json.dumps(claims).encode()).rstrip(b"=").decode()
    return f"{head}.{changed}.{signature}"


@cache
def another_key() -> RSAKey:
    return RSAKey.generate_key(2048, {"kid": "one"})


WRONG_TOKENS: dict[str, Any] = {
    "algorithm none": lambda provider, claims: _unsigned(claims),
    "a secret that all know": lambda provider, claims: provider.signed_with_public_key(claims),
    "a key of another": lambda provider, claims: provider.signed(claims, key=another_key()),
    "the key is in the token": lambda provider, claims: provider.signed(
        claims, key=another_key(), kid="two", jwk=another_key().as_dict(private=False)
    ),
    "altered": lambda provider, claims: _altered(provider.signed(claims)),
    "no token": lambda provider, claims: "eyJ",
    "very long": lambda provider, claims: provider.signed({**claims, "more": "x" * 100_000}),
    "another audience": lambda provider, claims: provider.signed({**claims, "aud": "others"}),
    "audiences, for another": lambda provider, claims: provider.signed(
        {**claims, "aud": ["others", CLIENT_ID], "azp": "others"}
    ),
    "no audience": lambda provider, claims: provider.signed({**claims, "aud": []}),
    "another issuer": lambda provider, claims: provider.signed({**claims, "iss": "https://example.com"}),
    "expired": lambda provider, claims: provider.signed({**claims, "exp": claims["iat"] - 120}),
    "not yet": lambda provider, claims: provider.signed({**claims, "nbf": claims["iat"] + 600}),
    "from the future": lambda provider, claims: provider.signed({**claims, "iat": claims["iat"] + 600}),
    "without end": lambda provider, claims: provider.signed({k: v for k, v in claims.items() if k != "exp"}),
    "another login's": lambda provider, claims: provider.signed({**claims, "nonce": "other"}),
    "no nonce": lambda provider, claims: provider.signed({k: v for k, v in claims.items() if k != "nonce"}),
    "an empty nonce": lambda provider, claims: provider.signed({**claims, "nonce": ""}),
    "nobody": lambda provider, claims: provider.signed({**claims, "sub": ""}),
    "a name of lines": lambda provider, claims: provider.signed({**claims, "sub": "ada\nroot: login"}),
    "a number": lambda provider, claims: provider.signed({**claims, "sub": 7}),
    "another access token": lambda provider, claims: provider.signed({**claims, "at_hash": "AAAA"}),
    "times of text": lambda provider, claims: provider.signed({**claims, "exp": "never"}),
}


@pytest.mark.parametrize("wrong", WRONG_TOKENS)
def test_a_token_that_is_not_right_lets_nobody_in(
    shared: Served, provider: OidcProvider, wrong: str, caplog: pytest.LogCaptureFixture
) -> None:
    provider.token = lambda claims: WRONG_TOKENS[wrong](provider, claims)
    browser = shared.browser()
    answer = log_in(browser)
    assert (answer.status_code, me(browser), "set-cookie" in answer.headers) == (400, 401, False)
    assert "a login failed" in caplog.text
    provider.token = provider.signed
    log_in(browser)
    assert me(browser)["user"] == "ada"


def test_a_new_key_is_found_and_unknown_names_ask_seldom(served: Served, provider: OidcProvider) -> None:
    log_in(served.browser())
    second = RSAKey.generate_key(2048, {"kid": "two", "use": "sig"})
    provider.token = lambda claims: provider.signed(claims, key=second, kid="two")
    provider.published = [provider.key, second]
    for _ in range(3):
        assert log_in(served.browser()).status_code == 400
    assert provider.asked["/keys"] == 1
    served.clock.advance(KEYS_AGAIN_MS)
    browser = served.browser()
    log_in(browser)
    assert me(browser)["user"] == "ada"
    assert provider.asked["/keys"] == 2


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/keys", "/token"])
@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Response(status_code=500),
        lambda: Response(b" " * 1_000_000),
        lambda: Response(b"<html>"),
        lambda: JSONResponse([1]),
        lambda: Response(b"[" * 100_000),
        lambda: Response(b'{"expires_in": {"a": 1}}'),
        lambda: Response(b'{"expires_in": 1e999}'),
        lambda: JSONResponse({"issuer": "https://example.com", "keys": [{"kty": "oct", "k": "AAAA" * 8}, 7]}),
    ],
    ids=["fails", "large", "html", "list", "deep", "no number", "infinite", "other"],
)
def test_a_provider_that_answers_with_something_else(
    served: Served, provider: OidcProvider, path: str, wrong: Any
) -> None:
    provider.answers[path] = wrong
    browser = served.browser()
    assert log_in(browser).status_code in (400, 503)
    assert me(browser) == 401
    provider.answers.clear()
    served.clock.advance(60_000)
    log_in(browser)
    assert me(browser)["user"] == "ada"


# -- the way there and back ----------------------------------------------------------------------------------------


def begun(browser: httpx.Client) -> tuple[str, dict[str, str]]:
    """The address at the console to which the provider sends back, and the cookies until then."""
    at_provider = browser.get("/login").headers["location"]
    return browser.get(at_provider).headers["location"], dict(browser.cookies)


def test_a_state_counts_once(shared: Served) -> None:
    browser = shared.browser()
    back, cookies = begun(browser)
    assert browser.get(back).status_code == 303
    replayed = httpx.get(back, cookies=cookies, verify=PLAIN)
    assert (replayed.status_code, "set-cookie" in replayed.headers) == (400, False)
    assert "used already" in replayed.text


def test_a_login_of_another_browser_is_none_here(served: Served) -> None:
    """Who sends somebody the end of a login of theirs would have them work under a name of others."""
    back, _ = begun(served.browser())
    victim = served.browser()
    assert victim.get(back).status_code == 400
    victim.get("/login")  # a login of their own is under way
    assert victim.get(back).status_code == 400
    assert len(served.login.sessions) == 0


@pytest.mark.parametrize(
    "change",
    [
        lambda cookie: cookie.replace(".", "x."),
        lambda cookie: base64.urlsafe_b64encode(b'{"state":"s"}').decode() + "." + "0" * 64,
        lambda cookie: "",
        lambda cookie: "é." + cookie,
    ],
    ids=["altered", "made up", "none", "no ascii"],
)
def test_a_cookie_that_is_not_ours(shared: Served, change: Any) -> None:
    back, cookies = begun(shared.browser())
    ((name, value),) = cookies.items()
    header = f"{name}={change(value)}".encode()
    assert httpx.get(back, headers={b"cookie": header}, verify=PLAIN).status_code == 400


def test_a_login_has_an_end(served: Served) -> None:
    browser = served.browser()
    back, _ = begun(browser)
    served.clock.advance(login_module.LOGIN_LASTS_S * 1_000)
    assert browser.get(back).status_code == 400


def test_a_refusal_of_the_provider_is_shown_as_text(shared: Served) -> None:
    browser = shared.browser()
    state = parse_qs(urlsplit(browser.get("/login").headers["location"]).query)["state"][0]
    answer = browser.get("/login/callback", params={"state": state, "error": "<script>alert(1)</script>"})
    assert answer.status_code == 403
    assert "&lt;script&gt;" in answer.text
    assert "<script" not in answer.text


@pytest.mark.parametrize(
    "to",
    [
        "https://example.com",
        "//example.com",
        "/\\example.com",
        "javascript:alert(1)",
        "#/a\r\nset-cookie: a=b",
        "#\\example.com",
        "#/" + "x" * 2_000,
        "",
    ],
)
def test_a_login_ends_on_this_page_only(shared: Served, to: str) -> None:
    browser = shared.browser()
    answer = browser.get("/login", params={"to": to})
    while answer.is_redirect and not answer.headers["location"].startswith("/"):
        answer = browser.get(answer.headers["location"])
    assert answer.headers["location"] == "/#/"
    assert "a=b" not in str(answer.headers)


def test_the_way_back_does_not_depend_on_who_asks(shared: Served) -> None:
    answer = httpx.get(
        f"{shared.url}/login",
        headers={"Host": "example.com", "X-Forwarded-Host": "example.com"},
        verify=PLAIN,
    )
    query = parse_qs(urlsplit(answer.headers["location"]).query)
    assert query["redirect_uri"] == [f"{shared.url}/login/callback"]
    assert query["scope"] == ["openid profile"]


def test_strangers_who_begin_logins_have_nothing_kept(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login_module, "USED_STATES_MAX", 5)
    browser = served.browser()
    for _ in range(8):
        state = parse_qs(urlsplit(browser.get("/login").headers["location"]).query)["state"][0]
        browser.get("/login/callback", params={"state": state, "code": "guess"})
    assert len(served.login._used) <= 5
    assert len(served.login.sessions) == 0


def test_one_address_does_not_take_all_turns(
    served: Served, provider: OidcProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(login_module, "LOGINS_OF_ADDRESS_AT_ONCE", 1)
    browser, other = served.browser(), served.browser()
    back, _ = begun(browser)
    asked, released = threading.Event(), threading.Event()

    def slow(**_: Any) -> Identity:
        asked.set()
        assert released.wait(60)
        return Identity(user="ada", role=Role.VIEWER, id_token="")

    monkeypatch.setattr(served.login._provider, "identify", slow)
    first = threading.Thread(target=browser.get, args=(back,))
    first.start()
    assert asked.wait(60)
    assert other.get("/login").status_code == 503
    assert other.get("/").status_code == 200  # nobody else waits
    released.set()
    first.join(60)
    assert other.get("/login").status_code == 303


# -- sessions --------------------------------------------------------------------------------------------------------


def test_a_session_has_an_end_and_so_have_its_streams(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(overview, "KEEP_ALIVE_S", 0.05)
    browser = served.browser()
    log_in(browser)
    with browser.stream("GET", "/api/v1/events") as events:
        lines = events.iter_lines()
        assert next(lines) == "event: hello"
        served.clock.advance(479 * 60_000)
        for _ in range(3):
            assert next(line for line in lines if line.startswith(":"))
        served.clock.advance(60_000)
        assert list(lines)[-1:] in ([], [""])  # it ends
    assert me(browser) == 401


def test_other_sites_give_no_commands_with_a_session(shared: Served) -> None:
    browser = shared.browser()
    log_in(browser)
    body = {"name": "mine"}
    for headers in (
        {"Origin": "https://example.com"},
        {"Sec-Fetch-Site": "cross-site"},
        {"Sec-Fetch-Site": "same-site"},
    ):
        assert browser.post("/api/v1/topics", json=body, headers=headers).status_code == 403
        assert browser.post("/logout", json={}, headers=headers).status_code == 403
    as_form = {"Content-Type": "text/plain"}
    assert browser.post("/api/v1/topics", content=json.dumps(body), headers=as_form).status_code == 415
    assert browser.get("/api/v1/me", headers={"Sec-Fetch-Site": "cross-site"}).status_code == 403
    assert browser.get("/logout").status_code == 404
    assert me(browser)["user"] == "ada"


def test_a_cookie_that_is_there_twice_is_none(shared: Served) -> None:
    browser = shared.browser()
    log_in(browser)
    ((name, value),) = dict(browser.cookies).items()
    for header, status in ((f"{name}={value}", 200), (f"{name}=x; {name}={value}", 401), ("=; ;;" * 9, 401)):
        assert httpx.get(f"{shared.url}/api/v1/me", headers={"Cookie": header}, verify=PLAIN).status_code == status


def test_sessions_are_bounded_by_user_and_in_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions_module, "SESSIONS_MAX", 6)
    monkeypatch.setattr(sessions_module, "SESSIONS_OF_USER_MAX", 3)
    sessions = LoginSessions(cookie="c", login_path="/login", lasts_ms=1_000, clock=ShiftedClock())

    def begin(user: str) -> str:
        return "c=" + sessions.begin(Identity(user=user, role=Role.VIEWER, id_token=""))

    mine = [begin("ada") for _ in range(5)]
    assert [sessions.known(one) is not None for one in mine] == [False, False, True, True, True]
    for number in range(6):
        begin(f"user {number}")
    assert len(sessions) == 6
    assert not any(sessions.known(one) for one in mine)


# -- what a console is told --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"issuer": "http://login.example.com"}, "--oidc-issuer: .* must be https"),
        ({"issuer": "login.example.com"}, "is no https://"),
        ({"issuer": "https://login.example.com:x"}, "is no https://"),
        ({"url": "http://console.example.com"}, "--oidc-url: .* must be https"),
        ({"url": "https://console.example.com/kafka"}, "leave the path out"),
        ({"client_id": ""}, "--oidc-client-id"),
        ({"roles": ()}, "--oidc-role"),
        ({"scope": "profile"}, "must have openid"),
        ({"session_minutes": 0}, "--oidc-session-minutes"),
    ],
)
def test_settings_that_cannot_be_meant(wrong: dict[str, Any], message: str) -> None:
    settings = {"issuer": "https://login.example.com", "client_id": CLIENT_ID, "roles": ROLES, **wrong}
    with pytest.raises(ConfigError, match=message):
        OidcSettings(**settings)


def test_roles_are_read_as_they_are_said() -> None:
    assert OidcSettings.parse_roles(["a=b=admin", "*=viewer"]) == (("a=b", Role.ADMIN), ("*", Role.VIEWER))
    for wrong in ("admin", "=admin", "a=root", "a="):
        with pytest.raises(ConfigError, match="expected VALUE=ROLE"):
            OidcSettings.parse_roles([wrong])


def test_beyond_this_machine_cookies_are_for_https_and_this_host_alone(provider: OidcProvider) -> None:
    served = Served(provider.issuer, url="https://console.example.com")
    try:
        answer = served.browser().get("/login")
        (cookie,) = answer.headers.get_list("set-cookie")
        assert re.match(r"__Host-suiro-login=\S+; Max-Age=600; Path=/; HttpOnly; SameSite=Lax; Secure$", cookie)
        query = parse_qs(urlsplit(answer.headers["location"]).query)
        assert query["redirect_uri"] == ["https://console.example.com/login/callback"]
    finally:
        served.stop()


def test_a_console_starts_without_its_provider_and_without_users() -> None:
    with socket.socket() as nobody:  # bound, and nobody listens
        nobody.bind(("127.0.0.1", 0))
        _starts_without(f"http://127.0.0.1:{nobody.getsockname()[1]}")


def _starts_without(issuer: str) -> None:
    oidc = OidcSettings(issuer=issuer, client_id=CLIENT_ID, roles=ROLES)
    console = ConsoleServer(ConsoleSettings(bootstrap_servers="127.0.0.1:1", port=0, oidc=oidc))
    try:
        answer = httpx.get(f"{console.url}/login", timeout=60, verify=PLAIN)
        assert (answer.status_code, "does not answer" in answer.text) == (503, True)
        assert httpx.get(f"{console.url}/api/v1/me", verify=PLAIN).status_code == 401
    finally:
        console.stop()


def test_authlib_is_not_loaded_where_nobody_logs_in_by_it() -> None:
    program = (
        "import sys; from suiro.console.web import ConsoleServer, ConsoleSettings; "
        "ConsoleServer(ConsoleSettings(bootstrap_servers='127.0.0.1:1', port=0)).stop(); "
        "assert not {'authlib', 'joserfc', 'cryptography'} & set(sys.modules), sorted(sys.modules)"
    )
    subprocess.run([sys.executable, "-c", program], check=True, timeout=120)
