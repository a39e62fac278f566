"""`suiro app`: what an application tells of itself, on a terminal; and what is said where it tells nothing."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from suiro.cli.applications import app

APPLICATION = {
    "application_id": "billing",
    "state": "RUNNING",
    "error": None,
    "processed_per_s": 12.5,
    "lag": 3,
    "stores": [
        {"name": "my/counts", "kind": "key-value", "topic": "billing-counts-changelog", "rows": 34, "bytes": 1_020,
         "tasks": 2},
        {"name": "windows", "kind": "window", "topic": None, "rows": None, "bytes": None, "tasks": 0},
    ],
    "held": [{"sub_topology": 1, "partition": 3, "node": "in", "records": 7, "condition": "idling",
              "why": "An input has more records."}],
    "retries": 2,
    "aborts": 0,
    "batches": [
        {"batch": 4, "at": 0, "rows": 5, "duration_ms": 80, "retries": 2},
        {"batch": 5, "at": 0, "rows": 6, "duration_ms": 90, "retries": 0},
    ],
    "graph": {
        "nodes": [
            {"id": "in", "name": "in", "sub_topology": 0, "engine": "block", "records": 5, "records_per_s": 0.5,
             "topics": ["orders"], "store": None},
            {"id": "sum-03", "name": "sum\x1b[31m", "sub_topology": 0, "engine": "record", "records": None,
             "records_per_s": None, "topics": [], "store": "counts"},
        ],
        "edges": [{"from": "in", "to": "sum-03"}],
    },
}  # fmt: skip
OLD = {name: value for name, value in APPLICATION.items() if name not in ("held", "retries", "aborts", "batches")}
OLD["stores"] = [{"name": "counts"}]
ROWS = {"rows": [{"key": "c0", "value": "34", "window": [0, 1000]}], "next": 1, "offsets": {"0": 18}}
EXPLAINED = {
    "store": "counts", "key": "c0", "window": [0, 1000], "found": True, "value": "34",
    "records": [{"topic": "orders", "partition": 1, "offset": 7, "timestamp": 1_372_636_800_000}],
    "earlier": 2, "read": 1_200, "stopped": "60 s were over", "proven": True,
    "begin_later": [{"topic": "orders", "partition": 0, "offset": 4}],
}  # fmt: skip
ANSWERS: dict[str, tuple[int, bytes]] = {
    "/api/v1/application": (200, json.dumps(APPLICATION).encode()),
    "/api/v1/application/stores/my%2Fcounts": (200, json.dumps(ROWS).encode()),
    "/api/v1/application/stores/nothing": (400, b'{"error_code": 400, "message": "there is no such store"}'),
    "/api/v1/application/stores/counts/explain": (200, json.dumps(EXPLAINED).encode()),
    "/odd/api/v1/application": (200, b"<html>"),
    "/another/api/v1/application": (200, b'{"status": "ok"}'),
    "/other/api/v1/application": (200, b'{"application_id": 1, "graph": {"nodes": 1}}'),
    "/other/api/v1/application/stores/counts/explain": (200, b"{}"),
    "/other/api/v1/application/stores/counts": (200, b"{}"),
    "/old/api/v1/application": (200, json.dumps(OLD).encode()),
    "/old/api/v1/application/stores/counts": (200, json.dumps(ROWS).encode()),
}

ASKED: list[Any] = []


@pytest.fixture(scope="module")
def url() -> Iterator[str]:
    class Answering(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, content = ANSWERS.get(self.path.partition("?")[0], (404, b"{}"))
            self.send_response(status)
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def do_POST(self) -> None:
            ASKED.append(json.loads(self.rfile.read(int(self.headers["content-length"]))))
            self.do_GET()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Answering)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_what_an_application_tells(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["list", "--app", url]) == 0
    assert f"billing\tRUNNING\t12.5\t3\t2\t34\t1020\t7\t2\t{url}" in capsys.readouterr().out
    assert app.main(["graph", "--app", url]) == 0
    shown = capsys.readouterr().out
    for line in (
        "0\tin\tblock\t5\t0.5\torders\t\tsum\\x1b[31m",
        "my/counts\tkey-value\t34\t1020\t2\tbilling-counts-changelog",
        "windows\twindow\t\t\t0\t",
        "1_3\tin\t7\tidling\tAn input has more records.",
        "4\t2\t5\t80",
    ):
        assert line in shown.split("\n")
    assert "\n5\t0" not in shown  # a micro-batch that came at once
    assert "\x1b" not in shown
    assert app.main(["graph", "--app", url, "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert told.items() >= APPLICATION["graph"].items()
    assert (told["held"], told["retried"]) == (APPLICATION["held"], APPLICATION["batches"][:1])
    assert app.main(["store", "my/counts", "--app", f"{url}/"]) == 0
    said = capsys.readouterr()
    assert "c0\t1970-01-01T00:00:00.000Z to 1970-01-01T00:00:01.000Z\t34" in said.out
    assert "34 rows, about 1,020 bytes, in 2 tasks" in said.err
    assert app.main(["store", "my/counts", "--app", url, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["store"] == APPLICATION["stores"][0]


def test_a_list_needs_an_application(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        app.main(["list"])
    assert (stopped.value.code, "give --app URL" in capsys.readouterr().err) == (2, True)


def test_an_application_of_an_older_suiro_is_shown_without_what_it_does_not_tell(
    url: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert app.main(["list", "--app", f"{url}/old"]) == 0
    assert f"billing\tRUNNING\t12.5\t3\t1\t\t\t\t\t{url}/old" in capsys.readouterr().out
    assert app.main(["graph", "--app", f"{url}/old"]) == 0
    assert "counts\t\t\t\t\t" in capsys.readouterr().out
    assert app.main(["store", "counts", "--app", f"{url}/old"]) == 0
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["store", "nothing", "--app", "{url}"], "there is no such store"),
        (["list", "--app", "{url}/odd"], "does not answer as an application does: 200 OK: <html>"),
        (["list", "--app", "{url}/none"], "404 Not Found"),
        (["list", "--app", "http://ada:secret@127.0.0.1:1"], "no answer from http://127.0.0.1:1: "),
        (["list", "--app", "ada:secret@127.0.0.1:1"], "'127.0.0.1:1': expected http://HOST:PORT"),
        (["list", "--app", "http://ada:secret/x@127.0.0.1:1"], "'http://127.0.0.1:1' is no URL"),
        (["list", "--app", "{url}/another"], "does not answer as an application does"),
        (["graph", "--app", "{url}/another"], "does not answer as an application does"),
        (["list", "--app", "{url}/other"], "does not answer as an application does"),
        (["graph", "--app", "{url}/other"], "does not answer as an application does"),
        (["store", "counts", "--app", "{url}/other"], "does not answer as an application does"),
        (["explain", "counts", "c0", "--app", "{url}/other", "--json"], "does not answer as an application does"),
        (["list", "--app", "nonsense"], "expected http://HOST:PORT"),
        (["list", "--app", "http://a..b"], "'http://a..b' is no URL: "),
    ],
)
def test_why_there_is_nothing_to_show(
    url: str, capsys: pytest.CaptureFixture[str], arguments: list[str], said: str
) -> None:
    with pytest.raises(SystemExit) as stopped:
        app.main([one.format(url=url) for one in arguments])
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert (told.out, said in told.err, told.err.count("\n")) == ("", True, 1), told
    assert "secret" not in told.err


def test_those_that_answer_are_listed_beside_one_that_does_not(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stopped:
        app.main(["list", "--app", "http://127.0.0.1:1", "--app", url, "--app", f"{url}/none"])
    assert stopped.value.code == 1
    told = capsys.readouterr()
    assert "billing\tRUNNING\t12.5\t3\t2" in told.out
    assert "no answer from http://127.0.0.1:1: " in told.err
    assert "404 Not Found" in told.err
    assert told.err.count("\n") == 2


UPGRADED = """
from names import OUT
from suiro.streams import serdes

def build(builder):
    words = builder.stream("in", key=serdes.string, value=serdes.string){change}
    words.group_by_key().count().to_stream().to(OUT)
"""


def versions(place: Path, **changes: str) -> list[str]:
    """Files of one name in a folder each, with a module of one name beside them."""
    for folder, change in changes.items():
        (place / folder).mkdir()
        (place / folder / "words.py").write_text(UPGRADED.format(change=change))
        (place / folder / "names.py").write_text(f"OUT = {folder!r}")
    return [str(place / folder / "words.py") for folder in changes]


def test_an_upgrade_is_told_of_two_files_with_one_name(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    files = versions(tmp_path, old="", new=".filter(lambda key, value: True)")
    assert app.main(["upgrade", *files]) == 0
    told = capsys.readouterr()
    assert "to be named" in told.out
    assert "old\tleft" in told.out
    assert "new\tfrom now on" in told.out
    assert "carries over once" in told.err
    with pytest.raises(SystemExit, match="1"):
        app.main(["upgrade", *files, "--check"])
    capsys.readouterr()
    assert app.main(["upgrade", files[1], files[1], "--check", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["carries_over"] is True


def test_an_error_of_a_file_of_an_upgrade_is_shown_with_its_lines(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    files = versions(tmp_path, old="", new=".no_such_operator()")
    with pytest.raises(SystemExit, match="1"):
        app.main(["upgrade", *files])
    told = capsys.readouterr().err
    assert "AttributeError" in told
    assert files[1] in told
    assert "suiro/cli" not in told


def test_the_input_records_of_a_row(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert app.main(["explain", "--app", url, "counts", "c0", "--window", "0-1000"]) == 0
    said = capsys.readouterr()
    assert ASKED.pop() == {"key": "c0", "window": [0, 1000]}
    assert "orders\t1\t7\t2013-07-01" in said.out
    for line in (
        "1,200 records were read",
        "2 earlier records of the row are not shown",
        "it stopped early, because 60 s were over: later records are missing",
        "orders-0 begins at offset 4: records before it are gone",
        "these records alone make this row",
    ):
        assert line in said.err
    assert app.main(["explain", "--app", url, "counts", "c0", "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == EXPLAINED
    assert ASKED.pop() == {"key": "c0", "window": None}
    with pytest.raises(SystemExit):
        app.main(["explain", "--app", url, "counts", "c0", "--window", "yesterday"])
    assert "expected START-END in ms" in capsys.readouterr().err
