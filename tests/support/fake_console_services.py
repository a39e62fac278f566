"""What runs beside the cluster of `fake_console`: schemas, dead letters, views, connectors, applications, rights."""

from __future__ import annotations

import json
from typing import Any

from support.fake_console_cluster import BEYOND, HOSTILE, HOSTILE_NAME, FakeCluster, now_ms

ORDER_1 = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "total", "type": "double"}],
}
ORDER_2 = {
    "type": "record",
    "name": "Order",
    "doc": HOSTILE,
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "total", "type": {"type": "bytes", "logicalType": "decimal", "precision": 18, "scale": 2}},
        {"name": "note", "type": ["null", "string"], "default": None},
    ],
}


def schemas() -> dict[str, Any]:
    names = ["orders-value", "payments-value", "flights-value", "weather-value", f"bad.{HOSTILE_NAME}-value"]
    return {
        "subjects": [
            {
                "subject": name,
                "versions": [1, 2] if name == "orders-value" else [1],
                "latest_id": 10 + n,
                "type": ("AVRO", "JSON", "PROTOBUF", "AVRO", "AVRO")[n],
                "compatibility": "BACKWARD",
            }
            for n, name in enumerate(names)
        ],
        "complete": True,
    }


def schema(subject: str) -> dict[str, Any]:
    texts = [ORDER_1, ORDER_2] if subject == "orders-value" else [ORDER_1]
    return {
        "subject": subject,
        "compatibility": "BACKWARD",
        "versions": [
            {"version": n, "id": 9 + n, "type": "AVRO", "text": json.dumps(text, indent=2), "references": []}
            for n, text in reversed(list(enumerate(texts, start=1)))
        ],
        "earlier": 0,
        "topics": [subject.removesuffix("-value")],
    }


def schema_diff() -> dict[str, Any]:
    return {
        "lines": [
            "--- version 1",
            "+++ version 2",
            '     "name": "Order",',
            f'+    "doc": {json.dumps(HOSTILE)},',
            '     "fields": [',
            '-      {"name": "total", "type": "double"}',
            '+      {"name": "total", "type": {"type": "bytes", "logicalType": "decimal"}},',
            '+      {"name": "note", "type": ["null", "string"], "default": null}',
            "     ]",
        ]
    }


def dead_letters() -> dict[str, Any]:
    return {
        "topics": [
            {"name": "flights.dead-letters", "records": 214},
            {"name": "orders.dlq", "records": 0},
        ]
    }


def dead_letter_groups(cluster: FakeCluster) -> dict[str, Any]:
    return {
        "groups": [
            {
                "origin_topic": "flights",
                "exception": "org.apache.kafka.common.errors.SerializationException",
                "reason": "value is not JSON: expected a value at byte N",
                "records": 180,
                "waiting": 180,
                "first": [0, 0],
                "last_timestamp": cluster.started - 60_000,
            },
            {
                "origin_topic": "flights",
                "exception": "ValueError",
                "reason": f"carrier {HOSTILE} is unknown",
                "records": 34,
                "waiting": 30,
                "first": [0, 12],
                "last_timestamp": cluster.started - 3_600_000,
            },
        ],
        "read": 214,
        "complete": True,
    }


def dead_letter_records(cluster: FakeCluster) -> dict[str, Any]:
    def letter(n: int) -> dict[str, Any]:
        record = cluster.record("flights.dead-letters", n)
        record["value"] = {**record["value"], "format": "string", "text": '{"flight": 17, "carrier": '}
        return {
            "record": record,
            "exception": "SerializationException",
            "reason": "value is not JSON: expected a value at byte 26",
            "origin": {"topic": "flights", "partition": 0, "offset": n * 7},
            "refusal": None if n % 9 else "its headers name no topic and partition that it comes from",
            "done": n % 13 == 5,
        }

    return {"letters": [letter(n) for n in range(60)], "complete": True}


def redrive(body: dict[str, Any]) -> dict[str, Any]:
    chosen = len(body["places"]) if body.get("places") else 180
    return {
        "records": chosen,
        "done_before": 4,
        "targets": [{"topic": "flights", "partition": n, "records": chosen // 3} for n in range(3)],
        "refused": [{"reason": "its headers name no topic and partition that it comes from", "records": 2}],
        "redriven": None if body["dry_run"] else chosen,
        "complete": True,
    }


def view(share: int = 1_000) -> dict[str, Any]:
    def version(number: int, state: str, **more: Any) -> dict[str, Any]:
        return {
            "version": number,
            "state": state,
            "error": None,
            "fingerprint": f"a91f{number}c40be71",
            "entry": "carrier_delays:build",
            "inputs": ["flights", "weather"],
            "output_topic": f"carrier_delays-v{number}",
            "key": ["carrier", "day"],
            **more,
        }

    running = {"pid": 4711, "state": "running", "restarts": 0, "error": None}
    return {
        "view": "carrier_delays",
        "revision": 9,
        "position": "shifting",
        "routing": {
            "serving": 2,
            "candidate": 3,
            "share": share,
            "share_before_rollback": None,
            "guards": {"errors": 0.01, "p99_ms": 50, "difference": 0.2, "lag_ms": 10_000},
            "guide": {"steps": [100, 1_000, 5_000, 10_000], "hold_ms": 600_000, "at": 1, "held_ms": 240_000},
        },
        "versions": [
            version(1, "retired"),
            version(
                2,
                "ready",
                cut=1_204,
                cut_time_ms=now_ms(),
                lag_ms=320,
                input_lag_ms=110,
                paused=False,
                progress=None,
                pipeline=running,
                follower_pid=4712,
                follower_error=None,
            ),
            version(
                3,
                "ready",
                cut=1_203,
                cut_time_ms=now_ms(),
                lag_ms=850,
                input_lag_ms=400,
                paused=False,
                progress={"done": 362_906, "total": 362_906, "rate": 41_200.0, "left_s": 0.0},
                pipeline=running,
                follower_pid=4714,
                follower_error=None,
            ),
        ],
    }


def view_history() -> list[dict[str, Any]]:
    at = now_ms()
    return [
        {
            "time_ms": at - 7_200_000,
            "who": "ada",
            "command": "deploy",
            "before": "alone",
            "after": "building",
            "version": 3,
            "detail": {"fingerprint": "a91f3c40be71"},
        },
        {
            "time_ms": at - 5_400_000,
            "who": "host",
            "command": "caught up",
            "before": "building",
            "after": "ready",
            "version": 3,
            "detail": {},
        },
        {
            "time_ms": at - 600_000,
            "who": "ada",
            "command": "shift",
            "before": "ready",
            "after": "shifting",
            "version": 3,
            "detail": {"from": 0, "to": 100},
        },
        {
            "time_ms": at - 240_000,
            "who": "host",
            "command": "shift",
            "before": "shifting",
            "after": "shifting",
            "version": 3,
            "detail": {"from": 100, "to": 1_000},
        },
    ]


def comparison() -> dict[str, Any]:
    return {
        "id": "1795000900000-5e1f0c2a",
        "view": "carrier_delays",
        "who": "ada",
        "time_ms": now_ms() - 900_000,
        "old": 2,
        "new": 3,
        "tolerances": {},
        "ignored": [],
        "share": 0.0125,
        "result": {
            "key": ["carrier", "day"],
            "old_version": 2,
            "new_version": 3,
            "equal": 5_777,
            "near": 3,
            "differing": 70,
            "only_old": {"rows": 2, "examples": [[["UA", "2013-03-10"], {"flights": 3}]]},
            "only_new": {"rows": 1, "examples": []},
            "columns": [
                {
                    "column": "mean_delay",
                    "rows": 70,
                    "kinds": [
                        {
                            "kind": "differs",
                            "rows": 70,
                            "smallest": 0.1,
                            "largest": 12.5,
                            "total": 300.2,
                            "decades": [[-1, 30], [0, 38], [1, 2]],
                            "largest_at": ["B6", "2013-07-04"],
                        }
                    ],
                }
            ],
            "patterns": [
                {
                    "columns": [["mean_delay", "differs"], ["flights", "differs"]],
                    "rows": 64,
                    "examples": [
                        {
                            "key": ["B6", "2013-07-04"],
                            "columns": {"mean_delay": [14.25, 26.75], "flights": [BEYOND, 412]},
                        }
                    ],
                },
                {
                    "columns": [["mean_delay", "became null"]],
                    "rows": 6,
                    "examples": [{"key": [HOSTILE, "2013-01-01"], "columns": {"mean_delay": [3.5, None]}}],
                },
            ],
            "patterns_left_out": 0,
            "ignored": [],
            "tolerances": {},
        },
    }


def comparisons() -> dict[str, Any]:
    """By id, the newest last."""
    newest = comparison()
    older = newest | {"id": "1795000000000-09ab77d1", "time_ms": newest["time_ms"] - 900_000}
    return {one["id"]: one for one in (older, newest)}


def row_explanation(body: dict[str, Any]) -> dict[str, Any]:
    return {
        "store": "delays",
        "key": body["key"],
        "window": body["window"],
        "found": True,
        "value": '{"flights": 3}',
        "records": [
            {"topic": "flights", "partition": 0, "offset": n, "timestamp": now_ms() - n} for n in (7, 42, BEYOND)
        ],
        "earlier": 0,
        "read": 336_776,
        "stopped": None,
        "proven": True,
        "begin_later": [],
    }


def explanation() -> dict[str, Any]:
    return {
        "view": "carrier_delays",
        "old": 2,
        "new": 3,
        "causes": [
            {
                "text": "dep_delay is null",
                "rows": 64,
                "examples": [[["B6", "2013-07-04"], "flights-4@20871"]],
            }
        ],
        "text": "Record flights-4@20871 parts the rows: version 2 leaves it out at the node `only-flown` "
        "(dep_delay is null), version 3 counts it as 0.\n\n7 records of 412 were treated in this way; of the others, "
        "none has dep_delay null.",
    }


def capture() -> dict[str, Any]:
    def table(name: str, state: str, rows: int, expected: int | None, *, is_resumed: bool = False) -> Any:
        return {
            "table": f"public.{name}",
            "topic": f"shop.public.{name}",
            "state": state,
            "rows": rows,
            "expected": expected,
            "is_resumed": is_resumed,
        }

    return {
        "position": "0/1B7F2A8",
        "lag_bytes": 81_920,
        "retained_bytes": 16_777_216,
        "last_commit_ms": now_ms() - 1_200,
        "tables_in_all": 6,
        "tables_complete": 2,
        "tables": [
            table("order_lines", "reading", 1_204_118, 3_100_000),
            table("events", "reading", 81_000, 2_000_000, is_resumed=True),
            table("prices", "locked", 100, 5_000),
            table("refunds", "waiting", 0, None),
            table("customers", "complete", 81_220, 81_220),
            table("orders", "complete", 336_776, 336_776),
        ],
        "schema_changes": [
            {
                "at_ms": now_ms() - 480_000,
                "table": "public.orders",
                "topic": "shop.public.orders",
                "schema_id": 17,
                "changes": ["column 'note' is new"],
            },
            {
                "at_ms": now_ms() - 7_200_000,
                "table": "public.customers",
                "topic": "shop.public.customers",
                "schema_id": 16,
                "changes": [f"column {HOSTILE!r} was dropped", "column 'score' was integer and is bigint"],
            },
        ],
    }


def connectors() -> dict[str, Any]:
    def status(name: str, side: str, kind: str, state: str, **more: Any) -> dict[str, Any]:
        return {
            "name": name,
            "type": side,
            "kind": kind,
            "state": state,
            "records": 1_204_118,
            "rejected": 0,
            "commits": 8_120,
            "lag": 0,
            "offsets": {"lsn": "0/1B7F2A8", "snapshot": "done"},
            "restarts": 0,
            "error": None,
            "retry_at_ms": None,
            "capture": None,
            **more,
        }

    found = [
        status("postgres-orders", "source", "postgres", "RUNNING", lag=81_920, offsets={}, capture=capture()),
        status(
            "orders-to-postgres",
            "sink",
            "postgres",
            "FAILED",
            error=f"connection to server at 10.0.0.7 refused {HOSTILE}",
            restarts=4,
            retry_at_ms=now_ms() + 30_000,
            lag=9_310,
            offsets={"orders-0": 331_002, "orders-1": 330_411},
        ),
        status("search-index", "sink", "http", "PAUSED", rejected=3, offsets={"orders-0": BEYOND}),
    ]
    return {
        "hosts": [
            {"host": 0, "url": "http://127.0.0.1:8084", "error": None, "connectors": found},
            {"host": 1, "url": "http://127.0.0.1:8094", "error": "no answer within 2 s", "connectors": []},
        ]
    }


def application(rate: float = 1840.2) -> dict[str, Any]:
    def node(name: str, kind: str, per_s: float, topic: str | None = None, **more: Any) -> dict[str, Any]:
        made = {
            "id": name,
            "name": name,
            "kind": kind,
            "operator": kind.title(),
            "sub_topology": 0,
            "topics": [] if topic is None else [topic],
            "topic": topic,
            "store": None,
            "engine": "block",
            "why": "",
            "records": int(per_s * 3_600),
            "records_per_s": per_s,
        }
        return made | more

    return {
        "app": 0,
        "url": "http://127.0.0.1:8086",
        "error": None,
        "application_id": "carrier-delays",
        "state": "RUNNING",
        "since": now_ms() - 3_600_000,
        "lag": 1_204,
        "processed_per_s": rate,
        "graph": {
            "nodes": [
                node("flights", "source", rate, topic="flights"),
                node("weather", "source", 92.7, topic="weather"),
                node("only-flown", "processor", rate * 0.97),
                node("by-origin-hour", "repartition", rate * 0.97),
                node("weather-table", "processor", 92.7, store="weather-store", sub_topology=1),
                node(
                    "with-weather",
                    "processor",
                    rate * 0.97,
                    sub_topology=1,
                    engine="record",
                    why="it has no block form yet",
                ),
                node("delay-per-carrier", "processor", rate * 0.9, store="delays", sub_topology=1),
                node("carrier_delays", "sink", 211.0, topic="carrier_delays", sub_topology=1),
            ],
            "edges": [
                {"from": "flights", "to": "only-flown"},
                {"from": "only-flown", "to": "by-origin-hour"},
                {"from": "by-origin-hour", "to": "with-weather"},
                {"from": "weather", "to": "weather-table"},
                {"from": "weather-table", "to": "with-weather"},
                {"from": "with-weather", "to": "delay-per-carrier"},
                {"from": "delay-per-carrier", "to": "carrier_delays"},
            ],
        },
        "stores": [
            {
                "name": "delays",
                "kind": "key-value",
                "topic": "carrier-delays-delays-changelog",
                "rows": 5_850,
                "bytes": 1_204_000,
                "tasks": 4,
            },
            {
                "name": "weather-store",
                "kind": "stream-join",
                "topic": None,
                "rows": None,
                "bytes": None,
                "tasks": 0,
            },
        ],
        "held": [
            {
                "sub_topology": 1,
                "partition": n,
                "node": "weather",
                "records": 412 + n,
                "condition": "idling",
                "why": "An input has more records in the log than the micro-batch read, and they may be earlier than "
                "those of other inputs, which are buffered (Kafka Streams waits for `max.task.idle.ms`).",
            }
            for n in range(2)
        ],
        "dropped": {"late": 128},
        "batches": [
            {
                "batch": 400 + n,
                "at": now_ms() - (60 - n) * 2_000,
                "duration_ms": 320 + (n * 53) % 240 + (1_400 if n == 41 else 0),
                "rows": 3_600 + n * 17 % 400,
                "retries": int(n == 41),
                "phases": {"addBatch": 210, "latestOffset": 40, "walCommit": 16, "getBatch": 0},
            }
            for n in range(60)
        ],
        "partitions": [{"topic": "flights", "partition": n, "lag": 100} for n in range(4)],
        "retries": 1,
        "aborts": 0,
        "records_written": 211_000,
        "transactions": 460,
        "waiting_seconds": 0.0,
    }


def store_rows() -> dict[str, Any]:
    return {
        "rows": [
            {
                "key": json.dumps(["UA", f"2013-07-{n:02}"]),
                "value": json.dumps({"flights": 100 + n, "sum": BEYOND, "note": HOSTILE}),
                "window": None,
            }
            for n in range(1, 31)
        ],
        "next": None,
        "offsets": {"0": 30},
    }


def acls() -> dict[str, Any]:
    def rule(
        principal: str, operation: str, name: str, permission: str = "allow", pattern: str = "literal"
    ) -> dict[str, Any]:
        return {
            "resource_type": "topic",
            "resource_name": name,
            "pattern_type": pattern,
            "principal": principal,
            "host": "*",
            "operation": operation,
            "permission": permission,
        }

    return {
        "acls": [
            rule("User:billing", "read", "orders"),
            rule("User:billing", "write", "invoices-", pattern="prefixed"),
            rule("User:*", "describe", "*"),
            rule(f"User:{HOSTILE}", "all", "payments", permission="deny"),
        ],
        "off": None,
    }
