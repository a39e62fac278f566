"""Masked fields in the keys of records, on a node: no format, filter or file shows them."""

from __future__ import annotations

import json
import struct
from pathlib import Path
from typing import Any
from uuid import uuid4

import httpx
import pytest
from support.console_api import console_api

from suiro.client import Client, NewTopic
from suiro.console.web import Masks
from suiro.protocol.records import Record, encode_batch

SECRET = b"ada@example.com"
KEYS = {
    "json": b'{"id": 7, "email": "ada@example.com"}',
    "json behind a space": b' {"id": 7, "email": "ada@example.com"}',
    "json within json": b'"{\\"id\\": 7, \\"email\\": \\"ada@example.com\\"}"',
    "json behind a line end within json": b'"\\n{\\"id\\": 7, \\"email\\": \\"ada@example.com\\"}"',
    "json behind an escaped bracket": b'"\\u007B\\"id\\": 7, \\"email\\": \\"ada@example.com\\"}"',
    "json within json within json": b'"\\"\\\\u0020\\u005cu007b\\\\\\"email\\\\\\": \\\\\\"ada@example.com\\\\\\"}\\""',
    "of a schema": struct.pack(">bI", 0, 7) + bytes([2 * len(SECRET)]) + SECRET,
}


@pytest.mark.parametrize("key", KEYS.values(), ids=KEYS)
def test_a_field_is_hidden_in_the_key_too(suiro_node: Any, tmp_path: Path, key: bytes) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1)])
        values = (b'{"email": "ada@example.com"}', KEYS["json within json"], b'["ada@example.com"]')
        records = [Record(offset=at, timestamp=5, key=key, value=value) for at, value in enumerate(values)]
        client.produce({(topic, 0): encode_batch(records)})
    masks = Masks.parse([f"{topic}=email"])
    with console_api(tmp_path, suiro_node.bootstrap_servers, masks=masks) as api:
        for kind in ("auto", "string", "json", "long", "hex"):
            formats = {"key": kind, "value": kind}
            shown = json.dumps(api.get(f"/topics/{topic}/records", **formats, **{"from": "earliest"}))
            whole = [
                json.dumps(api.get(f"/topics/{topic}/record", **formats, partition=0, offset=at))
                for at in range(len(values))
            ]
            for said in (shown, *whole):
                assert SECRET.decode() not in said, kind
                assert SECRET.hex() not in said, kind
        with httpx.Client(base_url=api.url, auth=("viewer", "secret")) as http:
            assert SECRET.decode() not in http.get(f"/topics/{topic}/export").text
            asked = {"filter": "'ada' in str(record_key())", "key": "string"}
            assert '"matched":1' not in http.get(f"/topics/{topic}/scan", params=asked).text
        admin = json.dumps(api.get(f"/topics/{topic}/record", role="admin", partition=0, offset=0))
        assert key.hex() in admin


@pytest.mark.parametrize("key", [b"ada", b'"ada"', struct.pack(">q", 7)])
def test_a_key_without_fields_is_shown(suiro_node: Any, tmp_path: Path, key: bytes) -> None:
    topic = f"t-{uuid4().hex[:12]}"
    with Client(suiro_node.bootstrap_servers) as client:
        client.create_topics([NewTopic(topic, 1)])
        client.produce({(topic, 0): encode_batch([Record(offset=0, timestamp=5, key=key, value=b"{}")])})
    with console_api(tmp_path, suiro_node.bootstrap_servers, masks=Masks.parse([f"{topic}=email"])) as api:
        (one,) = api.get(f"/topics/{topic}/records", **{"from": "earliest"})["records"]
        assert one["key"]["text"] == ("7" if len(key) == 8 else key.decode())
