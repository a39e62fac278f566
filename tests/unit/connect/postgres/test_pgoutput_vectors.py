"""Messages that other decoders' tests hold, by both engines."""

from __future__ import annotations

import datetime
import json
from pathlib import Path
from typing import Any

import pytest
from support.postgres_rows import parsed_messages

from suiro.connect.postgres.encoding import engine

VECTORS = json.loads((Path(__file__).parents[3] / "vectors/postgres/pgoutput.json").read_text())["pgoutput_v1"]
EPOCH = datetime.datetime(1970, 1, 1)


def texts(values: Any) -> Any:
    return [value.decode() if isinstance(value, bytes) else value for value in values] if values else None


@pytest.mark.parametrize("compiled", [False, True], ids=["reference", "kernels"])
@pytest.mark.parametrize("vector", VECTORS, ids=[f"{n}-{vector['name']}" for n, vector in enumerate(VECTORS)])
def test_message(vector: dict[str, Any], compiled: bool) -> None:
    with engine.choose(compiled=compiled):
        parsed = parsed_messages([bytes.fromhex(vector["hex"])])
    wanted = dict(vector["decoded"])
    found: dict[str, Any] = {"type": wanted["type"]}
    kind = chr(parsed.kind[0])
    if kind in "BC":
        time = EPOCH + datetime.timedelta(microseconds=int(parsed.time[0]))
        found |= {"commit_time": time.isoformat() + "Z"}
        found["final_lsn" if kind == "B" else "lsn"] = int(parsed.lsn[0])
        found |= {"xid": int(parsed.xid[0])} if kind == "B" else {"flags": 0, "end_lsn": int(parsed.end_lsn[0])}
    elif kind == "R":
        message = parsed.relation_message(0)
        found |= {"id": message.oid, "namespace": message.schema, "name": message.name}
        found["replica_identity"] = message.replica_identity
        found["columns"] = [
            {"flags": int(column.is_key), "name": column.name, "oid": column.type, "typmod": column.typmod}
            for column in message.columns
        ]
    elif kind == "T":
        found |= {"options": wanted["options"], "relations": parsed.truncated(0)}
    elif kind == "Y":  # of a type; the capture asks the catalogue
        found = wanted
    else:
        found["relation"] = int(parsed.relation[0])
        if "new" in wanted:
            found["new"] = texts(parsed.values(0))
        if "old_kind" in wanted:
            old_at = int(parsed.old_at[0])
            found["old_kind"] = None if old_at < 0 else chr(parsed.data[old_at - 1])
            found["old"] = texts(parsed.values(0, old=True))
    assert found == wanted
