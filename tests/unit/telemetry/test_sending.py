"""Events reach a file or an endpoint, and one that is away, slow or hostile neither blocks nor fails the work."""

from __future__ import annotations

import errno
import json
import logging
import os
import threading
from pathlib import Path

import pytest

from suiro.clock import monotonic_s
from suiro.errors import ConfigError
from suiro.telemetry import Dataset, Datasets, EventSender, Job, LineageRun, sender_to
from suiro.telemetry.sending import QUEUE_MAX, FileTarget, HttpTarget, RefusedError, UnreachableError
from tests.support.http_peer import CUT, LOSE, Answer, HttpPeer
from tests.support.openlineage import events_of
from tests.support.waiting import wait_until

JOB = Job(namespace="default", name="orders", kind="APPLICATION")


class Held:
    """A target that takes nothing until it is told to."""

    name = "a target"

    def __init__(self) -> None:
        self.opened = threading.Event()
        self.got: list[bytes] = []

    def send(self, event: bytes) -> None:
        assert self.opened.wait(30)
        self.got.append(event)

    def close(self) -> None:
        pass


def types(peer: HttpPeer) -> list[str]:
    return [json.loads(one.body)["eventType"] for one in peer.asked]


def test_a_run_in_a_file(tmp_path: Path) -> None:
    sender = EventSender(FileTarget(tmp_path / "events"))
    topic = Dataset(namespace="kafka://h:1", name="in")
    run = LineageRun(sender, JOB, lambda: Datasets(inputs=(topic,)), interval_s=0.01)
    wait_until(lambda: sender.sent >= 2)
    run.complete()
    run.fail(ValueError("too late"))
    sender.close()
    events = events_of((tmp_path / "events").read_text())
    found = [one["eventType"] for one in events]
    assert found[0] == "START"
    assert set(found[1:-1]) == {"RUNNING"}
    assert found[-1] == "COMPLETE"
    assert {one["run"]["runId"] for one in events} == {run.run_id}
    assert all(one["inputs"][0]["name"] == "in" for one in events)


def test_a_failure_is_in_the_event(tmp_path: Path) -> None:
    sender = EventSender(FileTarget(tmp_path / "events"))
    failures: list[BaseException] = []
    LineageRun(sender, JOB, Datasets, interval_s=0.01, failure=lambda: failures[0] if failures else None)
    failures.append(ValueError("no such column"))
    wait_until(lambda: "FAIL" in (tmp_path / "events").read_text() if sender.sent else False)
    sender.close()
    last = events_of((tmp_path / "events").read_text())[-1]
    assert last["eventType"] == "FAIL"
    assert last["run"]["facets"]["errorMessage"]["message"] == "ValueError: no such column"


def test_a_killed_run_is_ended_by_the_next(tmp_path: Path) -> None:
    file = tmp_path / "orders.openlineage"
    sender = EventSender(FileTarget(tmp_path / "events"))
    killed = LineageRun(sender, JOB, Datasets, file=file)
    wait_until(lambda: sender.sent == 1)
    following = LineageRun(sender, JOB, Datasets, file=file)
    following.complete()
    sender.close()
    wait_until(lambda: not file.exists())
    events = events_of((tmp_path / "events").read_text())
    assert [(one["eventType"], one["run"]["runId"]) for one in events] == [
        ("START", killed.run_id),
        ("ABORT", killed.run_id),
        ("START", following.run_id),
        ("COMPLETE", following.run_id),
    ]
    killed.complete()


@pytest.mark.parametrize("text", ["", "x" * 10_000, "\u00e9", "00000000"])
def test_a_damaged_file_of_a_run_is_ignored(tmp_path: Path, text: str) -> None:
    file = tmp_path / "orders.openlineage"
    file.write_text(text)
    sender = EventSender(FileTarget(tmp_path / "events"))
    run = LineageRun(sender, JOB, Datasets, file=file)
    run.complete()
    sender.close()
    assert [one["eventType"] for one in events_of((tmp_path / "events").read_text())] == ["START", "COMPLETE"]


def test_an_endpoint_that_fails_gets_the_events_later(caplog: pytest.LogCaptureFixture) -> None:
    with HttpPeer(lambda asked: Answer(201)) as peer, caplog.at_level(logging.INFO):
        peer.faults.extend([Answer(503), CUT, Answer(429), LOSE])
        sender = EventSender(HttpTarget(f"{peer.url}/api", headers={}), first_pause_s=0.01)
        run = LineageRun(sender, JOB, Datasets)
        run.complete()
        sender.close()
        # The answer to the fourth was lost: it came twice.
        assert types(peer) == ["START"] * 5 + ["COMPLETE"]
        assert (sender.sent, sender.dropped) == (2, 0)
    assert [one.levelname for one in caplog.records if "OpenLineage events to" in one.message] == [
        "WARNING",
        "INFO",
    ]


def test_what_is_refused_is_dropped_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    with HttpPeer(lambda asked: Answer(400, {"error": "no"})) as peer:
        sender = EventSender(HttpTarget(peer.url, headers={}))
        for _ in range(3):
            sender.put(lambda: b"{}")
        sender.close()
        assert (sender.sent, sender.dropped) == (0, 3)
    (record,) = caplog.records
    assert "400" in record.message


def test_a_redirect_is_not_followed() -> None:
    with HttpPeer(lambda asked: Answer(200)) as elsewhere:
        away = Answer(307, headers={"Location": elsewhere.url})
        with HttpPeer(lambda asked: away) as peer:
            target = HttpTarget(peer.url, headers={"Authorization": "Bearer secret"})
            with pytest.raises(RefusedError, match="redirects"):
                target.send(b"{}")
            target.close()
        assert elsewhere.asked == []


def test_a_long_answer_is_not_read() -> None:
    with HttpPeer(lambda asked: Answer(200, b"x" * (64 << 20))) as peer:
        target = HttpTarget(peer.url, headers={})
        target.send(b"{}")
        target.close()


def test_a_silent_endpoint_does_not_hold_the_work(caplog: pytest.LogCaptureFixture) -> None:
    released = threading.Event()

    def answer(asked: object) -> Answer:
        released.wait(30)
        return Answer()

    with HttpPeer(answer) as peer:
        sender = EventSender(HttpTarget(peer.url, headers={}, timeout_s=0.2), first_pause_s=0.01)
        began = monotonic_s()
        for _ in range(5):
            sender.put(lambda: b"{}")
        assert monotonic_s() - began < 0.1
        sender.close(0.5)
        assert monotonic_s() - began < 5
        assert sender.dropped == 5
        released.set()
    assert sum(one.levelname == "WARNING" for one in caplog.records) == 2  # away; not sent before the end


def test_the_queue_is_bounded_and_reports_of_one_run_replace_each_other() -> None:
    target = Held()
    sender = EventSender(target)
    sender.put(lambda: b"first")
    wait_until(lambda: sender._is_busy)
    for n in range(100):
        sender.put(lambda n=n: b"running %d" % n, replaces="run")  # type: ignore[misc]
    assert sender.dropped == 0
    for _ in range(QUEUE_MAX + 4):
        sender.put(lambda: b"more")
    assert sender.dropped == 5
    target.opened.set()
    sender.close()
    assert len(target.got) == QUEUE_MAX + 1
    sender.put(lambda: b"late")
    assert sender.dropped == 6


def test_an_event_that_cannot_be_made_does_not_end_the_sender() -> None:
    target = Held()
    target.opened.set()
    sender = EventSender(target)

    def fails() -> bytes:
        raise KeyError("x")

    sender.put(fails)
    sender.put(lambda: b"x" * (5 << 20))
    sender.put(lambda: b"next")
    sender.close()
    assert target.got == [b"next"]
    assert (sender.sent, sender.dropped) == (1, 2)


def test_a_file_that_cannot_be_written(tmp_path: Path) -> None:
    target = FileTarget(tmp_path / "gone" / "events")
    with pytest.raises(UnreachableError, match="No such file"):
        target.send(b"{}")


@pytest.mark.parametrize("is_restarted", [False, True])
def test_an_event_of_which_the_disk_took_a_part_is_written_again_on_its_own_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_restarted: bool
) -> None:
    """It was behind the part, so that the line was no event."""
    room = [3, 0, 0]
    write = os.write

    def full(handle: int, data: bytes) -> int:
        if not room:
            return write(handle, data)
        left = room.pop(0)
        if left == 0:
            raise OSError(errno.ENOSPC, "no space left")
        return write(handle, data[:left])

    target = FileTarget(tmp_path / "events")
    with monkeypatch.context() as disk:
        disk.setattr(os, "write", full)
        while room:
            with pytest.raises(UnreachableError):
                target.send(b'{"a": 1}')
        if is_restarted:
            target = FileTarget(tmp_path / "events")
        for _ in range(2):
            target.send(b'{"a": 1}')
    assert (tmp_path / "events").read_text() == '{"a\n' + '{"a": 1}\n' * 2


def test_the_environment_of_openlineage() -> None:
    with HttpPeer(lambda asked: Answer()) as peer:
        environment = {"OPENLINEAGE_URL": f"{peer.url}/", "OPENLINEAGE_API_KEY": "k"}
        for given in (environment, {**environment, "OPENLINEAGE_ENDPOINT": "/other"}):
            sender = sender_to(None, given)
            assert sender is not None
            sender.put(lambda: b"{}")
            sender.close()
        assert [one.path for one in peer.asked] == ["/api/v1/lineage", "/other"]
        assert peer.asked[0].headers["authorization"] == "Bearer k"
        assert peer.asked[0].headers["content-type"] == "application/json"
    assert sender_to(None, {}) is None
    assert sender_to("http://h", {"OPENLINEAGE_DISABLED": "True"}) is None


@pytest.mark.parametrize(
    "where", ["ftp://h/x", "http://", "http://h:99999", "http://[x", "/no/such/folder/x", "/", "file:///x"]
)
def test_a_wrong_target_is_named(where: str) -> None:
    with pytest.raises(ConfigError, match="openlineage"):
        sender_to(where, {})


def test_no_message_has_the_password() -> None:
    with pytest.raises(ConfigError) as error:
        sender_to("http://user:secret@h:99999", {})
    assert "secret" not in str(error.value)
    assert "secret" not in HttpTarget("http://user:secret@h:1/x", headers={}).name
    assert "secret" not in HttpTarget("http://h:1/x?key=secret", headers={}).name
    for key in ("a\nb", "a "):
        with pytest.raises(ConfigError, match="OPENLINEAGE_API_KEY"):
            sender_to("http://h:1", {"OPENLINEAGE_API_KEY": key})
