"""Sources over HTTP: webhooks that are answered once they are committed, and polls of an API that fails on purpose."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest
from conftest import LogUnderTest
from support.connecting import committed, reaches, running, state, values
from support.http_peer import CUT, Answer, Asked, HttpPeer
from support.waiting import wait_until

from suiro.client import Client
from suiro.clock import SystemClock
from suiro.connect import About, SettingError
from suiro.connect.positions import (
    POSITIONS_TOPIC,
    create_positions_topic,
    position_partition,
    position_record,
    read_position,
)
from suiro.connect.sources.rest import RestSource
from suiro.connect.sources.webhook import WebhookSource
from suiro.errors import UsageError
from suiro.protocol.records import Record, encode_batch

SECRET = "s3cret"
HTTP = httpx.Client(verify=False, timeout=30, limits=httpx.Limits(max_keepalive_connections=0))


@pytest.fixture(scope="session")
def log_under_test(suiro_node: Any) -> LogUnderTest:
    return LogUnderTest("node", suiro_node.bootstrap_servers)


# -- webhook --------------------------------------------------------------------------------------------------


@pytest.fixture
def ports(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    """Where the webhook source of the test listens (it takes a free port)."""
    opened: list[WebhookSource] = []
    original = WebhookSource.open

    def open_(self: WebhookSource, position: dict[str, Any] | None) -> None:
        original(self, position)
        opened.append(self)

    monkeypatch.setattr(WebhookSource, "open", open_)
    return lambda: wait_until(lambda: opened[-1].port if opened and opened[-1]._server else 0)


def hook(topic: str, more: str = "") -> str:
    return (
        f'[source.{topic}]\nkind = "webhook"\nlisten = "127.0.0.1:0"\npath = "/in"\nsecret = "{SECRET}"\n'
        f'topic = "{topic}"\n{more}\n'
    )


def post(port: int, body: bytes, *, id_: str | None = None, secret: str = SECRET, **headers: str) -> httpx.Response:
    signature = "sha256=" + hmac.new(secret.encode(), body, hashlib.sha256).hexdigest()
    given = {"X-Hub-Signature-256": signature, **headers} | ({} if id_ is None else {"X-Id": id_})
    return HTTP.post(f"http://127.0.0.1:{port}/in", content=body, headers=given)


def test_200_means_committed_and_what_is_wrong_is_refused(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    more = 'key = ["id"]\nheaders = ["X-Kind"]\nmax_body_bytes = 100'
    with running(tmp_path, bootstrap, hook(unique, more)):
        port = ports()
        assert post(port, b'{"id": 1}', **{"X-Kind": "new"}).status_code == 200
        wait_until(lambda: committed(client, unique), what="the record")
        (row,) = committed(client, unique)
        assert (row["key"], row["value"], row["headers"]) == (b"1", b'{"id": 1}', {"X-Kind": b"new"})
        assert post(port, b'{"id": 1}', secret="guessed").status_code == 401
        assert HTTP.post(f"http://127.0.0.1:{port}/in", content=b"{}").status_code == 401
        assert post(port, b"{oops").status_code == 400
        assert post(port, b'{"id": 1, "temperature": NaN}').status_code == 400
        assert post(port, b'{"no": 1}').status_code == 400
        assert post(port, b"[" + b"1," * 100 + b"1]").status_code == 413
    assert len(committed(client, unique)) == 1


def test_a_repeated_post_is_written_once_also_over_a_restart(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    text = hook(unique, 'id_header = "X-Id"\ndedup_window = 3')
    with running(tmp_path, bootstrap, text) as runtime:
        with ThreadPoolExecutor(8) as pool:
            answers = list(pool.map(lambda _: post(ports(), b"1", id_="same"), range(8)))
        assert [answer.status_code for answer in answers] == [200] * 8
        assert post(ports(), b"1").status_code == 400  # no id
        runtime.restart(unique)
        wait_until(lambda: post(ports(), b"1", id_="same").status_code == 200)
    with running(tmp_path, bootstrap, text):
        assert post(ports(), b"1", id_="same").json() == {"message": "committed before"}
        for number in range(2, 5):
            assert post(ports(), str(number).encode(), id_=f"n{number}").status_code == 200
        assert post(ports(), b"5", id_="same").json() == {"message": "committed"}  # beyond the window
    assert values(client, unique) == [1, 2, 3, 4, 5]


@pytest.mark.parametrize(("before", "after", "known"), [(5, 2, 2), (3, 10, 3)])
def test_another_window_keeps_the_newest_ids(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int],
    before: int, after: int, known: int,
) -> None:  # fmt: skip
    def text(window: int) -> str:
        return hook(unique, f'id_header = "X-Id"\ndedup_window = {window}')

    with running(tmp_path, bootstrap, text(before)):
        for number in range(10):
            assert post(ports(), str(number).encode(), id_=f"n{number}").json() == {"message": "committed"}
    newest = range(10 - known, 10)
    with running(tmp_path, bootstrap, text(after)):
        for number in newest:
            assert post(ports(), b"-1", id_=f"n{number}").json() == {"message": "committed before"}
        assert post(ports(), b"10", id_="n10").json() == {"message": "committed"}
    with running(tmp_path, bootstrap, text(after)):  # as it was committed
        for number in range(10 - min(known, after - 1), 11):
            assert post(ports(), b"-1", id_=f"n{number}").json() == {"message": "committed before"}
    assert values(client, unique) == list(range(11))


def test_ids_of_a_larger_window_before_the_last_one_do_not_push_out_newer_ones(tmp_path: Path) -> None:
    """An earlier release left them among the parts when its window was made smaller, and wrote no window."""
    settings: dict[str, Any] = {"path": "/in", "secret": SECRET, "id_header": "X-Id", "dedup_window": 4}
    about = About(name="hook", folder=tmp_path, clock=SystemClock())
    source = WebhookSource({**settings, "listen": "127.0.0.1:0"}, about)
    newest = {str(number % 4): f"n{number}" for number in range(14, 18)}
    source.open_parts({**{str(slot): f"old{slot}" for slot in range(8)}, **newest})
    source.open({"next": 18})
    try:
        for number in range(14, 18):
            answer = post(source.port, b"{}", id_=f"n{number}")
            assert answer.json() == {"message": "committed before"}
    finally:
        source.close()


def test_a_long_id_is_refused(tmp_path: Path) -> None:
    """A sender could fill the memory with ten thousand ids of 60 kB."""
    about = About(name="hook", folder=tmp_path, clock=SystemClock())
    settings = {"listen": "127.0.0.1:0", "path": "/in", "secret": SECRET, "id_header": "X-Id"}
    source = WebhookSource(settings, about)
    source.open(None)
    try:
        answer = post(source.port, b"{}", id_="n" * 1_001)
    finally:
        source.close()
    assert (answer.status_code, answer.json()["message"]) == (400, "header X-Id has 1 to 1,000 characters")


def test_deeply_nested_posts_are_refused_and_the_next_one_is_taken(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    with running(tmp_path, bootstrap, hook(unique)) as runtime:
        port = ports()
        answer = post(port, b"[" * 100_000 + b"]" * 100_000)
        assert answer.status_code == 400
        assert "deeper than 500 levels" in answer.json()["message"]
        assert post(port, b"[1]").status_code == 200
        assert state(runtime, unique)["restarts"] == 0
    assert values(client, unique) == [[1]]


def test_a_post_that_cannot_be_written_is_refused_and_holds_up_no_other_sender(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    """Its sender would repeat a 503 without end."""
    text = hook(unique, 'id_header = "X-Id"\nmax_record_bytes = 20\nmax_records = 50')
    with running(tmp_path, bootstrap, text) as runtime:
        bodies = [b'{"n": %d, "x": "%s"}' % (n, b"x" * (20 if n % 3 == 0 else 1)) for n in range(24)]
        with ThreadPoolExecutor(12) as pool:
            asked = [pool.submit(post, ports(), body, id_=str(n)) for n, body in enumerate(bodies)]
            answers = [one.result() for one in asked]
        assert [answer.status_code for answer in answers] == [400, 200, 200] * 8
        assert "more than max_record_bytes (20)" in answers[0].json()["message"]
        assert (state(runtime, unique)["restarts"], state(runtime, unique)["rejected"]) == (0, 8)
        assert post(ports(), b'{"n": 0}', id_="0").status_code == 200  # what was refused is not known as written
        assert post(ports(), b'{"n": 1}', id_="1").json() == {"message": "committed before"}
    assert sorted(value["n"] for value in values(client, unique)) == [n for n in range(24) if n % 3 or n == 0]


def test_posts_share_transactions(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    with running(tmp_path, bootstrap, hook(unique)) as runtime:
        port = ports()
        with ThreadPoolExecutor(16) as pool:
            answers = list(pool.map(lambda n: post(port, str(n).encode()).status_code, range(200)))
        told = reaches(runtime, unique, lambda at: at["records"] == 200, "all records")
    assert answers == [200] * 200
    assert sorted(values(client, unique)) == list(range(200))
    assert told["commits"] < 200


def test_too_many_that_wait_are_told_to_come_later(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    held = threading.Event()

    def reach(point: str) -> None:
        if point == "before commit":
            assert held.wait(30)

    with running(tmp_path, bootstrap, hook(unique, "max_waiting = 3\nmax_records = 1"), reach=reach) as runtime:
        port = ports()
        with ThreadPoolExecutor(3) as pool:
            waiting = [pool.submit(post, port, str(number).encode()) for number in range(3)]
            source: Any = runtime._supervised[unique]._connector.task.source  # type: ignore[attr-defined]
            wait_until(lambda: source.lag() == 3, what="three that wait")
            answer = post(port, b"4")
            assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
            held.set()
            assert [one.result().status_code for one in waiting] == [200] * 3
    assert sorted(values(client, unique)) == [0, 1, 2]


def test_what_is_not_committed_is_not_answered_with_200(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    """The transaction fails under it: the sender hears 503, sends it again, and it is there once."""
    failing = threading.Event()
    failing.set()

    def reach(point: str) -> None:
        if point == "before commit" and failing.is_set():
            failing.clear()
            raise OSError("the broker is gone")

    with running(tmp_path, bootstrap, hook(unique, 'id_header = "X-Id"'), reach=reach):
        answer = post(ports(), b"1", id_="a")
        assert (answer.status_code, answer.headers["retry-after"]) == (503, "1")
        wait_until(lambda: _status(ports(), b"1", "a") == 200, what="the second attempt")
    assert values(client, unique) == [1]


def test_a_commit_whose_answer_was_lost_is_not_repeated(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, ports: Callable[[], int]
) -> None:
    failing = threading.Event()
    failing.set()

    def reach(point: str) -> None:
        if point == "after commit" and failing.is_set():
            failing.clear()
            raise OSError("nobody heard of it")

    with running(tmp_path, bootstrap, hook(unique, 'id_header = "X-Id"'), reach=reach):
        assert post(ports(), b"1", id_="a").status_code == 503
        wait_until(lambda: _status(ports(), b"1", "a") == 200, what="the second attempt")
    assert values(client, unique) == [1]


def _status(port: int, body: bytes, id_: str) -> int:
    try:
        return post(port, body, id_=id_).status_code
    except httpx.TransportError:
        return 0


# -- rest -----------------------------------------------------------------------------------------------------


def poll(topic: str, peer: HttpPeer, more: str) -> str:
    return (
        f'[source.{topic}]\nkind = "rest"\nurl = "{peer.url}/things"\ntopic = "{topic}"\ninterval_ms = 5\n'
        f"longest_wait_ms = 20\n{more}\n"
    )


class Things:
    """An API over a list that grows, two to a page, in each way of paging."""

    def __init__(self) -> None:
        self.things = [{"id": n} for n in range(5)]
        self.not_modified = 0

    def __call__(self, asked: Asked) -> Answer:
        at = int(asked.query.get("cursor", asked.query.get("from", 0)))
        if "page" in asked.query:
            at = (int(asked.query["page"]) - 1) * 2
            return Answer(body={"data": {"items": self.things[at : at + 2]}})
        if "cursor" in asked.query or "start" in asked.query:
            page = self.things[at : at + 2]
            more = {"next": str(at + 2)} if len(self.things) > at + 2 else {}
            return Answer(body={"data": {"items": page}, **more})
        if "from" in asked.query:
            headers = {"ETag": f'"{at}-{len(self.things)}"'}
            if len(self.things) > at + 2:
                headers["Link"] = f'</things?from={at + 2}>; rel="next"'
            if asked.headers.get("if-none-match") == headers["ETag"]:
                self.not_modified += 1
                return Answer(304)
            return Answer(body={"data": {"items": self.things[at : at + 2]}}, headers=headers)
        etag = f'"{json.dumps(self.things)}"'
        if asked.headers.get("if-none-match") == etag:
            self.not_modified += 1
            return Answer(304)
        return Answer(body=self.things, headers={"ETag": etag})


@pytest.fixture
def things() -> Things:
    return Things()


@pytest.fixture
def api(things: Things) -> Iterator[HttpPeer]:
    with HttpPeer(things) as made:
        yield made


@pytest.mark.parametrize(
    "paging",
    [
        'paging = "page"',
        'paging = "cursor"\nparameters = { start = 1 }',
        'paging = "link"\nparameters = { from = 0 }',
    ],
    ids=["page", "cursor", "link"],
)
def test_every_page_is_taken_once_and_what_is_added_later_too(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, api: HttpPeer, things: Things, paging: str
) -> None:
    text = poll(unique, api, f'records = "data.items"\nkey = ["id"]\n{paging}')
    api.faults += [CUT, Answer(503), Answer(429, headers={"Retry-After": "0"})]
    for count in (5, 6, 9, 10):
        things.things = [{"id": n} for n in range(count)]
        with running(tmp_path, bootstrap, text) as runtime:
            wait_until(lambda n=count: len(values(client, unique)) >= n, what=f"{count} records")
            asked = len(api.asked)
            wait_until(lambda n=asked: len(api.asked) > n + 4, what="more polls")
            assert runtime.status(unique)[0]["restarts"] == 0
    assert [value["id"] for value in values(client, unique)] == list(range(10))


@pytest.mark.parametrize("last", ["", False, None])
def test_an_empty_cursor_is_the_end(tmp_path: Path, bootstrap: str, client: Client, unique: str, last: Any) -> None:
    """Many an API ends so. Asked with it, it would begin again."""

    def answer(asked: Asked) -> Answer:
        if asked.query.get("cursor") == "2":
            return Answer(body={"items": [{"id": 2}], "next": last})
        return Answer(body={"items": [{"id": 0}, {"id": 1}], "next": "2"})

    with HttpPeer(answer) as api:
        text = poll(unique, api, 'records = "items"\npaging = "cursor"')
        with running(tmp_path, bootstrap, text):
            wait_until(lambda: len(api.asked) > 6, what="more polls")
    assert [value["id"] for value in values(client, unique)] == [0, 1, 2]


@pytest.mark.parametrize("full", [1, 2, 3])
def test_a_page_that_is_filled_before_the_next_one_is_asked_for_is_taken_whole(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, api: HttpPeer, things: Things, full: int
) -> None:
    """The next page is there then, and what came into the one before must not be passed over."""
    size, ends = 2, {1: 1, 2: 3, 3: 5}[full]  # how many there are while page `full` is read: it has one
    things.things = [{"id": n} for n in range(ends)]

    def answer(asked: Asked) -> Answer:
        found = things(asked)
        if int(asked.query["page"]) == full and len(things.things) == ends:
            things.things = [{"id": n} for n in range(ends + size + 1)]
        return found

    with HttpPeer(answer) as growing:
        text = poll(unique, growing, 'records = "data.items"\npaging = "page"')
        with running(tmp_path, bootstrap, text):
            wait_until(lambda: len(growing.asked) > 12, what="more polls")
    assert [value["id"] for value in values(client, unique)] == list(range(ends + size + 1))


@pytest.mark.parametrize(
    ("paging", "asked"),
    [
        ('paging = "page"', [{"page": "1"}, {"page": "2"}]),
        ('paging = "cursor"', [{}, {"cursor": "2"}]),
        ("parameters = { size = 2 }", [{"size": "2"}, {"size": "2"}]),
    ],
    ids=["page", "cursor", "parameters"],
)
def test_what_the_url_asks_for_is_asked_for_on_every_page(
    tmp_path: Path, bootstrap: str, unique: str, paging: str, asked: list[dict[str, str]]
) -> None:
    def answer(asked: Asked) -> Answer:
        return Answer(body={"items": [1, 2], "next": None if "cursor" in asked.query else "2"})

    with HttpPeer(answer) as api:
        text = poll(unique, api, f'records = "items"\n{paging}').replace("/things", "/things?state=open")
        with running(tmp_path, bootstrap, text):
            wait_until(lambda: len(api.asked) > 2, what="polls")
    assert [one.query for one in api.asked[:2]] == [{"state": "open", **one} for one in asked]


def test_a_list_becomes_a_feed_of_its_changes(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, api: HttpPeer, things: Things
) -> None:
    text = poll(unique, api, 'key = "id"\nonly_changed = true')
    things.things = [{"id": 1, "v": "a"}, {"id": 2, "v": "b"}]
    with running(tmp_path, bootstrap, text):
        wait_until(lambda: len(values(client, unique)) == 2)
        wait_until(lambda: things.not_modified > 2, what="answers 304")
    things.things = [{"v": "a", "id": 1}, {"id": 2, "v": "c"}, {"id": 3, "v": "d"}]
    with running(tmp_path, bootstrap, text):
        wait_until(lambda: len(values(client, unique)) >= 4)
        before = things.not_modified
        wait_until(lambda: things.not_modified > before, what="an answer 304")
    assert [value["v"] for value in values(client, unique)] == ["a", "b", "c", "d"]


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (Answer(403, {"error": "no"}), "403 Forbidden"),
        (Answer(200, b"<html>"), "gives no JSON"),
        (Answer(200, {"items": 3}), "has no list at records = 'items'"),
        (
            Answer(200, {"items": []}, {"Link": '<http://evil.example/x>; rel="next"'}),
            "on another host",
        ),
        (Answer(200, {"items": []}, {"Link": '<http://x:99999/>; rel="next"'}), "has no URL that can be asked"),
        (Answer(200, {"items": []}, {"Link": '<http://[::1/>; rel="next"'}), "has no URL that can be asked"),
    ],
)
def test_an_answer_that_is_no_use_is_said(
    tmp_path: Path, bootstrap: str, unique: str, answer: Answer, said: str
) -> None:
    with HttpPeer(lambda asked: answer) as api:
        text = poll(unique, api, 'records = "items"\npaging = "link"')
        with running(tmp_path, bootstrap, text) as runtime:
            told = reaches(runtime, unique, lambda at: at["error"], "an error")
    assert said in told["error"]


@pytest.mark.parametrize(("fault", "said"), [(CUT, "Error: "), (Answer(503), "503 Service Unavailable")])
def test_why_an_api_is_waited_for_is_logged_once(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, api: HttpPeer, fault: str | Answer, said: str,
    caplog: pytest.LogCaptureFixture,
) -> None:  # fmt: skip
    """The connector goes on running, so its status has no error."""
    api.faults += [fault, fault, fault]
    with running(tmp_path, bootstrap, poll(unique, api, "").replace("http://", "http://me:pa55@")):
        wait_until(lambda: values(client, unique), what="the records")
    (line,) = [one for one in caplog.messages if "is not available" in one]
    assert f"{unique}: {api.url}/things is not available" in line
    assert said in line
    assert "pa55" not in line


def test_what_is_said_of_an_api_does_not_tell_its_secrets(
    tmp_path: Path, bootstrap: str, client: Client, unique: str
) -> None:
    answers = [Answer(body=[{"no": "key"}]), Answer(403)]
    with HttpPeer(lambda asked: answers[0] if len(answers) == 1 else answers.pop(0)) as api:
        more = f'parameters = {{ api_key = "S3CR3T", size = 5 }}\nkey = "id"\ndead_letter_topic = "dead-{unique}"'
        text = poll(unique, api, more).replace("http://", "http://me:pa55@")
        with running(tmp_path, bootstrap, text) as runtime:
            told = reaches(runtime, unique, lambda at: at["error"], "an error")["error"]
        (letter,) = committed(client, f"dead-{unique}")
        place = letter["headers"]["__connect.errors.url"].decode()
        for said in (told, place):
            assert f"{api.url}/things" in said
            assert "S3CR3T" not in said
            assert "pa55" not in said


@pytest.mark.parametrize("link", ["/things?page=2", "{url}/things?page=2"], ids=["relative", "absolute"])
def test_the_login_of_a_url_is_used_for_each_page_and_not_kept_in_the_position(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, link: str
) -> None:
    def answer(asked: Asked) -> Answer:
        if "page" in asked.query:
            return Answer(body=[2])
        return Answer(body=[1], headers={"Link": f'<{link.format(url=api.url)}>; rel="next"'})

    with HttpPeer(answer) as api:
        text = poll(unique, api, 'paging = "link"').replace("http://", "http://me:pa%40ss@")
        with running(tmp_path, bootstrap, text):
            wait_until(lambda: values(client, unique) == [1, 2], what="both pages")
        expected = f"Basic {base64.b64encode(b'me:pa@ss').decode()}"
        assert {asked.headers.get("authorization") for asked in api.asked} == {expected}
        position = read_position(client, unique)
        assert position is not None
        assert position["next"] == f"{api.url}/things?page=2"


def test_a_position_that_somebody_wrote_sends_the_headers_nowhere(
    tmp_path: Path, bootstrap: str, client: Client, unique: str, api: HttpPeer
) -> None:
    """The next page's address is read from the topic of positions, where others may write, too."""
    with HttpPeer(lambda asked: Answer(body=[])) as thief:
        create_positions_topic(client)
        key, value = position_record(unique, {"next": f"{thief.url}/things"})
        batch = encode_batch([Record(offset=0, timestamp=1, key=key, value=value)])
        client.produce({(POSITIONS_TOPIC, position_partition(client, unique)): batch})
        text = poll(unique, api, 'paging = "link"\nheaders = { Authorization = "Bearer secret" }')
        with running(tmp_path, bootstrap, text) as runtime:
            told = reaches(runtime, unique, lambda at: at["error"], "an error")
        assert f"the next page is {thief.url}/things, on another host" in told["error"]
        assert not thief.asked


def test_a_part_of_an_address_in_a_position_is_one_of_the_own_host(tmp_path: Path, api: HttpPeer) -> None:
    """It was taken for a server that is not available, and asked again and again."""
    about = About(name="x", folder=tmp_path, clock=SystemClock())
    source = RestSource({"url": f"{api.url}/things", "paging": "link"}, about)
    source.open({"next": "/more"})
    source.poll()
    assert [asked.path for asked in api.asked] == ["/more"]
    source.close()
    with pytest.raises(UsageError, match="has no URL that can be asked"):
        source.open({"next": "/\1"})


@pytest.mark.parametrize(
    ("made", "settings", "said"),
    [
        (WebhookSource, {}, "secret: is missing: anybody could write"),
        (WebhookSource, {"unsigned": True, "listen": "here"}, "listen: expected HOST:PORT"),
        (WebhookSource, {"secret": "x", "path": "in"}, "path: begins with /"),
        (WebhookSource, {"secret": "x", "path": "/{in"}, "path: begins with / and has no braces"),
        (WebhookSource, {"secret": "x", "certificate": "c.pem"}, "certificate_key: certificate and"),
        (WebhookSource, {"secret": "x", "max_waiting": 0}, "max_waiting: must be at least 1"),
        (RestSource, {"url": "x"}, "url: must begin with http"),
        (RestSource, {"url": "http://u:secret@h:70000/x"}, "https://HOST, got 'h:70000/x'"),
        (RestSource, {"url": " http://x"}, "url: must begin with http"),
        (RestSource, {"url": "http://x/\n"}, "url: must begin with http"),
        (RestSource, {"url": "http://1.2.3.999"}, "url: must begin with http"),
        (RestSource, {"url": "http://a..b"}, "url: must begin with http"),
        (RestSource, {"url": "http://x", "headers": {"X": " s3cret"}}, "headers.X: has a character"),
        (RestSource, {"url": "http://x", "paging": "scroll"}, "paging: expected one of none"),
        (RestSource, {"url": "http://x", "only_changed": True}, "key: is missing"),
    ],
)
def test_a_wrong_setting_is_named(tmp_path: Path, made: Any, settings: dict[str, Any], said: str) -> None:
    with pytest.raises(SettingError) as raised:
        made(settings, About(name="x", folder=tmp_path, clock=SystemClock()))
    assert said in str(raised.value)
