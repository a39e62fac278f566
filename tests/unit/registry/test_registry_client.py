"""The client of registries: what it asks, what it keeps, what it asks again."""

from __future__ import annotations

import gzip
import json
import os
import signal
import struct
import warnings
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import httpx
import pytest
from support.waiting import wait_until

from suiro.errors import (
    ConfigError,
    RegistryRefusedError,
    RegistryUnavailableError,
    SchemaNotFoundError,
    UsageError,
)
from suiro.registry import (
    MOCK_SCHEME,
    CodecSettings,
    Reference,
    RegistryClient,
    Schema,
    Undecodable,
    codec_of,
    registry_client,
    use_registry_client,
)

GZIP = b"\x1f\x8b"


class Scripted:
    """A server that gives the answers it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.answers: list[tuple[int, Any]] = []
        self.asked: list[tuple[str, str, Any, str | None]] = []
        scripted = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                asked = (
                    self.command,
                    self.path,
                    json.loads(body) if body else None,
                    self.headers["Authorization"],
                )
                scripted.asked.append(asked)
                status, answer = scripted.answers.pop(0)
                data = answer if isinstance(answer, bytes) else json.dumps(answer).encode()
                self.send_response(status)
                self.send_header("Content-Length", str(len(data)))
                if data.startswith(GZIP):
                    self.send_header("Content-Encoding", "gzip")
                self.end_headers()
                self.wfile.write(data)

            do_POST = do_PUT = do_DELETE = do_GET

            def log_message(self, *arguments: Any) -> None:
                pass

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self._server.server_port}"
        Thread(target=self._server.serve_forever, daemon=True).start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()


@pytest.fixture
def server() -> Iterator[Scripted]:
    made = Scripted()
    yield made
    made.close()


def test_what_cannot_change_is_asked_once(server: Scripted) -> None:
    schema = Schema('"R"', "AVRO", (Reference(name="R", subject="r", version=1),))
    server.answers = [(200, {"id": 7}), (200, {"schema": '"int"', "schemaType": "JSON"})]
    with RegistryClient(server.url) as client:
        assert [client.register("a/b", schema) for _ in range(2)] == [7, 7]
        assert [client.schema(7) for _ in range(2)] == [Schema('"int"', "JSON")] * 2
    references = [{"name": "R", "subject": "r", "version": 1}]
    assert [asked[:3] for asked in server.asked] == [
        ("POST", "/subjects/a%2Fb/versions", {"schema": '"R"', "references": references}),
        ("GET", "/schemas/ids/7", None),
    ]


def test_a_cache_has_an_end(server: Scripted) -> None:
    server.answers = [(200, {"schema": f'"{n}"'}) for n in (1, 2, 1)]
    with RegistryClient(server.url, cache_size=1) as client:
        assert [client.schema(n).text for n in (1, 2, 1)] == ['"1"', '"2"', '"1"']


def test_what_may_pass_is_asked_again_what_is_refused_is_not(server: Scripted) -> None:
    server.answers = [(503, b"not yet"), (500, {"error_code": 50001, "message": "m"}), (200, ["s"])]
    with RegistryClient(server.url) as client:
        assert client.subjects() == ["s"]
        server.answers = [(404, {"error_code": 40401, "message": "no such"})]
        with pytest.raises(SchemaNotFoundError, match=r"no such \(error code 40401\)"):
            client.latest("s")
        server.answers = [(401, {"error_code": 401, "message": "Unauthorized"})]
        with pytest.raises(RegistryRefusedError, match="Unauthorized"):
            client.latest("s")
    server.answers = [(503, b"down")] * 2
    with (
        RegistryClient(server.url, retries=1) as client,
        pytest.raises(RegistryUnavailableError, match="down"),
    ):
        client.subjects()


def test_a_deletion_is_sent_once(server: Scripted) -> None:
    """The answer may be lost and the deletion not: the latest version is another one then."""
    server.answers = [(500, {"error_code": 50002, "message": "timed out"}), (200, 1)]
    with (
        RegistryClient(f"http://127.0.0.1:1,{server.url}") as client,
        pytest.raises(RegistryUnavailableError, match="timed out"),
    ):
        client.delete_version("s", -1)
    assert [asked[:2] for asked in server.asked] == [("DELETE", "/subjects/s/versions/-1")]


def test_another_address_is_tried(server: Scripted) -> None:
    server.answers = [(200, [])]
    with RegistryClient(f"http://127.0.0.1:1,{server.url}") as client:
        assert client.subjects() == []


def test_users_come_from_the_url_or_an_argument(server: Scripted) -> None:
    server.answers = [(200, [])] * 2
    with_user = server.url.replace("http://", "http://k%40i:p%3Aw@")
    RegistryClient(with_user).subjects()
    RegistryClient(server.url, ("k@i", "p:w")).subjects()
    assert len({asked[3] for asked in server.asked}) == 1
    assert (server.asked[0][3] or "").startswith("Basic ")
    with pytest.raises(ConfigError, match="different users"):
        RegistryClient(with_user, ("other", "x"))


@pytest.mark.parametrize(
    "url", ["", "127.0.0.1:8081", "ftp://x", "http://", "http://[", "http://a..b", "ftp://ada:secret@x"]
)
def test_what_is_no_address(url: str) -> None:
    with pytest.raises(ConfigError, match="expected http") as refused:
        RegistryClient(url)
    assert "secret" not in str(refused.value)


def test_a_file_of_certificates_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"https://x: the certificates in \S+/ca.pem .* No such file"):
        RegistryClient("https://ada:secret@x", ca=str(tmp_path / "ca.pem"))


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        pytest.param(b'["' + b"x" * 100_000 + b'"]', "more than 50000 bytes", id="long"),
        pytest.param(gzip.compress(b" " * 50_000_000, mtime=0), "more than 50000 bytes", id="long when it is unpacked"),
        pytest.param(GZIP + b"is not what follows", "not valid gzip", id="no gzip"),
        pytest.param(b"<html>Welcome</html>", "not that of a schema registry", id="another server's page"),
        pytest.param(b"[" * 40_000, "not that of a schema registry", id="deep"),
    ],
)
def test_an_answer_that_no_registry_gives_is_refused(
    server: Scripted, monkeypatch: pytest.MonkeyPatch, answer: bytes, reason: str
) -> None:
    monkeypatch.setattr("suiro.registry.client.ANSWER_BYTES_MAX", 50_000)
    server.answers = [(200, answer)]
    with RegistryClient(server.url) as client, pytest.raises(RegistryRefusedError, match=reason):
        client.subjects()
    assert len(server.asked) == 1


@pytest.mark.parametrize(
    "answer", [{}, [{}], 7.5, None, {"id": "x", "schema": 7}, {"schema": "a", "references": [7]}], ids=str
)
def test_an_answer_of_another_shape_is_refused(server: Scripted, answer: Any) -> None:
    """It was a KeyError, which ended commands, connectors and applications."""
    schema = Schema('"int"')
    with RegistryClient(server.url) as client:
        for call in (
            client.subjects,
            lambda: client.register("s", schema),
            lambda: client.lookup("s", schema),
            lambda: client.schema(7),
            lambda: client.latest("s"),
            lambda: client.version("s", 1),
            lambda: client.versions("s"),
            lambda: client.delete_subject("s"),
            lambda: client.delete_version("s", 1),
            lambda: client.compatibility("s"),
            lambda: client.compatible("s", schema),
        ):
            server.answers = [(200, answer)]
            with pytest.raises(RegistryRefusedError, match="not that of a schema registry"):
                call()


def test_a_path_of_no_registry_accepts_no_schema(server: Scripted) -> None:
    """`suiro schema check` said that the subject accepts it, whatever it was."""
    with RegistryClient(f"{server.url}/wrong") as client:
        server.answers = [(404, {"error_code": 40401, "message": "Subject 's' not found."})]
        assert client.compatible("s", Schema('"int"')) == []
        for answer in (b"<html>", {"error_code": 404, "message": "HTTP 404 Not Found"}):
            server.answers = [(404, answer)]
            with pytest.raises(RegistryRefusedError, match="/wrong/"):
                client.compatible("s", Schema('"int"'))


@pytest.mark.parametrize("schema", [None, Schema('"int"')])
def test_what_a_path_of_no_registry_answers_is_no_fault_of_a_record(server: Scripted, schema: Schema | None) -> None:
    """Records were dead letters, or skipped, because a proxy had no registry behind it: 404."""
    settings = CodecSettings(registry=f"{server.url}/wrong", schema=schema, auto_register=False)
    codec = codec_of("AVRO", settings)
    for call in (lambda: codec.decode(b"\0\0\0\0\x07\x02"), lambda: codec.encode("t", 1)):
        server.answers = [(404, b"default backend - 404")]
        with pytest.raises(RegistryRefusedError, match="default backend"):
            call()
    with pytest.raises(Undecodable, match="schema id 4294967295 is not in the registry"):
        codec.decode(b"\0\xff\xff\xff\xff\x02")  # garbage, for whose id Confluent's registry answers 404, too


def test_a_subject_is_one_segment_of_a_path(server: Scripted) -> None:
    """The level of the subject ".", and of "", was set for all subjects."""
    server.answers = [(200, {"compatibility": "NONE"}), (200, [1])]
    with RegistryClient(server.url) as client:
        with pytest.raises(UsageError, match="a subject is empty"):
            client.set_compatibility("NONE", "")
        client.set_compatibility("NONE", ".")
        client.versions("../a?b")
    assert [asked[1] for asked in server.asked] == ["/config/%2E", "/subjects/..%2Fa%3Fb/versions"]


def test_a_new_schema_refers_to_what_has_the_number_of_a_version_now(unique: str) -> None:
    """A reader that knew what had been deleted permanently read the records as if they still referred to it."""
    url = f"{MOCK_SCHEME}{unique}"
    transport = registry_client(url)._http._transport
    reader = codec_of("AVRO", CodecSettings(registry=url))
    order = Schema(
        '{"type": "record", "name": "Order", "fields": [{"name": "price", "type": "Money"}]}',
        "AVRO",
        (Reference(name="Money", subject="money", version=1),),
    )
    for kind, body, value in (("int", b"\x0e", 7), ("string", b"\x04EU", "EU")):
        elsewhere = RegistryClient("http://registry.in.memory", transport=transport)
        fields = [{"name": "is", "type": kind}]
        elsewhere.register("money", Schema(json.dumps({"type": "record", "name": "Money", "fields": fields})))
        number = elsewhere.register("order", order)
        assert reader.decode(struct.pack(">bI", 0, number) + body) == {"price": {"is": value}}
        for subject in ("order", "money"):
            elsewhere.delete_subject(subject)
            elsewhere.delete_subject(subject, permanent=True)


TOO_DEEP = 100_000
"""Levels, for the JSON readers of all versions of Python."""


@pytest.mark.parametrize(
    ("language", "text", "other"),
    [
        ("AVRO", '"Nothing"', '"int"'),
        ("AVRO", '{"type": "array"}', '"int"'),
        ("AVRO", '{"type": {"type": "int"}}', '"int"'),
        ("AVRO", '{"type": "record", "name": ["."]}', '"int"'),
        ("AVRO", '[["int"]]', '"int"'),
        ("AVRO", '{"type": "fixed", "name": "F", "size": "8"}', '"int"'),
        ("AVRO", '{"type": "fixed", "name": "F", "size": -8}', '"int"'),
        (
            "AVRO",
            '{"type": "fixed", "name": "F", "size": 1e400, "logicalType": "decimal", "precision": 1}',
            '"int"',
        ),
        ("JSON", '{"$schema": "nonsense:"}', "{}"),
        ("PROTOBUF", "nonsense", 'syntax = "proto3"; message A {}'),
        pytest.param("AVRO", '{"type":' * TOO_DEEP + '"int"' + "}" * TOO_DEEP, '"int"', id="deep Avro"),
        pytest.param("JSON", '{"not":' * TOO_DEEP + "{}" + "}" * TOO_DEEP, "{}", id="deep JSON"),
        pytest.param("JSON", "{}", '{"not":' * TOO_DEEP + "{}" + "}" * TOO_DEEP, id="deep JSON behind it"),
    ],
)
def test_a_schema_that_cannot_be_used_is_looked_at_once(unique: str, language: str, text: str, other: str) -> None:
    """Each of its records asked the registry for what the schema refers to."""
    asked: list[str] = []

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.path)
        if "/ids/" in request.url.path:
            reference = {"name": "other", "subject": "other", "version": 1}
            return httpx.Response(200, json={"schema": text, "schemaType": language, "references": [reference]})
        return httpx.Response(
            200, json={"id": 1, "subject": "other", "version": 1, "schema": other, "schemaType": language}
        )

    url = f"http://{unique}"
    use_registry_client(url, RegistryClient(url, transport=httpx.MockTransport(answer)))
    codec = codec_of(language, CodecSettings(registry=url))
    for _ in range(3):
        with pytest.raises(Undecodable, match="schema"):
            codec.decode(struct.pack(">bI", 0, 7) + b"\x00")
    assert asked == ["/schemas/ids/7", "/subjects/other/versions/1"]


def test_a_schema_cannot_say_that_it_is_parsed(unique: str) -> None:
    """fastavro took its types without a check. Names that are not theirs hid that they hold themselves, and a value of
    many levels ended the process."""
    url = f"mock://{unique}"
    within = {
        "type": "record",
        "name": "Q",
        "namespace": "m",
        "fields": [{"name": "x", "type": ["null", "n.R"]}],
    }
    hidden = {"type": "record", "name": "Z", "fields": [{"name": "x", "type": ["null", "n.R"]}]}
    outer = {"type": "record", "name": "R", "namespace": "n", "fields": [{"name": "x", "type": within}]}
    marks = {"__fastavro_parsed": True, "__named_schemas": {"n.R": hidden}}
    array = {"type": "array", "items": "int", "__named_schemas": 5}
    client, codec = registry_client(url), codec_of("AVRO", CodecSettings(registry=url))
    number = client.register("s", Schema(json.dumps(outer | marks)))
    with pytest.raises(Undecodable, match="nested deeper"):
        codec.decode(struct.pack(">bI", 0, number) + b"\2" * 1_000 + b"\0")
    number = client.register("t", Schema(json.dumps(array)))
    assert codec.decode(struct.pack(">bI", 0, number) + b"\0") == []


def test_a_registry_in_memory_answers_after_a_fork() -> None:
    """Its thread is not in the child, which waited for it forever. The child's registry is another one."""
    url = "mock://fork"
    registry_client(url).register("before", Schema('"string"'))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # of a fork with threads
        child = os.fork()
    if child == 0:
        code = 1
        try:
            code = int(registry_client(url).subjects() != [])
        finally:
            os._exit(code)
    ended: list[int] = []

    def has_ended() -> bool:
        pid, status = os.waitpid(child, os.WNOHANG)
        ended.extend([status] if pid else [])
        return bool(pid)

    try:
        wait_until(has_ended, 30, "the child's answer")
    finally:
        if not ended:
            os.kill(child, signal.SIGKILL)
            os.waitpid(child, 0)
    assert ended == [0]
