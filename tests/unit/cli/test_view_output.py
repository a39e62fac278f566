"""What `suiro view status` shows."""

from __future__ import annotations

import json
from types import SimpleNamespace
from typing import Any

import pytest
from support.commands import suiro
from support.http_peer import Answer, HttpPeer

from suiro.cli.view_output import print_history, print_json, print_status, watch_build, watch_steps


def version(number: int, state: str, **more: Any) -> dict[str, Any]:
    progress = {"done": 1_000, "total": 4_000, "rate": 1_500.0, "left_s": 2.0}
    return {"version": number, "state": state, "paused": False, "progress": progress} | more


@pytest.mark.parametrize(
    ("candidate", "said"),
    [
        (version(2, "building"), "1,000 of 4,000; 1,500 records/s, 2 s left"),
        (version(2, "building", paused=True), "1,000 of 4,000; waits for the live version"),
        (version(2, "building", progress=None), ""),
    ],
)
def test_how_long_building_will_take(candidate: dict[str, Any], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    routing = {"serving": 1, "candidate": 2, "share": 0, "guide": None}
    versions = [version(1, "ready", lag_ms=0, input_lag_ms=7_300), candidate]
    status = {"view": "delays", "position": "building", "routing": routing, "versions": versions}
    print_status({**status, "guard_error": "no topic in common"})
    shown = capsys.readouterr().out
    assert said in shown
    assert shown.endswith("guard: no topic in common\n")
    assert "\t0.0 s\t7.3 s\t" in shown  # the serving version lags behind no other, but behind its inputs
    assert "1,000 of 4,000\n" in shown  # of a version that is built, no more than that


def test_of_a_long_error_the_first_line_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    routing = {"serving": 1, "candidate": None, "share": 0, "guide": None}
    versions = [
        version(1, "ready", error=None, follower_error="no room"),
        version(2, "failed", error="PythonException: no number\n  File app.py, line 3\n" + "at org.apache\n" * 99),
        version(3, "failed", error="x" * 2_000),
        version(4, "retired", error="what the version had cannot be deleted: no permission"),
    ]
    print_status({"view": "delays", "position": "alone", "routing": routing, "versions": versions})
    shown = capsys.readouterr().out.splitlines()
    where = " ... (all of it: suiro view status delays --json)"
    assert shown[-4:] == [
        "v1: no room",
        f"v2: PythonException: no number{where}",
        f"v3: {'x' * 300}{where}",
        "v4: what the version had cannot be deleted: no permission",
    ]


def test_why_a_version_is_not_built_yet_is_said_once(capsys: pytest.CaptureFixture[str]) -> None:
    """`deploy` waited in silence for a version whose folder could not be read, or whose Kafka was away."""

    def wait(view: str, number: int, *, seen: Any) -> dict[str, Any]:
        for error in (None, "Kafka is away", "Kafka is away", None, "Kafka is away", None):
            seen(version(2, "building", error=None, follower_error=error))
        return {}

    watch_build(SimpleNamespace(wait_until_built=wait), "delays", 2, quiet=True)  # type: ignore[arg-type]
    assert capsys.readouterr().err == "suiro view: v2: Kafka is away\n" * 2


def test_values_of_records_do_not_speak_to_the_terminal(capsys: pytest.CaptureFixture[str]) -> None:
    """A comparison quotes them, and whoever wrote the record chose them."""
    said = {"text": "by pattern\n  name \x1b]0;owned\x07 -> caf\u00e9\x9b2J"}
    with HttpPeer(lambda asked: Answer(body=said)) as peer:
        for command in ("compare", "explain"):
            print(suiro("view", command, "delays", "--url", peer.url).out)
    routing = {"serving": 1, "candidate": "\x1b[2J", "share": 100, "guide": None}
    status = {"view": "\x1b[2J", "position": "\x1b[8m", "routing": routing, "versions": []}
    with HttpPeer(lambda asked: Answer(body=status)) as peer:
        for command in ("status", "rollback"):
            print(suiro("view", command, "delays", "--url", peer.url).output)
    tripped: Any = SimpleNamespace(history=lambda name: [{"command": "trip", "detail": {"reason": "\x1b[2J"}}])
    watch_steps(tripped, "delays", status, quiet=False)
    print_json({"name": "\x9b2J"})
    event = {"revision": 1, "time_ms": 0, "who": "ada\x1b[2J", "command": "retire", "version": 1}
    print_history([event | {"detail": {"reason": "\x1b[8m"}, "before": "serving", "after": "retired"}])
    shown = "".join(capsys.readouterr())
    assert shown.count("by pattern\n") == 2
    assert "caf\u00e9" in shown
    assert not {"\x1b", "\x07", "\x9b"} & set(shown)


def test_errors_of_connectors_do_not_speak_to_the_terminal() -> None:
    told = {"name": "orders", "type": "sink", "kind": "http", "state": "FAILED", "records": 1, "rejected": 0}
    told |= {"lag": None, "restarts": 0, "error": "no number: \x1b]0;owned\x07"}
    content = json.dumps({"orders": {"status": told}}).encode()
    with HttpPeer(lambda asked: Answer(body=content)) as peer:
        done = suiro("connect", "status", "--url", peer.url)
        as_json = suiro("connect", "status", "--url", peer.url, "--json")
    assert done.code == 0
    assert "no number: " in done.out
    assert "\x1b" not in done.out
    assert (as_json.json[0]["error"], as_json.out.count("\n")) == (told["error"], 1)


@pytest.mark.parametrize("body", [[], {"orders": {}}, {"orders": {"status": {"connector": {}}}}, b""], ids=str)
def test_another_service_is_not_taken_for_connect(body: Any) -> None:
    with HttpPeer(lambda asked: Answer(body=body)) as peer:
        done = suiro("connect", "status", "--url", peer.url)
    assert (done.code, done.out) == (1, "")
    assert "does not answer as `suiro connect run` does" in done.err


@pytest.mark.parametrize("body", [None, {}, {"text": 5, "routing": 1, "view": 2, "position": 3}], ids=str)
@pytest.mark.parametrize(
    "command", ["status", "compare", "explain", "shift", "rollback", "retire", "history", "topic"], ids=str
)
def test_another_service_is_not_taken_for_a_host_of_views(command: str, body: Any) -> None:
    more = {"shift": ["10"], "retire": ["1", "--yes"]}.get(command, [])
    with HttpPeer(lambda asked: Answer(body=[body] if command == "history" else body)) as peer:
        done = suiro("view", command, "delays", *more, "--url", peer.url)
    assert (done.code, done.err.count("\n")) == (1, 1)
    assert "does not answer as a host of views does" in done.err
