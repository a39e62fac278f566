"""The cluster of `fake_console`: topics, records, groups and the rest, as the console's API tells of them.

It is as bad as it may get: 10,000 topics, names and values that try to be markup, numbers beyond 2^53.
"""

from __future__ import annotations

import json
import math
import time
from dataclasses import dataclass, field
from typing import Any

HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"
HOSTILE_NAME = "<img src=x onerror=document.title='owned'>"
"""Without the slash that would part a path."""
BEYOND = 9007199254740993
"""2^53 + 1: what a double cannot hold."""
RECORDS = 5_000

CARRIERS = ("UA", "B6", "AA", "DL", "MQ", "EV", "WN", "US")
AIRPORTS = ("JFK", "LGA", "EWR", "ATL", "ORD", "LAX", "SFO", "MIA")


def now_ms() -> int:
    return int(time.time() * 1000)


_PROBLEMS = [
    {
        "severity": "warning",
        "text": "1 of 3 partitions of payments have replicas that are not in sync",
        "link": "#/topics/payments",
    },
    {
        "severity": "warning",
        "text": "New dead letters in flights.dead-letters within the last minutes",
        "link": "#/dead-letters/flights.dead-letters",
    },
    {
        "severity": "warning",
        "text": "Nobody reads for group fraud, and its lag grows: 81,220 records",
        "link": "#/groups/fraud",
    },
]


@dataclass
class FakeCluster:
    """`role` is what `/me` says; `topics` how many there are besides the named ones."""

    role: str = "admin"
    topics: int = 10_000
    groups: int = 300
    asked: list[tuple[str, Any]] = field(default_factory=list)
    """(path, body) of each POST."""
    started: int = field(default_factory=now_ms)
    overview_error: str | None = None
    _rows: list[dict[str, Any]] = field(default_factory=list, repr=False)

    # -- the cluster ---------------------------------------------------------------------------------------------

    def named_topics(self) -> list[dict[str, Any]]:
        rows = [
            _topic("flights", partitions=12, records=336_776, size=48_316_411, rate=1840.2),
            _topic("weather", partitions=6, records=26_130, size=3_904_117, rate=92.7),
            _topic("orders", partitions=3, records=1_000_000, size=219_430_912, rate=412.0),
            _topic("payments", partitions=3, records=812_004, size=91_240_000, rate=260.4),
            _topic("flights.dead-letters", partitions=1, records=214, size=91_000, rate=0.1),
            _topic("hostile", partitions=1, records=12, size=4_096, rate=0.0),
            _topic(f"bad.{HOSTILE_NAME}", partitions=1, records=1, size=80, rate=0.0),
            _topic("empty", partitions=1, records=0, size=0, rate=0.0),
            _topic("__consumer_offsets", partitions=50, records=90_112, size=8_204_000, rate=55.1, internal=True),
        ]
        rows[3]["under_replicated"] = 1
        return rows

    def topic_rows(self) -> list[dict[str, Any]]:
        if self._rows:
            return self._rows
        more = [
            _topic(
                f"tenant-{i // 100:03}.events-{i:05}",
                partitions=1 + i % 6,
                records=i * 977,
                size=i * 70_003,
                rate=(i * 37 % 901) / 10,
            )
            for i in range(self.topics)
        ]
        self._rows = self.named_topics() + more
        return self._rows

    def group_rows(self) -> list[dict[str, Any]]:
        rows = [
            _group("carrier-delays", members=4, topics=["flights", "weather"], lag=1_204, lag_ms=640),
            _group("billing", members=2, topics=["orders"], lag=0, lag_ms=0),
            _group("fraud", members=0, topics=["payments", "orders"], lag=81_220, lag_ms=1_843_000, state="Empty"),
            _group("search-index", members=3, topics=["orders"], lag=9_310, lag_ms=22_500, kind="consumer"),
            _group(HOSTILE_NAME, members=1, topics=["hostile"], lag=1, lag_ms=5),
        ]
        rows += [
            _group(
                f"tenant-{i:03}-reader",
                members=1 + i % 3,
                topics=[f"tenant-{i // 100:03}.events-{i:05}"],
                lag=(i * 13) % 40,
                lag_ms=(i * 13) % 40 * 9,
            )
            for i in range(self.groups)
        ]
        return rows

    def overview(self) -> dict[str, Any]:
        topics, groups = self.topic_rows(), self.group_rows()
        return {
            "at": now_ms(),
            "cluster_id": "5L6g3nShT-eMCtK--X86sw",
            "controller": 1,
            "brokers": [
                {"id": n, "host": f"broker-{n}.internal", "port": 9092, "rack": f"zone-{n}"} for n in (1, 2, 3)
            ],
            "topics": len(topics),
            "partitions": sum(row["partitions"] for row in topics),
            "groups": len(groups),
            "under_replicated": 1,
            "without_leader": 0,
            "in_per_s": 2605.4,
            "size_bytes": sum(row["size_bytes"] for row in topics[:9]),
            "busiest": sorted(topics[:9], key=lambda row: -row["in_per_s"])[:6],
            "lagging": sorted(groups, key=lambda row: -row["lag"])[:5],
            "problems": _PROBLEMS,
            "history": _history(self.started, 2600, 420),
            "error": self.overview_error,
        }

    def problems(self) -> dict[str, Any]:
        application = {
            "severity": "error",
            "text": f"Connector orders-to-postgres: connection to server at 10.0.0.7 refused {HOSTILE}",
            "link": "#/connectors",
        }
        return {"problems": [application, *_PROBLEMS], "left_out": 3}

    def topic(self, name: str) -> dict[str, Any] | None:
        row = next((row for row in self.topic_rows() if row["name"] == name), None)
        if row is None:
            return None
        each = (row["records"] or 0) // row["partitions"]
        return {
            "name": name,
            "topic_id": "pCTKXZsMRuKqbXSgRbNCHQ",
            "internal": row["internal"],
            "partitions": [
                {
                    "partition": n,
                    "leader": 1 + n % 3,
                    "replicas": [1 + (n + k) % 3 for k in range(3)],
                    "in_sync": [1 + (n + k) % 3 for k in range(2 if row["under_replicated"] and n == 0 else 3)],
                    "first_offset": 0,
                    "end_offset": each,
                    "size_bytes": (row["size_bytes"] or 0) // row["partitions"],
                }
                for n in range(row["partitions"])
            ],
            "configs": [
                _config("cleanup.policy", "delete"),
                _config("retention.ms", "604800000", source="topic"),
                _config("segment.bytes", "1073741824"),
                _config("max.message.bytes", "1048588", source="broker"),
                _config("compression.type", "producer"),
                _config("min.insync.replicas", "2", source="topic"),
                _config("message.timestamp.type", "CreateTime"),
            ],
            "groups": [group for group in self.group_rows() if name in group["topics"]],
            "related": [
                {
                    "kind": "application",
                    "name": "carrier-delays",
                    "direction": "reads",
                    "link": "#/applications/0",
                },
                {
                    "kind": "application",
                    "name": HOSTILE,
                    "direction": "writes",
                    "link": "javascript:alert(1)",
                },
            ],
            "history": _history(self.started, row["in_per_s"] or 1, (row["in_per_s"] or 1) / 5),
        }

    def group(self, name: str) -> dict[str, Any] | None:
        row = next((row for row in self.group_rows() if row["group"] == name), None)
        if row is None:
            return None
        members = [
            {
                "member_id": f"{name[:20]}-{n}-6f1c2a",
                "instance_id": None,
                "client_id": f"{name[:20]}-{n}",
                "host": f"/10.0.0.{10 + n}",
                "assignment": [[topic, p] for topic in row["topics"] for p in range(3) if p % row["members"] == n],
            }
            for n in range(row["members"])
        ]
        return {
            "group": name,
            "state": row["state"],
            "type": row["type"],
            "assignor": "range" if members else "",
            "coordinator": "broker-2.internal:9092",
            "members": members,
            "partitions": [
                {
                    "topic": topic,
                    "partition": p,
                    "committed": 330_000 - row["lag"] // 3,
                    "end_offset": 330_000,
                    "lag": row["lag"] // 3,
                    "lag_ms": row["lag_ms"],
                    "member_id": members[p % len(members)]["member_id"] if members else None,
                    "client_id": members[p % len(members)]["client_id"] if members else None,
                    "host": members[p % len(members)]["host"] if members else None,
                }
                for topic in row["topics"]
                for p in range(3)
            ],
            "lag": row["lag"],
            "lag_ms": row["lag_ms"],
            "history": [
                [at, int(value), int(value / 2)] for at, value in _history(self.started, row["lag"], row["lag"] / 4)
            ],
        }

    def end_of(self, topic: str) -> int:
        return {"hostile": 12, "empty": 0}.get(topic, RECORDS)

    def record(self, topic: str, offset: int) -> dict[str, Any]:
        if topic == "hostile":
            return _record(
                topic,
                0,
                offset,
                self.started,
                f"key {HOSTILE}",
                json.dumps({"n": BEYOND, "note": HOSTILE, HOSTILE: [1, None, True]}),
                headers=[{"name": f"h {HOSTILE}", "text": HOSTILE}],
            )
        carrier = CARRIERS[offset * 7 % len(CARRIERS)]
        value = {
            "flight": 1_000 + offset,
            "carrier": carrier,
            "origin": AIRPORTS[offset % 3],
            "dest": AIRPORTS[3 + offset * 5 % 5],
            "dep_delay": (offset * 31 % 90) - 12,
            "distance": 200 + offset * 17 % 2400,
            "tail": None if offset % 11 == 0 else f"N{10_000 + offset}",
            "id": BEYOND,
        }
        return _record(topic, 0, offset, self.started, carrier, json.dumps(value, separators=(",", ":")))


def _topic(
    name: str, *, partitions: int, records: int, size: int, rate: float, internal: bool = False
) -> dict[str, Any]:
    return {
        "name": name,
        "partitions": partitions,
        "replication_factor": 3,
        "internal": internal,
        "under_replicated": 0,
        "without_leader": 0,
        "records": records,
        "size_bytes": size,
        "in_per_s": rate,
    }


def _group(
    name: str,
    *,
    members: int,
    topics: list[str],
    lag: int,
    lag_ms: int,
    state: str = "Stable",
    kind: str = "classic",
) -> dict[str, Any]:
    trend = [max(0, round(lag * (0.7 + 0.3 * math.sin(i / 3 + len(name))))) for i in range(30)]
    return {
        "group": name,
        "state": state,
        "type": kind,
        "members": members,
        "topics": topics,
        "lag": lag,
        "lag_ms": lag_ms,
        "trend": trend,
    }


def _config(name: str, value: str, source: str = "default") -> dict[str, Any]:
    return {
        "name": name,
        "value": value,
        "source": source,
        "is_sensitive": False,
        "is_read_only": False,
    }


def _history(until: int, middle: float, swing: float) -> list[list[Any]]:
    return [
        [
            until - (120 - i) * 5_000,
            round(max(0, middle + swing * math.sin(i / 9) + swing / 4 * math.sin(i * 1.7)), 1),
        ]
        for i in range(120)
    ]


def _field(text: str, kind: str) -> dict[str, Any]:
    return {"format": kind, "text": text, "error": None, "bytes": len(text), "schema_id": None, "cut": False}


def _record(
    topic: str,
    partition: int,
    offset: int,
    base: int,
    key: str,
    value: str,
    headers: list[dict[str, str]] | None = None,
) -> dict[str, Any]:
    return {
        "topic": topic,
        "partition": partition,
        "offset": offset,
        "timestamp": base - (RECORDS - offset) * 731,
        "key": _field(key, "string"),
        "value": _field(value, "json"),
        "headers": [{"name": "trace-id", "text": f"{offset:032x}"}] if headers is None else headers,
        "bytes": len(key) + len(value) + 24,
        "batch": {"codec": "zstd", "bytes": 9_210, "records": 120},
        "transaction": ("aborted" if offset % 40 == 7 else "committed") if topic == "orders" else None,
    }
