"""Words that are no text, and paths that no file can have."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from support.commands import suiro, suiro_process

LONG = "a" * 300  # longer than a name may be
NO_TEXT = os.fsdecode(b"\xff")  # as the shell passes a byte that is not UTF-8


@pytest.mark.parametrize(
    "words",
    [
        ("topic", "create", NO_TEXT),
        ("topic", "produce", "t", "--key", NO_TEXT),
        ("group", "describe", NO_TEXT),
        ("cluster", "--bootstrap-servers", f"{NO_TEXT}:9092"),
        ("app", "list", "--app", f"http://{NO_TEXT}"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_word_that_is_not_utf_8_is_a_wrong_call(words: tuple[str, ...]) -> None:
    done = suiro(*words)
    assert (done.code, done.out) == (2, "")
    assert "is not UTF-8" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("dead-letter", "redrive", "t", "--place", "\u00b2:0"),
        ("view", "throttle", "v", "\u00b2"),
        ("app", "explain", "--app", "http://127.0.0.1:1", "s", "k", "--window", "\u00b2-3"),
        ("app", "explain", "--app", "http://127.0.0.1:1", "s", "k", "--window=--2-3"),
        ("schema", "register", "s", "-", "--reference", "a=s:\u00b2", "--registry", "mock://of-a-test"),
    ],
    ids=lambda words: " ".join(words[:2]),
)
def test_not_every_digit_makes_a_number(words: tuple[str, ...]) -> None:
    done = suiro(*words, stdin="{}")
    assert done.code in (1, 2)
    assert "expected" in done.err


@pytest.mark.parametrize(
    "words",
    [
        ("view", "shift", "v"),
        ("view", "shift", "v", "10", "--hold", "soon"),
        ("view", "shift", "v", "--steps", "1,all"),
        ("view", "shift", "v", "10", "--guard", "errors"),
        ("view", "compare", "v", "--tolerance", "delay"),
        ("view", "deploy", "app.py:f", "--set", "kafka.acks"),
        ("view", "forward", "v", "--max-lag", "some"),
        ("view", "compare", "v", "--timeout", "0s"),
        ("view", "throttle", "v", "many"),
        ("view", "retire", "v", "1"),
        ("topic", "records", "t", "--max", "-1"),
        ("topic", "consume", "t", "--max-messages", "-1"),
        ("topic", "consume", "t", "--timeout-ms", "-1"),
        ("node", "--data", ""),
        ("app", "list"),
        ("app", "explain", "--app", "http://127.0.0.1:1", "s", "k", "--window", "now"),
    ],
    ids=" ".join,
)
def test_a_wrong_call_ends_with_2(words: tuple[str, ...]) -> None:
    done = suiro(*words)
    assert (done.code, done.out) == (2, "")


def test_a_path_may_be_any_bytes(tmp_path: Path) -> None:
    path = tmp_path / f"{NO_TEXT}.avsc"
    path.write_text('"string"')
    assert suiro("schema", "register", "s", str(path), "--registry", "mock://of-a-path").code == 0


@pytest.mark.parametrize(
    "words",
    [("run", f"{LONG}.py"), ("run", "app.py", "--state-dir", LONG), ("view", "serve", "--data", LONG)],
    ids=lambda words: " ".join(words[:2]),
)
def test_a_path_may_be_too_long(words: tuple[str, ...]) -> None:
    done = suiro_process(*words)
    assert done.code in (1, 2)
    assert "Traceback" not in done.err


def test_a_registry_that_is_no_address_is_refused_at_the_start() -> None:
    done = suiro_process("console", "--registry", "nonsense", "--listen", "127.0.0.1:0")
    assert (done.code, done.out) == (1, "")
    assert done.err == "suiro: registry 'nonsense': expected http://HOST:PORT or https://HOST:PORT\n"


def test_a_view_host_that_is_not_there_is_not_waited_for() -> None:
    """`suiro view topic` waited for 30 s, as a reader of rows does."""
    done = suiro_process("view", "topic", "delays", "--url", "http://127.0.0.1:1")
    assert done.code == 1
    assert "no host of views answers at http://127.0.0.1:1: Connection refused. Start one" in done.err
