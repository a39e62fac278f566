"""The fold test of snapshots beside the stream: drawn changes and kills while ranges are read, aimed by how far it is.

The table is plain or has partitions, the source is a primary or a standby, and columns are renamed, swap their names,
are dropped and added again, and rewritten in the middle. Triggers note every state that a row ever had, so the topics
can be held to three things: folded they are the table; no record has a state that no row had; and no record of a key is
older than one before it.
"""

from __future__ import annotations

import os
import random
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from support.capturing import Capture, CaptureScene, Connection, dsn_at
from support.postgres import VERSION, Postgres, Standby, bring_standby_back, commits_that_wait, standby_away
from support.waiting import wait_until

ROWS = 240
CHUNKS = (7, 23, 60)
SEEDS = int(os.environ.get("SUIRO_SEEDS", "40"))
FIRST_SEED = int(os.environ.get("SUIRO_SEED", "1"))
PATIENCE_S = 300.0  # of one wait; hundreds of seeds may run beside whatever else a machine does

# `v` rises with every change of anything, so of two records of a key the higher one is the newer one.
TABLE = f"""
create sequence changes;
create table t (k int primary key, v bigint, doc text, note text, extra int){{}};
alter table t alter doc set storage external, alter note set storage external;
create table states (k int, v bigint, doc text, note text, extra int);
create function note() returns trigger language plpgsql as $$ begin
    insert into states values (new.k, new.v, new.doc, coalesce(to_jsonb(new) ->> 'note', to_jsonb(new) ->> 'remark'),
        (to_jsonb(new) ->> 'extra')::int);
    return null; end $$;
create trigger noted after insert or update on t for each row execute function note();
insert into t select g * 10, nextval('changes'), repeat(md5(g::text), 80), repeat(md5((-g)::text), 80), g
    from generate_series(1, {ROWS}) g
"""
PARTITIONS = """ partition by range (k);
create table t_low partition of t for values from (minvalue) to (500);
create table t_high partition of t for values from (500) to (maxvalue) partition by range (k);
create table t_mid partition of t_high for values from (500) to (1500);
create table t_top partition of t_high for values from (1500) to (maxvalue)"""
LARGE = "repeat(md5(random()::text), 80)"
TRUNCATE = "truncate t"
BUMP = "v = nextval('changes')"


class Drawn:
    """Changes of the table, by a seed."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self._note = "note"

    def of_rows(self) -> str:
        while (drawn := self.statement()) == TRUNCATE:
            pass
        return drawn

    def statement(self) -> str:
        draw = self.random
        first = draw.randrange(0, 10 * ROWS)
        some = f"k between {first} and {first + draw.choice((10, 100, 1_000))} and k % {draw.choice((1, 3, 20))} = 0"
        free = "not exists (select from t other where other.k = {0})"
        kind = draw.random()
        if kind < 0.35:
            return f"update t set {BUMP} where {some}"
        if kind < 0.45:
            return f"update t set {BUMP}, doc = {LARGE} where {some}"
        if kind < 0.5:
            return f"update t set {BUMP}, {self._note} = {LARGE} where {some}"
        if kind < 0.65:  # mostly into ranges that were read, some back out of them
            return f"update t set {BUMP}, k = -t.k where {some} and {free.format('-t.k')}"
        if kind < 0.75:
            return f"update t set {BUMP}, k = -t.k where k < {-first} and {free.format('-t.k')}"
        if kind < 0.85:
            move = draw.choice((3, -3, 5_003, -5_003))
            return f"update t set {BUMP}, k = t.k + {move} where {some} and {free.format(f't.k + {move}')}"
        if kind < 0.92:
            return f"delete from t where {some} and k % 7 = {draw.randrange(7)}"
        if kind < 0.99:
            return (
                f"insert into t (k, v, doc) select g * 10 + 1, nextval('changes'), {LARGE} from"
                f" generate_series({first // 10}, {first // 10 + 5}) g on conflict (k) do update set {BUMP}"
            )
        return TRUNCATE

    def alteration(self) -> str:
        """No trigger sees what it does to the rows."""
        kind = self.random.choice(("rename", "rename", "swap", "add again", "rewrite"))
        before = self._note
        if kind == "rename":
            self._note = "remark" if before == "note" else "note"
            done = f"alter table t rename {before} to {self._note}"
        elif kind == "swap":
            done = (
                f"alter table t rename doc to between; alter table t rename {before} to doc;"
                f" alter table t rename between to {before}"
            )
        elif kind == "add again":
            default = self.random.choice(("", "default 7", "default random() * 1000"))
            done = f"alter table t drop extra; alter table t add extra int {default}"
        else:
            done = f"alter table t alter {before} type text using {before} || '.', alter extra type int using extra + 1"
        return f"{done}; insert into states select k, v, doc, {self._note}, extra from t"


class Run:
    """One seed: a capture that is killed on its way to ready, and the changes beside it."""

    def __init__(
        self,
        scene: CaptureScene,
        connection: Connection,
        postgres: Postgres,
        seed: int,
        standby: Standby | None = None,
    ) -> None:
        self.scene, self.connection, self.postgres, self.standby = scene, connection, postgres, standby
        self.drawn = Drawn(seed)
        self.random = self.drawn.random
        self.options = {
            "tables": "t",
            "chunk_rows": self.random.choice(CHUNKS),
            "partitions": self.random.choice((1, 3)),
            "owed_keys_max": self.random.choice((5, 50_000, 50_000)),
            "catch_up_mb": self.random.choice((1, 16)),
        }
        self.capture: Capture | None = None
        self.kills = 0

    def start(self) -> Capture:
        self.capture = self.scene.start(**self.options)
        return self.capture

    def kill(self) -> None:
        assert self.capture is not None
        self.capture.kill()
        self.kills += 1

    def count(self) -> int:
        return len(self.scene.topics.records(f"{self.scene.prefix}.public.t"))

    def further(self, records: int) -> None:
        """Until the topic has so many records more, or the capture is ready."""
        assert self.capture is not None
        capture, before = self.capture, self.count()

        def came() -> bool:
            assert capture.process.poll() is None, capture.said()[-3000:]
            return self.count() >= before + records or self.is_ready()

        wait_until(came, PATIENCE_S, "more records")

    def change(self, connection: Connection) -> None:
        with connection.transaction(force_rollback=self.random.random() < 0.1):
            for _ in range(self.random.choice((1, 2, 4))):
                connection.execute(self.drawn.statement().encode())

    def change_if_free(self) -> None:
        """Not if it would wait for rows of a transaction that waits itself."""
        self.connection.execute("set lock_timeout = '500ms'")
        try:
            self.change(self.connection)
        except psycopg.errors.LockNotAvailable:
            pass
        self.connection.execute("reset lock_timeout")

    def change_while_locked(self) -> None:
        """No range is read while this transaction goes on, so its changes meet a snapshot at a known place."""
        with psycopg.connect(self.postgres.dsn, dbname=self.scene.prefix) as other:
            other.execute("lock table t in access exclusive mode")
            if self.random.random() < 0.25:
                other.execute(self.drawn.alteration().encode())
            for _ in range(self.random.choice((1, 2, 4))):
                other.execute(self.drawn.statement().encode())

    def kill_while_a_standby_is_away(self) -> None:
        """The stream gives a commit that no snapshot sees."""
        statements = f"begin; {self.drawn.statement()}; {self.drawn.statement()}; commit"
        with (
            ThreadPoolExecutor(1) as beside,
            psycopg.connect(self.postgres.dsn, dbname=self.scene.prefix, autocommit=True) as other,
            standby_away(self.connection),
        ):
            waiting = beside.submit(other.execute, statements.encode())
            wait_until(
                lambda: waiting.done() or commits_that_wait(self.connection),
                PATIENCE_S,
                "a commit that waits",
            )
            for _ in range(self.random.choice((1, 1, 2))):
                self.kill_and_start()
                if self.random.random() < 0.5:
                    self.change_if_free()
            bring_standby_back(self.connection)
            waiting.result(PATIENCE_S)

    def commit_what_a_standby_has_not_replayed(self, standby: Standby) -> None:
        """Its snapshots see a later one, and not this one, which comes while rows that were read without it wait."""
        with psycopg.connect(self.postgres.dsn, dbname=self.scene.prefix) as other:
            other.execute(self.drawn.of_rows().encode())
            self.connection.execute("create table if not exists unrelated (k int)")
            self.connection.execute("insert into unrelated values (1)")
            standby.wait_replayed()
            with standby.paused():
                other.execute(self.drawn.of_rows().encode())
                other.commit()
                standby.wait_received()
                before = standby.said().count("COPY (SELECT")
                self.kill_and_start()
                wait_until(
                    lambda: standby.said().count("COPY (SELECT") > before or self.is_ready(),
                    PATIENCE_S,
                    "a range",
                )

    def is_ready(self) -> bool:
        assert self.capture is not None
        return any(one["event"] == "ready" for one in self.capture.events)

    def kill_and_start(self) -> None:
        self.kill()
        self.start()

    def go(self) -> None:
        draw = self.random
        self.connection.execute(TABLE.format(PARTITIONS if draw.random() < 0.3 else "").encode())
        slot = f"suiro_{self.scene.prefix}"
        if self.standby is not None:
            publication = f"create publication {slot} for table t with (publish_via_partition_root)"
            self.connection.execute(publication.encode())
            self.standby.make_slot(slot, self.scene.prefix)
        elif draw.random() < 0.7:
            self.connection.execute("select pg_create_logical_replication_slot(%s, 'pgoutput')", (slot,))
        self.start()
        for _ in range(draw.randrange(3, 7)):
            self.further(draw.choice((1, 20, 80, 200)))
            kind = draw.random()
            if kind < 0.6:
                self.change_while_locked()
            elif kind < 0.8:
                self.change(self.connection)
            elif self.standby is not None:
                self.commit_what_a_standby_has_not_replayed(self.standby)
            else:
                self.kill_while_a_standby_is_away()
            if draw.random() < 0.4:
                self.further(draw.choice((1, 20, 80)))
                self.kill_and_start()
        assert self.capture is not None
        self.capture.ready(PATIENCE_S)
        self.change(self.connection)
        key = ["k"]
        self.scene.wait_same(self.connection, "t", "t", key)
        self.check_records()
        assert self.capture.stop() == 0

    def check_records(self) -> None:
        states: set[Any] = set(self.connection.execute("select k, v, doc, note, extra from states").fetchall())
        newest: dict[bytes, int] = {}
        for record in self.scene.topics.records(f"{self.scene.prefix}.public.t", headers=True):
            if record["value"] is None:
                continue
            row = self.scene.topics.decoded(record["value"])
            said = (record["offset"], [one["value"] for one in record["headers"]], str(row)[:120])
            state = (row["k"], row["v"], row["doc"], row.get("note", row.get("remark")), row["extra"])
            assert state in states, said
            assert row["v"] >= newest.get(record["key"], 0), ("older than one before", said)
            newest[record["key"]] = row["v"]


def go(request: pytest.FixtureRequest, seed: int) -> None:
    """One in four reads a standby."""
    scene: CaptureScene = request.getfixturevalue("scene")
    standby: Standby | None = None
    if seed % 4 == 0 and VERSION >= 16:
        standby = request.getfixturevalue("standby")
        scene.options["dsn"] = dsn_at(standby.dsn, scene.prefix)
    connection, postgres = (request.getfixturevalue(name) for name in ("connection", "postgres"))
    Run(scene, connection, postgres, seed, standby).go()


@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", [4])
def test_a_snapshot_beside_changes_and_kills(request: pytest.FixtureRequest, seed: int) -> None:
    go(request, seed)


@pytest.mark.soak
@pytest.mark.timeout(1_800)
@pytest.mark.parametrize("seed", range(FIRST_SEED, FIRST_SEED + SEEDS))
def test_a_snapshot_beside_changes_and_kills_for_long(request: pytest.FixtureRequest, seed: int) -> None:
    go(request, seed)
