"""JAAS lines: what is read from them, and that a wrong one is told without showing what is in it."""

from __future__ import annotations

import pytest

from suiro.broker.security.sasl import LOGIN_MODULE, plain_users
from suiro.errors import ConfigError
from suiro.foundation.jaas import parse_jaas


@pytest.mark.parametrize(
    ("text", "options"),
    [
        ("m required;", {}),
        ('m REQUIRED a="b";', {"a": "b"}),
        ("m required a=b c='d e' f=\"g;h=i\";", {"a": "b", "c": "d e", "f": "g;h=i"}),
        ('m required a = "b"\n c = d ;', {"a": "b", "c": "d"}),
        (r'm required a="say \"hi\"\t\\ \101\x";', {"a": 'say "hi"\t\\ Ax'}),
        ('m required // a comment\n a="//b" /* c="d"; */;', {"a": "//b"}),
        ('m required user_a-b.c@d="é , x";', {"user_a-b.c@d": "é , x"}),
    ],
)
def test_options(text: str, options: dict[str, str]) -> None:
    (module,) = parse_jaas(text, source="here")
    assert (module.name, module.options) == ("m", options)


def test_several_entries() -> None:
    modules = parse_jaas('a.B required x="1"; c.D optional;', source="here")
    assert [(m.name, dict(m.options)) for m in modules] == [("a.B", {"x": "1"}), ("c.D", {})]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no login module"),
        ("; required", "begins with the name"),
        ("m", "comes one of required"),
        ("m perhaps;", "comes one of required"),
        ('m required p="secret"', "does not end with a semicolon"),
        ('m required p "secret";', "name=value"),
        ("m required p=;", "name=value"),
        ('m required ="secret";', "name=value"),
    ],
)
def test_wrong_lines(text: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message) as caught:
        parse_jaas(text, source="listener CLIENTS")
    assert "listener CLIENTS" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_users_of_plain() -> None:
    text = f'{LOGIN_MODULE} required username="broker" password="x" user_alice="a-secret" user_bob="b, secret";'
    modules = parse_jaas(text, source="here")
    assert plain_users(modules, source="here") == {"alice": "a-secret", "bob": "b, secret"}
    assert "a-secret" not in repr(modules)
    for other in (f"{LOGIN_MODULE} required;", 'some.Other required user_a="b";'):
        with pytest.raises(ConfigError, match="user_NAME"):
            plain_users(parse_jaas(other, source="here"), source="here")
