"""The list of changes, which operators read: no passwords in it, and nobody takes it away from them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import httpx
import pytest
from support.console_api import console_api

from suiro.clock import ManualClock
from suiro.console.web import Console, ConsoleSettings, Remote
from suiro.console.web import console as console_module


def test_a_deploy_is_noted_without_the_passwords_of_its_settings(tmp_path: Path) -> None:
    body = {
        "entry": "app.py:delays",
        "files": {"app.py": ""},
        "settings": {"kafka.sasl.password": "sesame-1"},
        "registry": "http://ada:sesame-2@127.0.0.1:8081",
    }
    with console_api(tmp_path, views=(Remote(url="http://127.0.0.1:1"),)) as api:
        api.post("/views/0", body, role="admin", status=503)
        api.post("/views/0", body, role="operator", status=403)
        noted = [event["what"] for event in api.get("/audit", role="operator")["events"]]
    assert len(noted) == 2
    assert all("app.py:delays" in what for what in noted)
    assert not any("sesame" in what for what in noted)


@pytest.mark.parametrize(
    "body",
    [
        [{"password": "sesame"}],
        {"name": {"password": "sesame"}},
        {"setting": {"sasl.jaas.config": "sesame"}},  # which is "settings", of another request
    ],
    ids=str,
)
def test_a_password_in_a_wrong_place_is_not_noted(tmp_path: Path, body: Any) -> None:
    with console_api(tmp_path) as api:
        api.post("/users", body, status=400)
        ((what, status),) = [(one["what"], one["status"]) for one in api.get("/audit", role="admin")["events"]]
    assert ("sesame" in what, status) == (False, 400)


def test_the_reasons_that_a_redrive_chooses_by_are_not_noted(tmp_path: Path) -> None:
    """They quote records, of which operators may not see all fields."""
    body = {"dry_run": False, "exception": "ValueError", "reason": "card 4711", "group_reason": "card 4711"}
    with console_api(tmp_path, client_settings={"default.api.timeout.ms": "1"}) as api:
        api.post("/dead-letters/orders.dead/redrive", body, role="admin", status=503)
        ((what),) = [one["what"] for one in api.get("/audit", role="operator")["events"]]
    assert ("4711" in what, '"exception": "ValueError"' in what) == (False, True)


def test_what_is_no_character_and_what_a_terminal_would_obey_is_escaped(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """Half of a surrogate pair ended the list for everybody until it was a thousand changes old."""
    caplog.set_level("INFO", logger="suiro.console.audit")
    bodies = (b'{"name": "\\ud800"}', '{"name": "\x9b31m\u202e"}'.encode())
    with console_api(tmp_path) as api:
        for body in bodies:
            answer = httpx.post(
                f"{api.url}/topics",
                content=body,
                headers={"content-type": "application/json"},
                auth=("viewer", "secret"),
            )
            assert answer.status_code == 403
        noted = [event["what"] for event in api.get("/audit", role="operator")["events"]]
    assert noted == [f"POST /api/v1/topics {said}" for said in (r'{"name": "\x9b31m\u202e"}', "(no JSON object)")]
    assert all(record.getMessage().isprintable() for record in caplog.records)


def test_refused_requests_do_not_push_out_what_was_done(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_module, "AUDIT_EVENTS", 3)
    with console_api(tmp_path, connect=(Remote(url="http://127.0.0.1:1"),)) as api:
        api.post("/connectors/0/orders/restart", role="admin", status=503)
        for number in range(5):
            api.post(f"/topics/{number}/delete", {"confirm": "x"}, role="viewer", status=403)
        events = api.get("/audit", role="operator")["events"]
    assert [(event["user"], event["status"]) for event in events] == [("viewer", 403)] * 3 + [("admin", 503)]
    assert [event["what"].split()[1] for event in events[:2]] == [f"/api/v1/topics/{n}/delete" for n in (4, 3)]


def test_the_newest_change_is_first_although_the_clock_was_set_back() -> None:
    """It stood below older ones."""
    clock = ManualClock(wall_ms=86_400_000)
    console = Console(ConsoleSettings(bootstrap_servers="127.0.0.1:1"), clock=clock)
    for what, status in (("first", 200), ("second", 403), ("third", 200)):
        console.note("ada", what, status)
        clock._wall_ms -= 1_000
    assert [event.what for event in console.audit()] == ["third", "second", "first"]


def test_a_reset_is_noted_with_the_offset_that_it_moves_to(tmp_path: Path) -> None:
    body = {"to": "offset", "value": 4_711, "dry_run": False, "topics": {"orders": [0]}}
    with console_api(tmp_path, client_settings={"default.api.timeout.ms": "1"}) as api:
        api.post("/groups/billing/reset", body, role="operator", status=503)
        api.post("/topics/orders/records", {"key": None, "value": '"sesame"'}, role="operator", status=503)
        record, reset = (event["what"] for event in api.get("/audit", role="operator")["events"])
    assert '"to": "offset", "value": 4711' in reset
    assert "sesame" not in record
