"""What each query of Nexmark must give: SQL over the same events, in batch, by DuckDB."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Iterable
from typing import Any

import duckdb
import pyarrow as pa
from nexmark_events import DAY_MS, TOPICS, Event, side_rows

STREAMS = ("q0", "q1", "q2", "q13", "q14", "q20", "q21", "q22")
"""Their answer is all records; that of the others is the last record of each key, without deleted ones."""

RANK = "CASE WHEN price < 10000 THEN 0 WHEN price < 1000000 THEN 1 ELSE 2 END"
CHANNEL = (
    "CASE lower(channel) WHEN 'apple' THEN '0' WHEN 'google' THEN '1' WHEN 'facebook' THEN '2' WHEN 'baidu' THEN '3' "
    "ELSE nullif(regexp_extract(url, '(&|^)channel_id=([^&]*)', 2), '') END"
)
HOUR = 'cast("dateTime" // 3600000 % 24 AS INT)'
ON_TIME = """
    SELECT bid.*, category, seller FROM bid JOIN auction ON bid.auction = auction.id
    WHERE bid."dateTime" BETWEEN auction."dateTime" AND expires
"""


class Answers:
    """The answers to all queries over these events."""

    def __init__(self, made: list[Event]) -> None:
        self._sql = duckdb.connect()
        for topic in TOPICS:
            rows = [event.value for event in made if event.topic == topic]
            self._sql.register(f"{topic}_rows", pa.Table.from_pylist(rows))
            self._sql.execute(f"CREATE TABLE {topic} AS SELECT * FROM {topic}_rows")
        self._sql.register("side_rows", pa.Table.from_pylist([row for _, row in side_rows()]))
        self._sql.execute("CREATE TABLE side AS SELECT * FROM side_rows")

    def of(self, query: str) -> Counter[str]:
        """Lines of JSON, and how often each comes: of values, or of [key, value]."""
        return Counter(line(row) for row in getattr(self, query)())

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        return self._sql.execute(sql).fetchall()

    def _values(self, sql: str) -> list[dict[str, Any]]:
        found = self._sql.execute(sql)
        names = [column[0] for column in found.description]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]

    def q0(self) -> Iterable[Any]:
        return self._values('SELECT auction, bidder, price, "dateTime", extra FROM bid')

    def q1(self) -> Iterable[Any]:
        return self._values('SELECT auction, bidder, 0.908::DOUBLE * price AS price, "dateTime", extra FROM bid')

    def q2(self) -> Iterable[Any]:
        return self._values("SELECT auction, price FROM bid WHERE auction % 123 = 0")

    def q3(self) -> Iterable[Any]:
        found = self._values("""
            SELECT name, city, state, auction.id FROM auction JOIN person ON seller = person.id
            WHERE category = 10 AND state IN ('OR', 'ID', 'CA')
        """)
        return [[str(row["id"]), row] for row in found]

    def q4(self) -> Iterable[Any]:
        found = self._rows(f"""
            WITH winning AS (SELECT auction, category, max(price) AS price FROM ({ON_TIME}) GROUP BY ALL)
            SELECT category, sum(price)::DOUBLE / count(*) FROM winning GROUP BY category
        """)
        return [[str(category), {"average": average}] for category, average in found]

    def q5(self) -> Iterable[Any]:
        found = self._rows("""
            WITH counts AS (
                SELECT "dateTime" // 2000 * 2000 - step * 2000 AS start, auction, count(*) AS bids
                FROM bid, range(5) AS steps(step) GROUP BY ALL
            ), most AS (SELECT start, max(bids) AS bids FROM counts GROUP BY start)
            SELECT start, bids, list_sort(list(auction)) FROM counts JOIN most USING (start, bids) GROUP BY ALL
        """)
        return [[str(start), {"count": count, "auctions": auctions}] for start, count, auctions in found]

    def q7(self) -> Iterable[Any]:
        found = self._rows("""
            WITH best AS (
                SELECT "dateTime" // 10000 * 10000 AS start, max(price) AS price FROM bid GROUP BY start
            )
            SELECT start, bid.price, auction, bidder, "dateTime" FROM bid JOIN best
            ON bid.price = best.price AND bid."dateTime" // 10000 * 10000 = start ORDER BY auction, bidder, "dateTime"
        """)
        windows: dict[int, dict[str, Any]] = {}
        for start, price, *bid in found:
            windows.setdefault(start, {"price": price, "bids": []})["bids"].append(bid)
        return [[str(start), best] for start, best in windows.items()]

    def q8(self) -> Iterable[Any]:
        found = self._rows("""
            SELECT DISTINCT person.id, name, person."dateTime" // 10000 * 10000 FROM person JOIN auction
            ON person.id = seller AND person."dateTime" // 10000 = auction."dateTime" // 10000
        """)
        return [[f"{id_}@{start}", {"id": id_, "name": name}] for id_, name, start in found]

    def q9(self) -> Iterable[Any]:
        found = self._values(f"""
            SELECT auction, price, bidder, "dateTime", category, seller FROM ({ON_TIME})
            QUALIFY row_number() OVER (PARTITION BY auction ORDER BY price DESC, "dateTime", bidder) = 1
        """)
        return [[str(row.pop("auction")), row] for row in found]

    def q11(self) -> Iterable[Any]:
        found = self._rows("""
            WITH marked AS (
                SELECT bidder, "dateTime" AS moment, coalesce(
                    "dateTime" - lag("dateTime") OVER (PARTITION BY bidder ORDER BY "dateTime") > 10000, true
                ) AS is_first FROM bid
            ), numbered AS (
                SELECT bidder, moment, sum(is_first::INT) OVER (PARTITION BY bidder ORDER BY moment) AS session
                FROM marked
            )
            SELECT bidder, min(moment), max(moment), count(*) FROM numbered GROUP BY bidder, session
        """)
        return [[f"{bidder}@{start}-{end}", {"bids": count}] for bidder, start, end, count in found]

    def q13(self) -> Iterable[Any]:
        return self._values(
            'SELECT auction, bidder, price, "dateTime", value FROM bid JOIN side ON auction % 10000 = key'
        )

    def q14(self) -> Iterable[Any]:
        return self._values(f"""
            SELECT auction, bidder, 0.908::DOUBLE * price AS price, CASE WHEN {HOUR} BETWEEN 8 AND 18 THEN 'dayTime'
                WHEN {HOUR} <= 6 OR {HOUR} >= 20 THEN 'nightTime' ELSE 'otherTime' END AS "bidTimeType",
                "dateTime", extra, length(extra) - length(replace(extra, 'c', '')) AS c_counts
            FROM bid WHERE 0.908::DOUBLE * price > 1000000 AND 0.908::DOUBLE * price < 50000000
        """)

    def _report(self, group: str) -> Iterable[Any]:
        kinds = [f"count(*) FILTER (WHERE {RANK} = {rank})" for rank in range(3)]
        distinct = [
            [f"count(DISTINCT {name})"]
            + [f"count(DISTINCT {name}) FILTER (WHERE {RANK} = {rank})" for rank in range(3)]
            for name in ("bidder", "auction")
        ]
        columns = ", ".join(["count(*)", *kinds, *distinct[0], *distinct[1]])
        found = self._rows(f"SELECT {group} AS name, {columns} FROM bid GROUP BY name")
        return [
            [name, {"bids": row[:4], "bidders": row[4:8], "auctions": row[8:]}]
            for name, *row in ([one[0], *map(int, one[1:])] for one in found)
        ]

    def q15(self) -> Iterable[Any]:
        return self._report(f'cast("dateTime" // {DAY_MS} AS VARCHAR)')

    def q16(self) -> Iterable[Any]:
        return self._report(f"""channel || '|' || "dateTime" // {DAY_MS}""")

    def q17(self) -> Iterable[Any]:
        kinds = ", ".join(f"count(*) FILTER (WHERE {RANK} = {rank})" for rank in range(3))
        found = self._rows(f"""
            SELECT auction || '|' || "dateTime" // {DAY_MS} AS name, count(*), {kinds}, min(price), max(price),
                sum(price)::BIGINT FROM bid GROUP BY name
        """)
        return [[name, {"figures": row, "average": row[6] / row[0]}] for name, *row in found]

    def q18(self) -> Iterable[Any]:
        # Bids of one moment are told apart by their order in the topic, which is that of the table.
        found = self._values("""
            SELECT * FROM bid QUALIFY row_number() OVER (PARTITION BY bidder, auction ORDER BY rowid DESC) = 1
        """)
        return [[f"{row['bidder']}|{row['auction']}", row] for row in found]

    def q19(self) -> Iterable[Any]:
        found = self._rows("""
            SELECT auction, list_reverse_sort(list(price))[:10] FROM bid GROUP BY auction
        """)
        return [[str(auction), prices] for auction, prices in found]

    def q20(self) -> Iterable[Any]:
        return self._values("""
            SELECT bid.*, "itemName", seller, category, expires FROM bid JOIN auction ON bid.auction = auction.id
            WHERE category = 10
        """)

    def q21(self) -> Iterable[Any]:
        return self._values(f"""
            SELECT auction, bidder, price, channel, {CHANNEL} AS channel_id FROM bid WHERE {CHANNEL} IS NOT NULL
        """)

    def q22(self) -> Iterable[Any]:
        parts = ", ".join(f"split_part(url, '/', {number + 3}) AS dir{number}" for number in (1, 2, 3))
        return self._values(f"SELECT auction, bidder, price, channel, {parts} FROM bid")


def line(value: Any) -> str:
    """One way to write it: whole doubles as Java and Python both may have written them."""
    return json.dumps(_plain(value), sort_keys=True)


def _plain(value: Any) -> Any:
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, dict):
        return {name: _plain(one) for name, one in value.items()}
    return [_plain(one) for one in value] if isinstance(value, list | tuple) else value


def final_rows(
    query: str, records: Iterable[tuple[bytes | None, bytes | None]], loads: Callable[[bytes], Any]
) -> Counter[str]:
    """The same of what a query wrote, in the order of each partition."""
    if query in STREAMS:
        return Counter(line(loads(value)) for _, value in records if value is not None)
    last = dict(records)
    return Counter(
        line([key.decode(), loads(value)]) for key, value in last.items() if key is not None and value is not None
    )
