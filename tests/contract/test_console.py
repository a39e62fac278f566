"""The console's API on a cluster: leafing, searching, changing, and who may."""

from __future__ import annotations

import csv
import io
import json
import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import ANY

import httpx
import pytest
from conftest import LogUnderTest
from support.waiting import wait_until

from suiro.cli.topic_records import _from_json, of_values
from suiro.client import Client, TransactionalBatch
from suiro.console.formats import encoder
from suiro.console.web import ConsoleServer, ConsoleSettings, Masks
from suiro.console.web.api import ENDPOINTS
from suiro.console.web.api import records as records_api
from suiro.foundation.http import Role
from suiro.protocol.records import Record, encode_batch

NewTopicFixture = Callable[..., str]
USERS = "ada:a\n[viewer]\nvera:v\n[operator]\nolga:o\n[admin]\nalan:a\n"
VIEWER, OPERATOR, ADMIN = ("vera", "v"), ("olga", "o"), ("alan", "a")


class Api:
    def __init__(self, url: str, auth: tuple[str, str] | None = None) -> None:
        self.http = httpx.Client(base_url=f"{url}/api/v1", auth=auth, timeout=30)

    def get(self, path: str, **query: Any) -> Any:
        answer = self.http.get(path, params=query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def post(self, path: str, **body: Any) -> Any:
        answer = self.http.post(path, json=body)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def refused(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, str]:
        answer = self.http.request(method, path, params=query, json=body)
        assert answer.status_code != 200, answer.text
        return answer.status_code, answer.json()["message"]

    @contextmanager
    def events(self, path: str, **query: Any) -> Iterator[Iterator[tuple[str, Any]]]:
        with self.http.stream("GET", path, params=query) as answer:
            assert answer.status_code == 200, answer.read()
            yield _events(answer.iter_lines())


def _events(lines: Iterator[str]) -> Iterator[tuple[str, Any]]:
    name = ""
    for line in lines:
        if line.startswith("event: "):
            name = line.removeprefix("event: ")
        elif line.startswith("data: "):
            yield name, json.loads(line.removeprefix("data: "))


@pytest.fixture
def serving(log_under_test: LogUnderTest) -> Iterator[Callable[..., ConsoleServer]]:
    made: list[ConsoleServer] = []

    def serve(**settings: Any) -> ConsoleServer:
        settings.setdefault("bootstrap_servers", log_under_test.bootstrap_servers)
        made.append(ConsoleServer(ConsoleSettings(port=0, **settings)))
        return made[-1]

    yield serve
    for one in made:
        one.stop()


@pytest.fixture
def api(serving: Callable[..., ConsoleServer]) -> Api:
    return Api(serving().url)


@pytest.fixture
def users(tmp_path: Path) -> Path:
    path = tmp_path / "users"
    path.write_text(USERS)
    return path


def batch(*values: bytes | None, **more: Any) -> bytes:
    records = [Record(offset=at, timestamp=1_000 + at, key=b"k%d" % at, value=value) for at, value in enumerate(values)]
    return bytes(encode_batch(records, **more))


TIMES = (
    "1970-01-01T00:00:01.002Z",
    "1970-01-01T02:00:01.002+02:00",
    "1970-01-01T00:00:01.002",  # without a zone it is UTC
    "0001-01-01T00:00:00Z",
    "9999-12-31T23:59:59Z",
)

# -- leafing -------------------------------------------------------------------------------------------------


def leafed(api: Api, topic: str, direction: str, limit: int, **more: Any) -> list[tuple[int, str]]:
    """All records of a topic, page by page, as (partition, value); oldest first."""
    start = "earliest" if direction == "forward" else "latest"
    page = api.get(f"/topics/{topic}/records", **{"from": start}, direction=direction, limit=limit, **more)
    found: list[tuple[int, str]] = []
    pages = 0
    while page["records"]:
        shown = [(one["partition"], one["value"]["text"]) for one in page["records"]]
        found = found + shown if direction == "forward" else shown + found
        edge = "after" if direction == "forward" else "before"
        positions = ",".join(f"{name}:{edges[edge]}" for name, edges in page["positions"].items())
        page = api.get(f"/topics/{topic}/records", positions=positions, direction=direction, limit=limit, **more)
        pages += 1
        assert pages < 300
    return found


@pytest.mark.parametrize("seed", [1, 2, 3])
def test_leafing_shows_each_record_once_in_both_directions(
    api: Api, client: Client, new_topic: NewTopicFixture, unique: str, seed: int
) -> None:
    draw = random.Random(seed)
    partitions = draw.choice((1, 3))
    topic = new_topic(partitions)
    expected: dict[int, list[str]] = {number: [] for number in range(partitions)}
    for number in range(25):
        partition, count = draw.randrange(partitions), draw.choice((1, 2, 30))
        values = [f"{number}-{each}" for each in range(count)]
        made = batch(*(value.encode() for value in values))
        if draw.random() < 0.4:
            producer = client.transaction(unique)
            producer.init()
            producer.add_partitions([(topic, partition)])
            producer.produce([TransactionalBatch(topic, partition, made, count)])
            producer.end() if draw.random() < 0.5 else producer.abort()
        else:
            client.produce({(topic, partition): made})
        expected[partition] += values
    for direction in ("forward", "backward"):
        found = leafed(api, topic, direction, draw.choice((3, 17, 100)))
        for partition, values in expected.items():
            assert [value for number, value in found if number == partition] == values, direction
    one = draw.randrange(partitions)
    assert leafed(api, topic, "backward", 7, partition=one) == [(one, value) for value in expected[one]]


def test_how_a_record_stands_in_its_transaction(
    api: Api, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch(b"outside")})
    states = []
    for number, ends in enumerate(("committed", "aborted", "open")):
        producer = client.transaction(f"{unique}-{number}")
        producer.init()
        producer.add_partitions([(topic, 0)])
        producer.produce([TransactionalBatch(topic, 0, batch(ends.encode()), 1)])
        if ends == "committed":
            producer.end()
        elif ends == "aborted":
            producer.abort()
        states.append(producer)
    client.produce({(topic, 0): batch(b"behind")})
    page = api.get(f"/topics/{topic}/records", **{"from": "earliest"})
    assert [(one["value"]["text"], one["transaction"]) for one in page["records"]] == [
        ("outside", None),
        ("committed", "committed"),
        ("aborted", "aborted"),
        ("open", "open"),
        ("behind", None),
    ]
    states[-1].abort()
    last = api.get(f"/topics/{topic}/records", limit=2)
    assert [one["transaction"] for one in last["records"]] == ["aborted", None]


def test_a_place_of_any_kind_and_one_record_whole(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    long = json.dumps({"text": "x" * 10_000, "exact": 9007199254740993})
    client.produce({(topic, 0): batch(b"a", long.encode(), b"\xff\xfe", None, compression=0)})
    shown = {
        place: [one["offset"] for one in api.get(f"/topics/{topic}/records", **{"from": place})["records"]]
        for place in ("earliest", "1", "-2", *TIMES)
    }
    assert shown == {
        "earliest": [0, 1, 2, 3],
        "1": [1, 2, 3],
        "-2": [2, 3],
        "1970-01-01T00:00:01.002Z": [2, 3],
        "1970-01-01T02:00:01.002+02:00": [2, 3],
        "1970-01-01T00:00:01.002": [2, 3],
        "0001-01-01T00:00:00Z": [0, 1, 2, 3],
        "9999-12-31T23:59:59Z": [],
    }
    listed = api.get(f"/topics/{topic}/records", **{"from": "earliest"})["records"]
    assert (listed[1]["value"]["cut"], len(listed[1]["value"]["text"])) == (True, 4096)
    assert (listed[2]["value"]["format"], listed[2]["value"]["text"]) == ("hex", "fffe")
    assert listed[3]["value"] is None
    whole = api.get(f"/topics/{topic}/record", partition=0, offset=1)
    assert (whole["value"]["text"], bytes.fromhex(whole["value_hex"]).decode()) == (long, long)
    assert api.refused("GET", f"/topics/{topic}/record", partition=0, offset=99)[0] == 404
    for wrong in ("1970-13-01T00:00:00Z", "1970-01-01T25:00:00Z", "10000-01-01T00:00:00Z", "now()"):
        assert api.refused("GET", f"/topics/{topic}/records", **{"from": wrong})[0] == 400, wrong
    for digits in ("9" * 5_000, "-" + "9" * 5_000, "9223372036854775808"):
        assert "is not an offset" in api.refused("GET", f"/topics/{topic}/records", **{"from": digits})[1]
    for query in ({"from": "soon"}, {"partition": "7"}, {"limit": "-1"}, {"positions": "0"}, {"nope": "1"}):
        assert api.refused("GET", f"/topics/{topic}/records", **query)[0] == 400, query
    assert api.refused("GET", "/topics/nothing-of-that-name/records")[0] == 404
    status, message = api.refused("GET", f"/topics/{topic}/records", **{"from": "99"})
    assert (status, "holds offsets 0 to 4, not 99" in message) == (404, True)


# -- searching -----------------------------------------------------------------------------------------------


def scanned(api: Api, topic: str, **query: Any) -> tuple[list[int], Any]:
    found: list[int] = []
    with api.events(f"/topics/{topic}/scan", **query) as events:
        for name, data in events:
            if name == "records":
                found += [one["offset"] for one in data]
            elif name in ("end", "failed"):
                return found, data
    raise AssertionError("the stream ended without a word")


def test_a_search_gives_the_same_answer_twice(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic(2)
    for partition in (1, 0):
        values = [b'{"n": %d, "s": "<script>"}' % number for number in range(200)]
        client.produce({(topic, partition): batch(*values)})
    first = scanned(api, topic, filter="n >= 190 and s == '<script>'")
    known = {"unclear": 0, "first_unclear": None, "leaderless": [], "deleted": 0}
    assert first == ([*range(190, 200)] * 2, {"reason": "end", "scanned": 400, "matched": 20} | known)
    assert scanned(api, topic, filter="n >= 190 and s == '<script>'") == first
    limited = scanned(api, topic, filter="n >= 190", limit=3)
    assert limited == ([190, 191, 192], {"reason": "limit", "scanned": 193, "matched": 3} | known)
    unclear = scanned(api, topic, filter="n.nothing == 1")[1]
    assert (unclear["unclear"], "offset 0" in unclear["first_unclear"]) == (400, True)
    for code in ("__import__('os')", "exec('1')", "[x for x in n]"):
        status, message = api.refused("GET", f"/topics/{topic}/scan", filter=code)
        assert status == 400, message


def test_a_search_that_costs_most_ends_when_nobody_waits_and_holds_up_nobody(
    serving: Callable[..., ConsoleServer], client: Client, new_topic: NewTopicFixture
) -> None:
    """The dearest rule that is allowed, over records as large as they come."""
    topic = new_topic()
    value = json.dumps({"s": "ab" * 200_000}).encode()
    for _ in range(20):
        client.produce({(topic, 0): batch(value, value)})
    dearest = " or ".join(["s.upper().lower().contains('xy')"] * 60)
    server = serving()
    api, others = Api(server.url), Api(server.url)
    began: list[int] = []
    with api.events(f"/topics/{topic}/scan", filter=dearest) as events:
        name, progress = next(events)
        began.append(progress["scanned"] if name == "progress" else 0)
        for path in ("/topics", "/overview", f"/topics/{topic}/records"):
            others.get(path)
        assert began[0] < 40  # it is in the middle of its records
        wait_until(lambda: server.open_streams == 1, 10, "the search")
    wait_until(lambda: server.open_streams == 0, 10, "its end")
    for longer in (f"{dearest} or {dearest} or {dearest} or {dearest}", "a" * 10_001, "(" * 2_000):
        status, message = api.refused("GET", f"/topics/{topic}/scan", filter=longer)
        assert status == 400, message


def test_a_tail_has_what_comes_and_counts_what_it_leaves_out(
    api: Api, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch(b"before")})
    seen, dropped = [], 0
    with api.events(f"/topics/{topic}/tail") as events:
        assert next(events) == ("records", {"records": [], "dropped": 0, "leaderless": []})
        client.produce({(topic, 0): batch(*[b"%d" % number for number in range(100)])})
        for _, data in events:
            seen += [one["value"]["text"] for one in data["records"]]
            dropped += data["dropped"]
            if len(seen) + dropped == 100:
                break
    assert seen[-1] == "99"
    assert "before" not in seen


def test_a_tail_counts_the_records_that_its_filter_does_not_fit(
    api: Api, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    with api.events(f"/topics/{topic}/tail", filter="n.late > 1") as events:
        next(events)
        client.produce({(topic, 0): batch(b'{"n": 1}', b'{"n": 2}')})
        _, data = next(events)
    assert (data["records"], data["unclear"], "offset 0" in data["first_unclear"]) == ([], 2, True)


def test_files_are_exact_and_run_nothing(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    exact = b'{"big": 90071992547409930001, "price": 1.10}'
    client.produce({(topic, 0): batch(exact, b"=cmd|' /C calc'!A0", b"-5")})
    answer = api.http.get(f"/topics/{topic}/export")
    assert answer.headers["content-disposition"] == f'attachment; filename="{topic}.jsonl"'
    lines = answer.text.splitlines()
    assert '"value":{"big": 90071992547409930001, "price": 1.10}' in lines[0]
    assert [json.loads(line)["offset"] for line in lines] == [0, 1, 2]
    rows = list(csv.DictReader(io.StringIO(api.http.get(f"/topics/{topic}/export?format=csv").text)))
    assert [row["value"] for row in rows] == [exact.decode(), "'=cmd|' /C calc'!A0", "-5"]


def test_a_file_has_all_headers_of_a_record(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    headers = (("step", b"1"), ("step", b"2"), ("none", None))
    client.produce({(topic, 0): encode_batch([Record(offset=0, timestamp=1, key=None, value=b"{}", headers=headers)])})
    (line,) = api.http.get(f"/topics/{topic}/export").text.splitlines()
    assert json.loads(line)["headers"] == [["step", "1"], ["step", "2"], ["none", None]]


def test_a_file_that_was_cut_off_does_not_look_whole(
    serving: Callable[..., ConsoleServer],
    client: Client,
    new_topic: NewTopicFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(records_api, "SCAN_STEP_MS", 0)  # a step for each record
    topic = new_topic()
    client.produce({(topic, 0): batch(*[b"%d" % number for number in range(2_000)])})
    server = serving()
    with Api(server.url).http.stream("GET", f"/topics/{topic}/export") as answer:
        lines = answer.iter_lines()
        assert json.loads(next(lines))["offset"] == 0
        server.console.is_stopped = True
        with pytest.raises(httpx.RemoteProtocolError):
            list(lines)


def test_each_record_of_a_file_is_a_line_with_all_of_its_headers(
    api: Api, client: Client, new_topic: NewTopicFixture
) -> None:
    """As `suiro topic produce --json` reads them."""
    topic = new_topic()
    headers = (("id", b"7"), ("id", b"8"), ("none", None), ("bytes", b"\xff\x00"))
    laid_out = b'{\n  "price": 1.10,\r\n  "note": "a\\nb"\n}'
    client.produce(
        {(topic, 0): encode_batch([Record(offset=0, timestamp=1, key=None, value=laid_out, headers=headers)])}
    )
    text = api.http.get(f"/topics/{topic}/export").text
    (line,) = text.splitlines()
    assert json.loads(line)["value"] == {"price": 1.10, "note": "a\nb"}
    assert '"price": 1.10,' in line
    write = of_values("json", encoder("json"))
    made = _from_json(line, 1, write, write, None)
    assert made.headers == headers


def test_a_file_says_which_values_could_not_be_decoded(api: Api, client: Client, new_topic: NewTopicFixture) -> None:
    """As `suiro topic records --json` does. They looked like texts of hex digits."""
    topic = new_topic()
    client.produce({(topic, 0): batch(b"{", b"{}")})
    lines = api.http.get(f"/topics/{topic}/export", params={"value": "json"}).text.splitlines()
    found = [json.loads(line) for line in lines]
    assert [(one["value"], "is not JSON" in one.get("value_error", "")) for one in found] == [
        ("7b", True),
        ({}, False),
    ]


def test_a_file_says_of_how_many_records_its_filter_could_not_tell(
    api: Api, client: Client, new_topic: NewTopicFixture
) -> None:
    """It left them out without a word."""
    topic = new_topic()
    client.produce({(topic, 0): batch(b'{"n": 1}', b'{"n": {"late": 2}}', b'{"n": 3}')})
    query = {"filter": "n.late > 1"}
    *lines, last = api.http.get(f"/topics/{topic}/export", params=query).text.splitlines()
    assert [json.loads(line)["offset"] for line in lines] == [1]
    told = json.loads(last)
    assert (told["unclear"], f"{topic}-0 offset 0" in told["first_unclear"]) == (2, True)
    *_, row = csv.reader(io.StringIO(api.http.get(f"/topics/{topic}/export", params={**query, "format": "csv"}).text))
    assert row == [ANY]
    assert row[0].startswith(f"# the filter could not be applied to 2 records, the first is {topic}-0 offset 0")
    whole = api.http.get(f"/topics/{topic}/export", params={"filter": "n.is_not_null()"}).text
    assert [json.loads(line)["offset"] for line in whole.splitlines()] == [0, 1, 2]


# -- changing ------------------------------------------------------------------------------------------------


def test_topics_are_made_altered_emptied_and_deleted(api: Api, unique: str, client: Client) -> None:
    api.post("/topics", name=unique, partitions=2, configs={"retention.ms": "-1"})
    api.post(f"/topics/{unique}/alter", partitions=3, configs={"max.message.bytes": "2000000"})
    page = api.get(f"/topics/{unique}")
    configs = {one["name"]: one["value"] for one in page["configs"]}
    assert (len(page["partitions"]), configs["max.message.bytes"]) == (3, "2000000")
    made = api.post(f"/topics/{unique}/records", key="k", value='{"a": 1.10}', headers={"h": "x"}, partition=2)
    assert made == {"partition": 2, "offset": 0}
    assert api.post(f"/topics/{unique}/copy", partition=2, offset=0, to=unique)["offset"] in (0, 1)
    record = api.get(f"/topics/{unique}/record", partition=2, offset=0)
    assert (record["value"]["text"], record["headers"]) == ('{"a": 1.10}', [{"name": "h", "text": "x"}])
    assert api.refused("POST", f"/topics/{unique}/delete", {"confirm": "x"})[0] == 400
    assert api.refused("POST", f"/topics/{unique}/delete-records", {"confirm": ""})[0] == 400
    api.post(f"/topics/{unique}/delete-records", confirm=unique)
    assert not api.get(f"/topics/{unique}/records", **{"from": "earliest"})["records"]
    api.post(f"/topics/{unique}/delete", confirm=unique)
    assert unique not in client.metadata()
    what = [one["what"] for one in api.get("/audit")["events"]]
    assert what[0].startswith(f"POST /api/v1/topics/{unique}/delete")
    assert not any("1.10" in each for each in what)  # what is in records is not noted


def test_bad_requests_name_what_is_wrong(api: Api, unique: str) -> None:
    wrong = [
        ({"name": unique, "partitions": "two"}, "partitions"),
        ({"name": unique, "color": "red"}, "color"),
        ({}, "name"),
        ([], "Expected `object`"),
    ]
    for body, said in wrong:
        status, message = api.refused("POST", "/topics", body)
        assert (status, said in message) == (400, True), message
    deep = api.http.post("/topics", content=b"[" * 100_000, headers={"content-type": "application/json"})
    assert deep.status_code == 400
    large = api.http.post("/topics", content=b" " * 2_000_000, headers={"content-type": "application/json"})
    assert large.status_code == 413


def test_groups_are_reset_after_a_dry_run_and_deleted(
    api: Api, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch(b"a", b"b", b"c")})
    client.offset_commit(unique, {(topic, 0): (1, "")})
    page = api.get(f"/groups/{unique}")
    assert (page["lag"], page["partitions"][0]["committed"], page["lag_ms"] > 0) == (2, 1, True)
    planned = api.post(f"/groups/{unique}/reset", to="earliest", dry_run=True)
    assert planned == [{"topic": topic, "partition": 0, "committed": 1, "offset": 0}]
    assert api.get(f"/groups/{unique}")["partitions"][0]["committed"] == 1
    api.post(f"/groups/{unique}/reset", to="earliest", dry_run=False)
    assert api.get(f"/groups/{unique}")["lag"] == 3

    def listed() -> Any:
        rows = {one["group"]: one for one in api.get("/groups")["groups"]}
        return rows.get(unique) if rows.get(unique, {}).get("lag") == 3 else None

    row = wait_until(listed, 60, "the group's lag in the list")
    assert (row["topics"], row["members"], row["lag_ms"] > 0) == ([topic], 0, True)
    api.post(f"/groups/{unique}/delete", confirm=unique)
    assert api.refused("GET", f"/groups/{unique}")[0] == 404


def test_numbers_beyond_those_of_the_protocol_are_no_failure(
    api: Api, client: Client, new_topic: NewTopicFixture, unique: str
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch(b"a")})
    body = {"confirm": topic, "before": {"0": 1 << 63}}
    assert api.refused("POST", f"/topics/{topic}/delete-records", body) == (
        400,
        f"{1 << 63} is not an offset",
    )
    body = {"key": None, "value": "1", "timestamp": 1 << 63}
    assert api.refused("POST", f"/topics/{topic}/records", body) == (400, f"{1 << 63} is not a timestamp")
    for path, body in (("", {"name": unique}), (f"/{topic}/alter", {})):
        status, said = api.refused("POST", f"/topics{path}", {"partitions": 1 << 31} | body)
        assert (status, "cannot carry what was asked for" in said) == (400, True), said
    for to in ("datetime", "offset", "shift"):
        client.offset_commit(unique, {(topic, 0): (0, "")})
        (planned,) = api.post(f"/groups/{unique}/reset", to=to, value=(1 << 63) + 7, dry_run=True)
        assert planned["offset"] == 1


def test_what_changes_is_told(api: Api, client: Client, unique: str) -> None:
    with api.events("/events") as events:
        assert next(events)[0] == "hello"
        api.post("/topics", name=unique)
        for name, data in events:
            if name == "delta" and unique in {one["name"] for one in data["topics"]["changed"]}:
                break
        api.post(f"/topics/{unique}/delete", confirm=unique)
        for name, data in events:
            if name == "delta" and unique in data["topics"]["removed"]:
                break
    assert unique not in {one["name"] for one in api.get("/topics")["topics"]}


def test_a_cluster_that_does_not_answer_is_said_to_be_so(serving: Callable[..., ConsoleServer]) -> None:
    settings = {"default.api.timeout.ms": "500"}
    api = Api(serving(bootstrap_servers="127.0.0.1:1", client_settings=settings).url)

    def said() -> Any:
        return "does not answer" in (api.get("/overview")["error"] or "")

    wait_until(said, 30, "the error")
    assert api.get("/overview")["problems"][0]["severity"] == "error"
    assert api.get("/topics") == {"version": 0, "topics": []}
    assert api.refused("GET", "/topics/orders")[0] == 503


# -- who may -------------------------------------------------------------------------------------------------


def test_roles_decide_who_may(
    serving: Callable[..., ConsoleServer], users: Path, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    before = client.metadata().keys()
    url = serving(users=users).url
    for role, auth in ((Role.VIEWER, VIEWER), (Role.OPERATOR, OPERATOR)):
        api = Api(url, auth)
        assert api.get("/me")["role"] == role.name.lower()
        above = [one for one in ENDPOINTS if one.role > role]
        assert above
        for one in above:
            path = one.path.replace("{topic}", topic)
            status, message = api.refused(
                one.method, path, {"confirm": topic, "name": "x"} if one.method == "POST" else None
            )
            assert (status, "role" in message) == (403, True), one.path
    assert client.metadata().keys() == before
    assert all(
        one.role > Role.VIEWER
        for one in ENDPOINTS
        if one.method == "POST" and "check" not in one.path and not one.path.endswith(("compare", "explain"))
    )
    assert Api(url, ("ada", "a")).get("/me")["role"] == "admin"  # named before any role
    assert httpx.get(f"{url}/api/v1/me", auth=("vera", "x")).status_code == 401
    noted = Api(url, ADMIN).get("/audit")["events"]
    assert {one["user"] for one in noted} == {"vera", "olga"}
    assert {one["status"] for one in noted} == {403}


def test_no_header_and_no_method_leads_around_a_role(
    serving: Callable[..., ConsoleServer], users: Path, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    viewer = Api(serving(users=users).url, VIEWER)
    path, body = f"/topics/{topic}/delete", {"confirm": topic}
    ways: list[dict[str, Any]] = [
        {"method": "GET", "headers": {"X-HTTP-Method-Override": "POST"}},
        {"method": "POST", "headers": {"X-HTTP-Method-Override": "GET"}},
        {
            "method": "POST",
            "headers": {"X-Forwarded-User": "ada", "X-Remote-User": "ada", "Suiro-For": "ada"},
        },
        {"method": "POST", "headers": {"Origin": str(viewer.http.base_url.copy_with(path="/")).rstrip("/")}},
        *({"method": method} for method in ("PUT", "DELETE", "PATCH", "OPTIONS", "HEAD", "post")),
    ]
    for way in ways:
        answer = viewer.http.request(url=path, json=body, **way)
        assert answer.status_code in (400, 403, 404, 405, 501), (way, answer.text)
    for odd in (
        f"/topics/{topic}//delete",
        f"/topics/{topic}/./delete",
        f"/TOPICS/{topic}/delete",
        f"{path}/",
    ):
        assert viewer.http.post(odd, json=body).status_code in (403, 404, 405), odd
    # What may be looked at with a body changes nothing, whatever else is in it.
    assert viewer.refused("POST", path, {"confirm": topic, "role": "admin"})[0] == 403
    assert topic in client.metadata()


def test_a_console_that_only_shows(serving: Callable[..., ConsoleServer], new_topic: NewTopicFixture) -> None:
    topic = new_topic()
    api = Api(serving(read_only=True).url)
    assert api.refused("POST", f"/topics/{topic}/delete", {"confirm": topic}) == (
        403,
        "this console only shows (--read-only)",
    )


def test_masked_fields_are_for_admins(
    serving: Callable[..., ConsoleServer], users: Path, client: Client, new_topic: NewTopicFixture
) -> None:
    topic = new_topic()
    client.produce({(topic, 0): batch(b'{"id": 1, "card": {"number": "4111"}}', b"not json 4111")})
    url = serving(users=users, masks=Masks.parse(["topic-*=card.number"])).url
    viewer, admin = Api(url, OPERATOR), Api(url, ADMIN)
    hidden = viewer.get(f"/topics/{topic}/records", **{"from": "earliest"})["records"]
    assert [one["value"]["text"] for one in hidden] == ['{"id":1,"card":{"number":"***"}}', "***"]
    whole = viewer.get(f"/topics/{topic}/record", partition=0, offset=0)
    assert whole["value_hex"] is None
    for value in ("string", "hex", "json", "auto"):
        text = json.dumps(viewer.get(f"/topics/{topic}/records", **{"from": "earliest"}, value=value))
        assert "4111" not in text
        assert b"4111".hex() not in text
    assert scanned(viewer, topic, filter="card.number == '4111'")[0] == []
    assert scanned(admin, topic, filter="card.number == '4111'") == (
        [0],
        {
            "reason": "end",
            "scanned": 2,
            "matched": 1,
            "leaderless": [],
            "deleted": 0,
            "unclear": 1,
            "first_unclear": ANY,
        },
    )
    assert "4111" not in viewer.http.get(f"/topics/{topic}/export").text
    copied = viewer.refused("POST", f"/topics/{topic}/copy", {"partition": 0, "offset": 0, "to": topic})
    assert copied[0] == 400
    assert "4111" in admin.http.get(f"/topics/{topic}/export").text


def test_pages_of_others_can_do_and_read_nothing(api: Api, unique: str, client: Client) -> None:
    body = {"name": unique}
    for headers in (
        {"origin": "https://evil.example"},
        {"origin": "null"},
        {"sec-fetch-site": "cross-site"},
        {"host": "evil.example"},
    ):
        assert api.http.post("/topics", json=body, headers=headers).status_code == 403, headers
    form = {"content-type": "text/plain"}
    assert api.http.post("/topics", content=json.dumps(body), headers=form).status_code == 415
    for headers in (
        {"sec-fetch-site": "cross-site"},
        {"sec-fetch-site": "same-site"},
        {"host": "evil.example"},
    ):
        for path in ("/topics", "/topics/x/export", "/events"):
            assert api.http.get(path, headers=headers).status_code == 403, (path, headers)
    assert unique not in client.metadata()
    for path in ("/api/v1/me", "/api/v1/nothing", "/", "/nothing"):
        found = httpx.get(str(api.http.base_url).removesuffix("/api/v1/") + path).headers
        assert "default-src 'none'; script-src 'self'" in found["content-security-policy"]
        assert "unsafe" not in found["content-security-policy"]
        assert (found["x-content-type-options"], found["x-frame-options"]) == ("nosniff", "DENY")


def test_the_document_of_the_api_is_whole(api: Api) -> None:
    document = api.get("/openapi.json")
    told = {(method.upper(), path) for path, methods in document["paths"].items() for method in methods}
    assert told == {(one.method, one.path) for one in ENDPOINTS}
    names = [operation["operationId"] for methods in document["paths"].values() for operation in methods.values()]
    assert len(names) == len(set(names))

    def references(value: Any) -> Iterator[str]:
        if isinstance(value, dict):
            if "$ref" in value:
                yield value["$ref"]
            for one in value.values():
                yield from references(one)
        elif isinstance(value, list):
            for one in value:
                yield from references(one)

    for reference in references(document):
        at = document
        for part in reference.removeprefix("#/").split("/"):
            at = at[part]


def test_a_stream_ends_when_its_reader_goes(serving: Callable[..., ConsoleServer], new_topic: NewTopicFixture) -> None:
    server = serving()
    api = Api(server.url)
    topic = new_topic()
    with api.events(f"/topics/{topic}/tail") as events:
        next(events)
        wait_until(lambda: server.open_streams == 1, 10, "the stream")
    wait_until(lambda: server.open_streams == 0, 10, "its end")


def test_a_console_that_stops_ends_its_streams(
    serving: Callable[..., ConsoleServer], new_topic: NewTopicFixture, caplog: pytest.LogCaptureFixture
) -> None:
    server = serving()
    api = Api(server.url)
    with api.events("/events") as changes, api.events(f"/topics/{new_topic()}/tail") as tail:
        assert (next(changes)[0], next(tail)[0]) == ("hello", "records")
        server.stop()
        assert [name for name, _ in changes if name != "delta"] == []
        assert [name for name, _ in tail if name not in ("records", "failed")] == []
    assert not [one for one in caplog.records if one.levelname == "ERROR"]
