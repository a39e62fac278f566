"""Tokens: what a good one gives, what is refused, and that keys can be exchanged while the node runs."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, rsa

from suiro.broker.security.oauth import OAuthServer, TokenValidator
from suiro.broker.security.sasl import LoginRefusedError
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.errors import ConfigError

NOW_S = 1_000_000_000
KEYS: dict[str, Any] = {
    "rsa": rsa.generate_private_key(public_exponent=65537, key_size=2048),
    "ec": ec.generate_private_key(ec.SECP256R1()),
    "other": ec.generate_private_key(ec.SECP256R1()),
}
ALGORITHMS = {"rsa": "RS256", "ec": "ES256", "other": "ES256"}


def public(name: str, **fields: str) -> dict[str, Any]:
    algorithm = jwt.get_algorithm_by_name(ALGORITHMS[name])
    return {**algorithm.to_jwk(KEYS[name].public_key(), as_dict=True), "kid": name, **fields}  # type: ignore[attr-defined]


def token(key: str = "rsa", *, kid: str | None = None, alg: str | None = None, **claims: Any) -> str:
    content = {"sub": "alice", "iat": NOW_S - 10, "exp": NOW_S + 60, **claims}
    content = {name: value for name, value in content.items() if value is not None}
    return jwt.encode(content, KEYS[key], algorithm=alg or ALGORITHMS[key], headers={"kid": kid or key})


@pytest.fixture
def jwks(tmp_path: Path) -> Path:
    path = tmp_path / "jwks.json"
    path.write_text(json.dumps({"keys": [public("rsa"), public("ec"), {"kty": "odd"}, "odd"]}))
    return path


@pytest.fixture
def validator(jwks: Path) -> Callable[..., TokenValidator]:
    def make(clock: ManualClock | None = None, **settings: str) -> TokenValidator:
        named = {f"sasl.oauthbearer.{name.replace('_', '.')}": value for name, value in settings.items()}
        named = {"sasl.oauthbearer.jwks.endpoint.url": jwks.as_uri(), **named}
        return TokenValidator(
            NodeSettings.from_mapping(named), clock=clock or ManualClock(wall_ms=NOW_S * 1000), source="here"
        )

    return make


def message(text: str, *, other: str = "", extensions: str = "") -> bytes:
    return f"n,{other},\1auth=Bearer {text}\1{extensions}\1".encode()


@pytest.mark.parametrize("key", ["rsa", "ec"])
def test_a_good_token(validator: Callable[..., TokenValidator], key: str) -> None:
    server = OAuthServer(validator())
    assert server.evaluate(message(token(key, scope="read write"), extensions="traceId=1 2\1")) == b""
    assert (server.user, server.expires_at_ms) == ("alice", (NOW_S + 60) * 1000)


def test_other_algorithms_of_a_key_that_names_none(validator: Callable[..., TokenValidator], jwks: Path) -> None:
    assert validator().validate(token("rsa", alg="RS512"))[0] == "alice"
    assert validator().validate(token("rsa", alg="PS256"))[0] == "alice"
    jwks.write_text(json.dumps({"keys": [public("rsa", alg="RS256")]}))
    checked = validator()
    assert checked.validate(token("rsa"))[0] == "alice"
    with pytest.raises(LoginRefusedError, match="no key of the set fits"):
        checked.validate(token("rsa", alg="RS512"))


def test_claims_under_other_names(validator: Callable[..., TokenValidator]) -> None:
    checked = validator(
        sub_claim_name="user",
        expected_audience="kafka,other",
        expected_issuer="us",
        scope_claim_name="scp",
    )
    good = {"user": "bob", "aud": ["x", "kafka"], "iss": "us", "scp": ["read", "write"]}
    assert checked.validate(token(**good))[0] == "bob"
    for wrong in (
        {"aud": "x"},
        {"aud": None},
        {"iss": "them"},
        {"iss": None},
        {"user": None},
        {"scp": ["a", "a"]},
    ):
        with pytest.raises(LoginRefusedError):
            checked.validate(token(**{**good, **wrong}))


@pytest.mark.parametrize(
    "make",
    [
        lambda: token("other", kid="ec"),
        lambda: token("other"),
        lambda: token("rsa", kid="ec"),
        lambda: token(exp=NOW_S - 31),
        lambda: token(exp=None),
        lambda: token(iat=None),
        lambda: token(iat=NOW_S + 100),
        lambda: token(iat=True),
        lambda: token(iat="today"),
        lambda: token(exp=float("1e300")),
        lambda: token(nbf=NOW_S + 31),
        lambda: token(sub=None),
        lambda: token(sub=" "),
        lambda: token(sub=7),
        lambda: token(aud="somebody"),
        lambda: token(scope=["a", ""]),
        lambda: token(scope=["a", 7]),
        lambda: token(scope=""),
        lambda: jwt.encode({"sub": "alice", "iat": NOW_S, "exp": NOW_S + 60}, None, algorithm="none"),
        lambda: token()[:-8] + "AAAAAAAA",
        lambda: token().rpartition(".")[0] + ".",
        lambda: "a.b.c",
        lambda: "abc",
    ],
)
def test_a_token_that_is_refused(validator: Callable[..., TokenValidator], make: Callable[[], str]) -> None:
    server = OAuthServer(validator())
    assert server.evaluate(message(make())) == b'{"status":"invalid_token"}'
    with pytest.raises(LoginRefusedError) as caught:
        server.evaluate(b"\1")
    assert caught.value.told == '{"status":"invalid_token"}'
    assert server.user is None


def test_a_public_key_is_no_secret_to_sign_with(validator: Callable[..., TokenValidator]) -> None:
    import base64
    import hashlib
    import hmac

    def part(content: object) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).decode().rstrip("=")

    body = f"{part({'alg': 'HS256', 'kid': 'rsa'})}.{part({'sub': 'alice', 'iat': NOW_S, 'exp': NOW_S + 60})}"
    secret = public("rsa")["n"].encode()
    signature = base64.urlsafe_b64encode(hmac.digest(secret, body.encode(), hashlib.sha256)).decode()
    with pytest.raises(LoginRefusedError, match="no key of the set fits"):
        validator().validate(f"{body}.{signature.rstrip('=')}")


def test_clocks_may_differ_a_little(validator: Callable[..., TokenValidator]) -> None:
    clock = ManualClock(wall_ms=NOW_S * 1000)
    checked = validator(clock)
    text = token()
    for early in (NOW_S - 1, NOW_S + 30):
        assert checked.validate(token(nbf=early))[0] == "alice"
    clock.advance(89_000)
    assert checked.validate(text)[0] == "alice"
    clock.advance(1_000)
    with pytest.raises(LoginRefusedError, match="expired"):
        checked.validate(text)


@pytest.mark.parametrize(
    "text",
    [b"", b"n,,\1\1", b"n,,\1auth=Basic abc\1\1", b"y,,\1auth=Bearer abc\1\1", b"n,,auth=Bearer abc", b"\1"],
)
def test_messages_that_are_none(validator: Callable[..., TokenValidator], text: bytes) -> None:
    with pytest.raises(LoginRefusedError) as caught:
        OAuthServer(validator()).evaluate(text)
    assert caught.value.told == ""


def test_the_name_asked_for_must_be_the_tokens(validator: Callable[..., TokenValidator]) -> None:
    server = OAuthServer(validator())
    server.evaluate(message(token(), other="a=alice"))
    assert server.user == "alice"
    with pytest.raises(LoginRefusedError) as caught:
        OAuthServer(validator()).evaluate(message(token(), other="a=bob"))
    assert "different from the token's principal name (alice)" in caught.value.told


def test_keys_are_exchanged_while_the_node_runs(validator: Callable[..., TokenValidator], jwks: Path) -> None:
    checked = validator()
    jwks.write_text("half a fi")
    os.utime(jwks, ns=(1, 1))
    assert checked.validate(token())[0] == "alice"
    jwks.write_text(json.dumps({"keys": [public("other", use="sig", alg="ES256"), public("rsa", use="enc")]}))
    os.utime(jwks, ns=(2, 2))
    assert checked.validate(token("other"))[0] == "alice"
    with pytest.raises(LoginRefusedError):
        checked.validate(token())


@pytest.mark.parametrize("content", [None, "", "{}", '{"keys": []}', '{"keys": [{"kty": "oct", "k": "AAAA"}]}', "[]"])
def test_a_file_that_is_no_key_set(jwks: Path, validator: Callable[..., TokenValidator], content: str | None) -> None:
    jwks.unlink() if content is None else jwks.write_text(content)
    with pytest.raises(ConfigError, match="JSON Web Key Set"):
        validator()
    with pytest.raises(ConfigError, match="fetches nothing from elsewhere"):
        validator(jwks_endpoint_url="https://keys.example/")
