"""A table that changes, and a registry that sees it: what is taken, what stops the capture, and the way on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import replace
from typing import Any
from uuid import uuid4

import pytest
from support.postgres import VERSION, Postgres
from support.postgres_rows import Connection

from suiro.clock import SystemClock
from suiro.connect.postgres.options import CaptureOptions
from suiro.connect.postgres.progress import SchemaChange, SchemaChanges
from suiro.connect.postgres.server.database import Database
from suiro.connect.postgres.server.publication import ensure_publication
from suiro.connect.postgres.tables import SchemaRefusedError, Tables
from suiro.registry import InProcessRegistry, RegistryClient, RegistryConfig, Schema


@pytest.fixture(scope="module")
def registry(suiro_node: Any) -> Iterator[RegistryClient]:
    config = RegistryConfig(bootstrap_servers=suiro_node.bootstrap_servers, port=0, topic=f"_schemas-{uuid4().hex[:8]}")
    with InProcessRegistry(config) as started, RegistryClient(started.url) as client:
        yield client


@pytest.fixture
def database(postgres: Postgres) -> Iterator[Database]:
    with Database(postgres.dsn) as opened:
        yield opened


def test_a_change_that_avro_would_get_wrong_stops_the_capture(
    registry: RegistryClient, database: Database, connection: Connection
) -> None:
    options = CaptureOptions(
        dsn="",
        bootstrap_servers="",
        registry="",
        topic_prefix="shop",
        tables=("prices",),
        publication="prices",
    )
    connection.execute("create table prices (id integer primary key, price numeric(10,2), name text)")
    try:
        ensure_publication(database, options, VERSION * 10_000)

        seen: list[SchemaChange] = []
        changes = SchemaChanges(SystemClock(), seen.append)  # those of the process; tables are of a session

        def form() -> Any:
            tables = Tables(database, registry, options, VERSION * 10_000, changes)
            return tables.schema_of(tables.refresh_table("public", "prices"), is_final=True)

        first = form()
        connection.execute("alter table prices add more jsonb")
        added = form()
        assert added.value_schema_id != first.value_schema_id
        assert added.key_schema_id == first.key_schema_id
        connection.execute("alter table prices alter price type numeric(10,4)")
        with pytest.raises(SchemaRefusedError, match=r"'price' was numeric\(10,2\) and is numeric\(10,4\)") as refused:
            form()
        # The way on: the schema that the message holds, registered by hand.
        text = str(refused.value)
        schema = json.loads(text[text.index("{") :])
        accepted = registry.register("shop.public.prices-value", Schema(json.dumps(schema)))
        assert form().value_schema_id == accepted
        # The stream may announce the table's older form again, after a restart.
        connection.execute("alter table prices alter price type numeric(10,2)")
        assert form().value_schema_id == added.value_schema_id
        assert [(one.schema_id, one.changes) for one in seen] == [
            (added.value_schema_id, ("column 'more' is new",)),
            (accepted, ("column 'price' was numeric(10,2) and is numeric(10,4)",)),
            (added.value_schema_id, ("column 'price' was numeric(10,4) and is numeric(10,2)",)),
        ]
        assert changes.newest_first() == tuple(reversed(seen))
        # What changed while no capture ran: another process knows the topic's last form from the registry.
        connection.execute("alter table prices add late integer, alter price type numeric(10,4)")
        changes = SchemaChanges(SystemClock(), seen.append)
        form()
        assert seen[-1].changes == ("column 'late' is new",)
        # An option can change the schema, too.
        options = replace(options, as_text=("public.prices.late",))
        with pytest.raises(SchemaRefusedError, match=r"'late' \(integer\) was captured as int and is .* string"):
            form()
    finally:
        connection.execute("drop publication if exists prices")
        connection.execute("drop table prices")
