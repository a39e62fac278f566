"""What is wrong in `connectors.toml` is named with file, section and key; the file's commands say the same."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
from support.commands import suiro

from suiro.connect import read_configuration
from suiro.errors import ConfigError

GOOD = """
[source.a]
kind = "files"
folder = "in"
topic = "a"
paused = true

[sink.b]
kind = "webhook"
url = "http://127.0.0.1:1"
topics = "a"
headers = { Authorization = "Bearer ${env:ALERTS_TOKEN}" }
"""


@pytest.fixture
def path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ALERTS_TOKEN", "t0ken")
    return tmp_path / "connectors.toml"


def test_a_good_file_is_taken(path: Path) -> None:
    path.write_text(GOOD)
    found = read_configuration(path)
    assert [(item.side, item.name, item.kind, item.paused) for item in found.connectors] == [
        ("source", "a", "files", True),
        ("sink", "b", "webhook", False),
    ]
    assert found.settings.address == ("127.0.0.1", 8083)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("[source", "is not TOML"),
        ("", "has no connector"),
        ("[sources.a]\nkind = 'files'", "sources: there is no such setting; did you mean 'source'?"),
        ("source = 3", "[source] source: expected a section"),
        ("[connect]\nbootstrap = 'x'", "[connect] bootstrap: there is no such setting; did you mean"),
        ("[connect]\nlisten = 'x'", "[connect] listen: expected HOST:PORT"),
        ("[connect]\nlisten = '0.0.0.0:8083'", "[connect] token: is missing: anyone who can reach"),
        (
            "[connect.client]\n'client.id' = true",
            "[connect] client.client.id: expected a string or a whole number",
        ),
        ("[source.a]\ntopic = 'a'", "[source.a] kind: is missing; one of files"),
        ("[source.a]\nkind = 'delta'", "[source.a] kind: there is no source of kind 'delta'"),
        ("[source.a]\nkind = 'nowhere:A'", "[source.a] kind: cannot import nowhere"),
        ("[source.a]\nkind = 'json:A'", "[source.a] kind: module json has no class A"),
        ("[source.'a b']\nkind = 'files'", "[source.a b] name: may have letters"),
        (
            "[source.a]\nkind = 'files'\nfolder = 'x'\npaused = 'yes'",
            "[source.a] paused: expected true or false",
        ),
        (
            "[source.a]\nkind = 'files'\nfolder = 'x'\npartitions = 0",
            "[source.a] partitions: must be at least 1",
        ),
        (
            "[source.a]\nkind = 'files'\nfolder = 'x'\nformat = 'xml'",
            "[source.a] format: expected one of json",
        ),
        ("[source.a]\nkind = 'files'\nfolder = 'x'\nformat = 'avro'", "[source.a] format_schema: is missing"),
        (
            "[source.a]\nkind = 'files'\nfolder = 'x'\nformat = 'avro'\nformat_schema = 'connectors.toml'",
            '[source.a] format: format "avro" needs `registry`',
        ),
        (
            "[sink.a]\nkind = 'search'\nurl = 'http://x'\ntopics = 'a'\nkey_format = 'avro'",
            "[sink.a] key_format: format",
        ),
        (
            "[connect]\nregistry = 'http://h:1'\n"
            "[source.a]\nkind = 'files'\nfolder = 'x'\nformat = 'avro'\nformat_schema = 'none.avsc'",
            "[source.a] format_schema: cannot read",
        ),
        (
            # The file of the schema is this one.
            "[connect]\nregistry = 'http://h:1'\n"
            "[source.a]\nkind = 'files'\nfolder = 'x'\nformat = 'avro'\nformat_schema = 'connectors.toml'",
            "connectors.toml: not a valid Avro schema",
        ),
        (
            "[source.a]\nkind = 'files'\nfolder = 'x'\ncompression = 'rar'",
            "[source.a] compression: expected one of none, ",
        ),
        (
            "[source.a]\nkind = 'files'\nfolder = '${env:NO_SUCH}'",
            "[source.a] folder: the environment has no",
        ),
        ("[sink.a]\nkind = 'search'\nurl = 'http://x'", "[sink.a] topics: is missing"),
        ("[sink.a]\nkind = 'search'\nurl = 'http://x'\ntopics = []", "[sink.a] topics: names no topic"),
        (
            "[sink.a]\nkind = 'search'\nurl = 'http://x'\ntopics = ['a', 'b']\ndead_letter_topic = 'b'",
            "[sink.a] dead_letter_topic: is one of topics",
        ),
        (
            "[sink.a]\nkind = 'search'\nurl = 'http://x'\ntopics = 'a'\nstart = 'now'",
            "[sink.a] start: expected one",
        ),
        (GOOD + "[sink.a]\nkind = 'search'", "[sink.a] name: there is a source 'a' too"),
    ],
)
def test_what_is_wrong_is_named(path: Path, text: str, said: str) -> None:
    path.write_text(text)
    with pytest.raises(ConfigError) as raised:
        read_configuration(path)
    assert said in str(raised.value)
    assert str(path) in str(raised.value)
    done = suiro("connect", "check", str(path))
    assert done.code == 1
    assert said in done.err


@pytest.mark.parametrize(("kind", "module"), [("delta", "deltalake"), ("iceberg", "requests")])
def test_the_extra_of_a_lake_is_named(path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, module: str) -> None:
    monkeypatch.setitem(sys.modules, module, None)
    monkeypatch.delitem(sys.modules, f"suiro.connect.sinks.{kind}", raising=False)
    path.write_text(f"[sink.a]\nkind = '{kind}'")
    with pytest.raises(ConfigError, match=r"pip install 'suiro\[lake\]'"):
        read_configuration(path)


def test_the_commands_check_and_status(path: Path) -> None:
    path.write_text(GOOD)
    done = suiro("connect", "check", str(path))
    assert done.output == "source.a: files (paused)\nsink.b: webhook\n"
    done = suiro("connect", "status", "--url", "http://127.0.0.1:1")
    assert done.code == 1
    assert "Is `suiro connect run` running there?" in done.err


@pytest.mark.parametrize("token", ["secret\n", "secr\u00e9t"])
def test_a_token_that_no_header_can_have_is_not_shown(token: str) -> None:
    done = suiro("connect", "status", "--url", "http://127.0.0.1:1", env={"SUIRO_CONNECT_TOKEN": token})
    assert (done.code, done.out) == (1, "")
    assert "the token is empty or has a character" in done.err
    assert "secr" not in done.err


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot read"):
        read_configuration(tmp_path / "no.toml")
