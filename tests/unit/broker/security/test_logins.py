"""One login by each mechanism, right and wrong; what is kept of passwords; what a listener's settings enable."""

from __future__ import annotations

import base64
import hashlib
import json
import random
import string
from collections import Counter
from functools import partial
from pathlib import Path

import numpy
import pytest

from suiro.broker.security.logins import ListenerLogins
from suiro.broker.security.sasl import LoginRefusedError, PlainServer, plain_users
from suiro.broker.security.scram import HASHES, ScramCredential, ScramServer
from suiro.broker.security.scram_store import ScramStore, ScramUser
from suiro.broker.settings.cluster_state import FILE_NAME, ClusterState
from suiro.client.security import _Scram
from suiro.clock import ManualClock
from suiro.config import NodeSettings
from suiro.errors import ConfigError
from suiro.foundation.jaas import parse_jaas

PLAIN = 'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="a-secret";'


def refused(server: object, message: bytes) -> LoginRefusedError:
    with pytest.raises(LoginRefusedError) as caught:
        server.evaluate(message)  # type: ignore[attr-defined]
    assert server.user is None  # type: ignore[attr-defined]
    return caught.value


# PLAIN


def test_plain() -> None:
    server = PlainServer({"alice": "a-secret", "ä": "€"})
    assert server.evaluate(b"\0alice\0a-secret") == b""
    assert server.user == "alice"
    for message in ("alice\0alice\0a-secret", "\0ä\0€"):
        server = PlainServer({"alice": "a-secret", "ä": "€"})
        server.evaluate(message.encode())
        assert server.user in ("alice", "ä")


@pytest.mark.parametrize(
    ("message", "told"),
    [
        (b"\0alice\0guess", "Authentication failed: Invalid username or password"),
        (b"\0nobody\0a-secret", "Authentication failed: Invalid username or password"),
        (b"bob\0alice\0a-secret", "authorization id that is different from username"),
        (b"\0alice\0", "password not specified"),
        (b"\0\0a-secret", "username not specified"),
        (b"alice", "expected 3 tokens, got 1"),
        (b"", "expected 3 tokens, got 1"),
        (b"\0alice\0a-secret\0", "expected 3 tokens, got 4"),
        (b"\xff\0\xff\0\xff", "Invalid username or password"),
    ],
)
def test_plain_refuses(message: bytes, told: str) -> None:
    refusal = refused(PlainServer({"alice": "a-secret"}), message)
    assert told in refusal.told


def test_only_users_of_plain_log_in_by_it() -> None:
    other = 'org.example.OtherModule required user_bob="b-secret";'
    options = PLAIN.replace(";", ' username="node" password="of-the-node";')
    assert plain_users(parse_jaas(f"{other} {options}", source="here"), source="here") == {"alice": "a-secret"}
    with pytest.raises(ConfigError, match="user_NAME"):
        plain_users(parse_jaas(other, source="here"), source="here")


# SCRAM


def test_scram_is_what_rfc_7677_shows() -> None:
    salt = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
    credential = ScramCredential.of_password("pencil", hash_name="sha256", iterations=4096, salt=salt)
    server = ScramServer(
        {"user": credential}.__getitem__, hash_name="sha256", nonce=lambda: "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
    )
    assert server.evaluate(b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO") == (
        b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
    )
    final = (
        b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
    )
    assert server.evaluate(final) == b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
    assert server.user == "user"


@pytest.fixture
def store(tmp_path: Path) -> ScramStore:
    store = ScramStore(ClusterState(tmp_path))
    store.add_missing(
        ScramUser.parse(f"{mechanism}=[name={name},password=a-secret]")
        for mechanism in HASHES
        for name in ("alice", '"a,b=c"')
    )
    return store


def scram(store: ScramStore, mechanism: str = "SCRAM-SHA-256") -> ScramServer:
    return ScramServer(partial(store.find, mechanism), hash_name=HASHES[mechanism])


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", ["alice", "a,b=c"])
def test_scram_with_a_client(store: ScramStore, mechanism: str, name: str) -> None:
    server, client = scram(store, mechanism), _Scram(name, "a-secret", hash_name=HASHES[mechanism])
    client.check_final(server.evaluate(client.final(server.evaluate(client.first()))))
    assert server.user == name


def test_a_wrong_password_and_a_wrong_name_look_the_same(store: ScramStore, tmp_path: Path) -> None:
    salts = set()
    for name in ("alice", "nobody", "nobody"):
        server, client = scram(store), _Scram(name, "guess", hash_name="sha256")
        first = server.evaluate(client.first())
        assert first.endswith(b",i=4096")
        salts.add(first.partition(b"s=")[2])
        assert refused(server, client.final(first)).told == ""
    assert len(salts) == 2, "a name that is not there has the same salt every time"
    again = scram(ScramStore(ClusterState(tmp_path)))
    assert again.evaluate(_Scram("nobody", "x", hash_name="sha256").first()).partition(b"s=")[2] in salts


def kind_of_salt(credential: ScramCredential) -> tuple[str, int]:
    """What a stranger sees: the tool that made the salt, by its look, and the iterations."""
    text = credential.salt.decode("latin-1")
    is_number = all(digit in string.digits + string.ascii_lowercase for digit in text)
    return (f"below {int(text, 36) >> 130}" if is_number else f"{len(text)} bytes"), credential.iterations


def test_names_that_are_not_there_look_like_users(tmp_path: Path) -> None:
    """As many of one kind as of the users; and few change when the users do."""
    mechanism, draw = "SCRAM-SHA-512", random.Random(7)

    def put(store: ScramStore, name: str, salt: bytes, iterations: int) -> None:
        credential = ScramCredential.of_password("a-secret", hash_name="sha512", iterations=iterations, salt=salt)
        store.change(put={(name, mechanism): credential})

    store = ScramStore(ClusterState(tmp_path))
    strangers = [f"stranger-{number}" for number in range(400)]
    before = {name: store.find(mechanism, name) for name in strangers}
    assert {kind_of_salt(found) for found in before.values()} == {("24 bytes", 4096)}
    for number in range(8):
        # The salt's text that Kafka's Java tools write, and librdkafka's bytes.
        java = numpy.base_repr(draw.getrandbits(130), 36).lower().encode()
        put(store, f"java-{number}", java, 4096)
        put(store, f"native-{number}", draw.randbytes(64), 8192)
    find = partial(store.find, mechanism)
    found = {name: find(name) for name in strangers}
    kinds = Counter(kind_of_salt(credential) for credential in found.values())
    assert set(kinds) == {kind_of_salt(find("java-0")), kind_of_salt(find("native-0"))}
    assert min(kinds.values()) > 40
    assert {len(one.salt) for one in found.values()} >= {25, 26, 64}, "one digit less is common"
    assert len({credential.salt for credential in found.values()}) == len(strangers)

    again = partial(ScramStore(ClusterState(tmp_path)).find, mechanism)
    assert {name: again(name).salt for name in strangers} == {name: one.salt for name, one in found.items()}
    put(store, "new", draw.randbytes(64), 8192)
    same = sum(store.find(mechanism, name).salt == one.salt for name, one in found.items())
    assert same > len(strangers) / 2


@pytest.mark.parametrize(
    "message",
    [
        b"",
        b"n,,n=alice",
        b"y,,n=alice,r=abc",
        b"p=tls-unique,,n=alice,r=abc",
        b"n,,n=al=ice,r=abc",
        b"n,,n=alice,r=",
        b"n,,n=alice,r=abc,tokenauth=true",
        b"n,a=bob,n=alice,r=abc",
        b"\xff\xfe",
    ],
)
def test_scram_refuses_first_messages(store: ScramStore, message: bytes) -> None:
    refused(scram(store), message)


def test_scram_keeps_nothing_large_between_two_messages(store: ScramStore) -> None:
    assert "8193 bytes" in str(refused(scram(store), b"n,,n=alice,r=" + b"A" * 8180))


def test_scram_refuses_final_messages(store: ScramStore) -> None:
    def changed(why: str, change: object) -> None:
        server, client = scram(store), _Scram("alice", "a-secret", hash_name="sha256")
        final = client.final(server.evaluate(client.first()))
        assert why in str(refused(server, change(final)))  # type: ignore[operator]

    changed("channel binding", lambda final: final.replace(b"c=biws", b"c=bixh"))
    changed("nonce", lambda final: final.replace(b",r=", b",r=x"))
    changed("length", lambda final: final.partition(b",p=")[0] + b",p=AAAA")
    changed("not Base64", lambda final: final.partition(b",p=")[0] + b",p=AAA")
    changed("final message", lambda final: final.partition(b",p=")[0])
    changed("final message", lambda final: b"")


def test_no_password_is_kept(store: ScramStore, tmp_path: Path) -> None:
    text = (tmp_path / FILE_NAME).read_text()
    assert "alice" in text
    assert "secret" not in text
    assert (tmp_path / FILE_NAME).stat().st_mode & 0o077 == 0
    assert json.loads(text)["sections"]["scram"]["users"]["alice"]["SCRAM-SHA-256"]["iterations"] == 4096


def test_a_user_that_is_there_stays(store: ScramStore) -> None:
    before = store.users["alice"]["SCRAM-SHA-256"]
    store.add_missing([ScramUser.parse("SCRAM-SHA-256=[name=alice,password=other]")])
    assert store.users["alice"]["SCRAM-SHA-256"] is before
    store.change(remove=[("alice", "SCRAM-SHA-256"), ("alice", "SCRAM-SHA-512")])
    assert "alice" not in store.users


def test_users_to_begin_with() -> None:
    user = ScramUser.parse('SCRAM-SHA-512=[name="x y",iterations=8192,password="p,]\\"q",salt="c2FsdA=="]')
    wanted = ScramCredential.of_password('p,]"q', hash_name="sha512", iterations=8192, salt=b"salt")
    assert (user.name, user.mechanism, user.credential) == ("x y", "SCRAM-SHA-512", wanted)
    salted = base64.b64encode(hashlib.pbkdf2_hmac("sha512", b'p,]"q', b"salt", 8192)).decode()
    same = ScramUser.parse(f"SCRAM-SHA-512=[name=a,iterations=8192,salt=c2FsdA==,saltedpassword={salted}]")
    assert same.credential == wanted
    for wrong in (
        "SCRAM-SHA-1=[name=a,password=secret]",
        "SCRAM-SHA-256=[password=secret]",
        "SCRAM-SHA-256=[name=a]",
        "SCRAM-SHA-256=[name=a,password=secret,iterations=5]",
        "SCRAM-SHA-256=[name=a,password=secret,saltedpassword=c2FsdA==]",
        "SCRAM-SHA-256=[name=a,saltedpassword=c2FsdA==]",
        "SCRAM-SHA-256=[name=a,password=secret,shoe=42]",
        "SCRAM-SHA-256=name=a,password=secret",
        'SCRAM-SHA-256=[name=a,password=secret,"]',
    ):
        with pytest.raises(ConfigError, match="--add-scram") as caught:
            ScramUser.parse(wrong)
        assert "secret" not in str(caught.value)


# Listeners


def test_a_listener_enables_mechanisms(store: ScramStore) -> None:
    settings = NodeSettings.from_mapping(
        {
            "sasl.enabled.mechanisms": "PLAIN, SCRAM-SHA-512",
            "listener.name.inside.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "listener.name.outside.plain.sasl.jaas.config": PLAIN,
            "listener.name.outside.plain.connections.max.reauth.ms": "5000",
        }
    )
    clock = ManualClock()
    outside = ListenerLogins("OUTSIDE", settings, store, clock=clock)
    inside = ListenerLogins("INSIDE", settings, store, clock=clock)
    assert (outside.mechanisms, inside.mechanisms) == (("PLAIN", "SCRAM-SHA-512"), ("SCRAM-SHA-256",))
    server = outside.server("PLAIN")
    server.evaluate(b"\0alice\0a-secret")
    assert server.user == "alice"
    assert isinstance(inside.server("SCRAM-SHA-256"), ScramServer)
    assert outside.lifetime_ms("PLAIN", expires_at_ms=None, now_ms=0) == 5000
    assert outside.lifetime_ms("PLAIN", expires_at_ms=3000, now_ms=1000) == 2000
    assert outside.lifetime_ms("PLAIN", expires_at_ms=9000, now_ms=1000) == 5000
    assert inside.lifetime_ms("SCRAM-SHA-256", expires_at_ms=None, now_ms=0) is None
    assert inside.lifetime_ms("SCRAM-SHA-256", expires_at_ms=1, now_ms=5) == 0


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"sasl.enabled.mechanisms": "GSSAPI"}, "a node has PLAIN"),
        ({"sasl.enabled.mechanisms": ""}, "a node has PLAIN"),
        ({"sasl.enabled.mechanisms": "PLAIN"}, r"plain\.sasl\.jaas\.config"),
        ({"sasl.enabled.mechanisms": "OAUTHBEARER"}, r"jwks\.endpoint\.url=file:"),
    ],
)
def test_a_listener_that_cannot_work(store: ScramStore, changes: dict[str, str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        ListenerLogins("CLIENTS", NodeSettings.from_mapping(changes), store, clock=ManualClock())
