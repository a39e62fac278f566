"""The list of changes, which operators read, has no passwords in it."""

from __future__ import annotations

from pathlib import Path

from support.console_api import console_api

from suiro.console.web import Remote


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
