"""Avro through a real registry: files written as Avro, a captured table that a sink writes into another one."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastavro
import psycopg
import pytest
from conftest import LogUnderTest
from support.connecting import committed, reaches, running, send, write
from support.postgres import Postgres
from support.waiting import wait_until

from suiro.client import Client
from suiro.registry import RegistryClient, RegistryProcess, Schema

SCHEMA = {
    "type": "record",
    "name": "Weather",
    "fields": [{"name": "station", "type": "string"}, {"name": "temp", "type": ["null", "double"]}],
}


@pytest.fixture(scope="session")
def log_under_test(suiro_node: Any) -> LogUnderTest:
    return LogUnderTest("node", suiro_node.bootstrap_servers)


@pytest.fixture(scope="module")
def registry(suiro_node: Any) -> Iterator[RegistryProcess]:
    with RegistryProcess.start(suiro_node.bootstrap_servers, options=["--topic", "_schemas-connect"]) as process:
        yield process


def shared(bootstrap: str, registry: RegistryProcess) -> str:
    return f'[connect]\nbootstrap_servers = "{bootstrap}"\nlisten = "127.0.0.1:0"\nregistry = "{registry.url}"\n'


def test_files_become_avro_and_avro_becomes_rows(
    tmp_path: Path, bootstrap: str, client: Client, registry: RegistryProcess, unique: str
) -> None:
    (tmp_path / "weather.avsc").write_text(json.dumps(SCHEMA))
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "a.jsonl").write_text('{"station": "EWR", "temp": 1.5}\n{"station": 3}\n')
    text = shared(bootstrap, registry) + (
        f'[source.{unique}]\nkind = "files"\nfolder = "in"\nformat_of_files = "jsonl"\ntopic = "{unique}"\n'
        f'format = "avro"\nformat_schema = "weather.avsc"\ndead_letter_topic = "dead-{unique}"\n'
        f'[sink.out-{unique}]\nkind = "parquet"\nfolder = "out"\ntopics = ["{unique}"]\n'
        'format = "avro"\nlinger_ms = 0\n'
        f'dead_letter_topic = "dead-{unique}"\n'
        f'[sink.out-{unique}.columns]\nstation = "string"\ntemp = "double"\n'
    )
    with running(tmp_path, bootstrap, text) as runtime:
        reaches(runtime, f"out-{unique}", lambda at: at["records"] == 1, "one row")
        send(client, unique, [b"no avro", b"\0\x7f\xff\xff\xff"])
        reaches(runtime, f"out-{unique}", lambda at: at["rejected"] == 2, "an answer to what is no Avro")
    (row, *_) = committed(client, unique)
    with RegistryClient(registry.url) as asked:
        known = asked.latest(f"{unique}-value")
    assert row["value"][:5] == b"\0" + known.id.to_bytes(4, "big")
    assert fastavro.schemaless_reader(io.BytesIO(row["value"][5:]), SCHEMA, None) == {
        "station": "EWR",
        "temp": 1.5,
    }
    dead = committed(client, f"dead-{unique}")
    assert dead[0]["value"] == b'{"station": 3}'
    assert b"does not fit the schema" in dead[0]["headers"]["__connect.errors.exception.message"]


def test_a_schema_that_refers_to_another_is_followed(
    tmp_path: Path, bootstrap: str, client: Client, registry: RegistryProcess, unique: str
) -> None:
    from suiro.connect.values import decoder
    from suiro.registry import Reference

    inner = '{"type": "record", "name": "Inner", "fields": [{"name": "n", "type": "long"}]}'
    outer = '{"type": "record", "name": "Outer", "fields": [{"name": "inner", "type": "Inner"}]}'
    with RegistryClient(registry.url) as asked:
        asked.register(f"inner-{unique}", Schema(inner))
        reference = Reference(name="Inner", subject=f"inner-{unique}", version=1)
        number = asked.register(f"outer-{unique}", Schema(outer, references=(reference,)))
        decode = decoder("format", "avro", registry.url)
        assert decode(b"\0" + number.to_bytes(4, "big") + b"\x06") == {"inner": {"n": 3}}


def test_a_captured_table_is_written_into_another_database(
    tmp_path: Path, bootstrap: str, registry: RegistryProcess, unique: str
) -> None:
    server = Postgres(tmp_path / "pg")
    name = unique.replace("-", "_")
    columns = (
        "id bigint, name text, price numeric(12,3), at timestamptz, day date, raw bytea, ok boolean, rate float8, "
        'doc jsonb, given json, docs jsonb[], PRIMARY KEY (id, doc, "Größe (m)"), '
        "within no_text, more no_text[], offer offer, offers offer[], cost cost DEFAULT 1, closes time DEFAULT '24:00'"
        ", \"Größe (m)\" jsonb DEFAULT '[1.10]'"
    )
    types = (
        "CREATE DOMAIN no_text AS jsonb CHECK (jsonb_typeof(VALUE) <> 'string'); "
        "CREATE DOMAIN cost AS numeric(6,2) NOT NULL; "
        'CREATE TYPE offer AS (doc jsonb, within no_text, given json, "1st" jsonb)'
    )
    text = shared(bootstrap, registry) + (
        f'[source.{name}]\nkind = "postgres"\ndsn = "{server.dsn}"\ntables = ["public.{name}"]\n'
        f'[sink.copy-{name}]\nkind = "postgres"\ndsn = "{server.dsn}"\ntable = "copy_{name}"\n'
        'key = ["id", "doc", "Größe (m)"]\n'
        f'topics = ["{name}.public.{name}"]\nformat = "avro"\nkey_format = "avro"\n'
    )
    try:
        with psycopg.connect(server.dsn, autocommit=True) as database:
            database.execute(types)
            database.execute(f"CREATE TABLE {name} ({columns})")
            database.execute(f"CREATE TABLE copy_{name} ({columns})")
            database.execute(
                f"INSERT INTO {name} SELECT n, 'n' || n, n / 8.0, now(), current_date, '\\x0102', n % 2 = 0, "
                "CASE WHEN n % 2 = 0 THEN 'NaN' ELSE n::float8 END, jsonb_build_object('n', n), "
                '\'{"b":  1, "a": "\\\\"}\', '
                "CASE WHEN n % 3 = 0 THEN NULL ELSE array['\"\\\\\"'::jsonb, NULL, '[1]'] END, "
                "CASE n % 3 WHEN 0 THEN 'null' WHEN 1 THEN '{\"n\": 1.10}'::jsonb END, '{\"[1]\",NULL,\"null\"}', "
                "row('\"s\"', '[1.10]', '{\"a\": 1}', '0')::offer, "
                "array[row('[]', '{}', NULL, '[2.0]')::offer, NULL], n "
                "FROM generate_series(1, 50) n"
            )
            ends = (("infinity", "-infinity"), ("9999-12-31 23:59:59.999999 UTC", "0001-01-01"))
            for number, (at, day) in enumerate(ends):
                database.execute(f"UPDATE {name} SET at = %s, day = %s WHERE id = %s", (at, day, 30 + number))

            def same() -> bool:
                there, here = (database.execute(f"SELECT t::text FROM {of}{name} t").fetchall() for of in ("", "copy_"))
                return sorted(there) == sorted(here)

            with running(tmp_path, bootstrap, text) as runtime:
                wait_until(same, 60, what="the copy of the snapshot")
                database.execute(f"UPDATE {name} SET name = NULL, price = -price WHERE id < 20")
                database.execute(f"DELETE FROM {name} WHERE id > 40")
                wait_until(same, 30, what="the copy of the changes")
                told = reaches(runtime, name, lambda at: at["records"] >= 79, "the capture's numbers")
                assert told["state"] == "RUNNING"
    finally:
        server.stop()


def test_settings_of_a_capture_are_checked_with_the_file(tmp_path: Path, bootstrap: str) -> None:
    from suiro.connect import read_configuration
    from suiro.errors import ConfigError

    path = write(tmp_path, bootstrap, '[source.shop]\nkind = "postgres"\ndsn = "x"\nslot = "NO"\n')
    with pytest.raises(ConfigError, match=r"\[source.shop\] slot 'NO'"):
        read_configuration(path)
