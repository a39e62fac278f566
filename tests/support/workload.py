"""A drawn workload on a Postgres: every way in which rows of a table come, change and go."""

from __future__ import annotations

import random
from typing import Any

import psycopg

# (create, key) of each table. `store external`: large values lie beside the row, as they are.
TABLES: dict[str, tuple[str, list[str]]] = {
    "public.plain": (
        "create table public.plain (id int primary key, n bigint, name text, price numeric(12,3), ok boolean,"
        " at timestamptz, data bytea, tags int[])",
        ["id"],
    ),
    "public.docs": (
        "create table public.docs (k text primary key, v int, doc text, note text);"
        " alter table public.docs alter doc set storage external, alter note set storage external",
        ["k"],
    ),
    "public.pairs": (
        "create table public.pairs (x int, y text, z double precision, primary key (x, y))",
        ["x", "y"],
    ),
    "public.whole": (
        "create table public.whole (a int, b text); alter table public.whole replica identity full",
        ["a", "b"],
    ),
}
KEYS = 60


class Workload:
    """`step` runs one drawn transaction; some are rolled back, some are large, some have two phases, some change
    tables."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self._added = 0
        self._number = 0
        self.keys = {name: key for name, (_, key) in TABLES.items()}

    def create(self, connection: psycopg.Connection[Any]) -> None:
        for statements, _ in TABLES.values():
            connection.execute(statements)

    @property
    def changes(self) -> int:
        """Drawn so far; those of a large transaction count as one."""
        return self._number

    def step(self, connection: psycopg.Connection[Any], *, ddl: bool = True) -> None:
        draw = self._random
        kind = draw.random()
        if ddl and kind < 0.02:
            self._change_a_table(connection)
            return
        if 0.9 < kind < 0.92:
            self._two_phases(connection)
            return
        with connection.transaction(force_rollback=kind > 0.92):
            for _ in range(draw.choice((1, 1, 1, 2, 5))):
                if draw.random() < 0.15:
                    with connection.transaction(force_rollback=draw.random() < 0.5):
                        self._change(connection)
                self._change(connection)
            if kind < 0.05 or kind > 0.99:
                self._large(connection)

    def _two_phases(self, connection: psycopg.Connection[Any]) -> None:
        name = f"{connection.info.dbname}-{self._number}"
        connection.execute("begin")
        self._change(connection)
        connection.execute(f"prepare transaction '{name}'".encode())
        end = self._random.choice(("commit", "commit", "rollback"))
        connection.execute(f"{end} prepared '{name}'".encode())

    def _change(self, connection: psycopg.Connection[Any]) -> None:
        draw = self._random
        self._number += 1
        key, other = draw.randrange(KEYS), draw.randrange(KEYS)
        kind = draw.random()
        table = draw.choice(list(TABLES))
        if kind < 0.01:
            connection.execute(f"truncate {table}")
        elif table == "public.plain":
            self._plain(connection, kind, key, other)
        elif table == "public.docs":
            self._docs(connection, kind, f"k{key}", f"k{other}")
        elif table == "public.pairs":
            self._pairs(connection, kind, key, other)
        else:
            self._whole(connection, kind, key)

    def _plain(self, connection: psycopg.Connection[Any], kind: float, key: int, other: int) -> None:
        if kind < 0.6:
            connection.execute(
                "insert into public.plain (id, n, name, price, ok, at, data, tags) values (%s, %s, %s, %s, %s,"
                " '2024-01-01 00:00Z'::timestamptz + %s * interval '1 s', %s, %s) on conflict (id) do update set"
                " n = excluded.n, name = excluded.name, price = excluded.price",
                (
                    key,
                    self._number * 10_000_000_007,
                    self._random.choice((None, "", "Zoë", f"name {self._number}")),
                    self._number / 8,
                    self._random.choice((None, True, False)),
                    self._number,
                    self._random.randbytes(self._random.randrange(20)),
                    [self._number, None, -1],
                ),
            )
        elif kind < 0.75:
            connection.execute("delete from public.plain where id = %s", (key,))
        elif kind < 0.85:
            connection.execute("delete from public.plain where id = %s", (other,))
            connection.execute("update public.plain set id = %s where id = %s", (other, key))
        else:
            connection.execute("update public.plain set n = n + 1, ok = not ok where id %% 7 = %s", (key % 7,))

    def _docs(self, connection: psycopg.Connection[Any], kind: float, key: str, other: str) -> None:
        large = self._random.randbytes(self._random.choice((10, 3_000, 9_000))).hex()
        if kind < 0.4:
            connection.execute(
                "insert into public.docs (k, v, doc, note) values (%s, %s, %s, %s) on conflict (k) do update set"
                " doc = excluded.doc",
                (key, self._number, large, large[::-1]),
            )
        elif kind < 0.8:
            connection.execute("update public.docs set v = %s where k in (%s, %s)", (self._number, key, other))
        elif kind < 0.9:
            connection.execute("delete from public.docs where k = %s", (other,))
            connection.execute("update public.docs set k = %s where k = %s", (other, key))
        else:
            connection.execute("update public.docs set note = %s where k = %s", (large, key))

    def _pairs(self, connection: psycopg.Connection[Any], kind: float, key: int, other: int) -> None:
        y = "abc"[other % 3]
        if kind < 0.6:
            connection.execute(
                "insert into public.pairs values (%s, %s, %s) on conflict (x, y) do update set z = excluded.z",
                (key, y, self._random.choice((1.5, float("nan"), float("inf"), -0.0, 1e300))),
            )
        elif kind < 0.8:
            connection.execute("delete from public.pairs where x = %s", (key,))
        else:
            connection.execute("delete from public.pairs where x = %s and y = 'd'", (key,))
            connection.execute("update public.pairs set y = 'd', z = 0 where x = %s and y = %s", (key, y))

    def _whole(self, connection: psycopg.Connection[Any], kind: float, key: int) -> None:
        connection.execute("delete from public.whole where a = %s", (key,))
        if kind < 0.7:
            connection.execute(
                "insert into public.whole values (%s, %s)",
                (key, self._random.choice((None, f"b{self._number}"))),
            )

    def _large(self, connection: psycopg.Connection[Any]) -> None:
        """More than Postgres keeps in memory while it decodes: it is streamed, whether it commits or not."""
        first = 1_000 + self._random.randrange(1_000)
        connection.execute(
            "insert into public.plain (id, n, name) select g, %s, repeat('x', 50) from"
            " generate_series(%s::int, %s::int) g"
            " on conflict (id) do update set n = excluded.n",
            (self._number, first, first + 2_000),
        )
        with connection.transaction(force_rollback=True):
            connection.execute("delete from public.plain where id > 1000")
            connection.execute("update public.docs set v = -1")
        with connection.transaction(force_rollback=self._random.random() < 0.5):
            connection.execute("delete from public.plain where id > 1000 and id %% 3 = %s", (self._number % 3,))

    def _change_a_table(self, connection: psycopg.Connection[Any]) -> None:
        self._added += 1
        name = f"extra{self._added}"
        statement = self._random.choice(
            (
                f"alter table public.plain add column {name} int default {self._added}",
                f"alter table public.plain add column {name} text",
                f"alter table public.docs add column {name} text not null default 'x'",
                "alter table public.plain alter name type varchar(200)",
                f"alter table public.pairs add column {name} date default '2024-02-29'",
                "alter table public.pairs drop column if exists extra1",
                "alter table public.plain drop column if exists extra2",
                f"alter table public.whole rename b to {name}; alter table public.whole rename {name} to b",
                f"create table public.{name} (id int primary key, t text); insert into public.{name} values (1, 'one')",
            )
        )
        connection.execute(statement)
        if statement.startswith("create table"):
            self.keys[f"public.{name}"] = ["id"]
