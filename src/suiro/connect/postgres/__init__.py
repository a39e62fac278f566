"""Change data capture from Postgres: a snapshot of each table, then every change, as Avro records in compacted topics.

`capture` is the door: `PostgresCapture` runs one `session` after another. A session reads blocks of changes, `changes`
turns them into records, `delivery` writes them to Kafka in transactions. `tables` has the schema of each table,
`options` the settings, `status` the metrics, `log_messages` what a capture writes into Postgres's log.

- `server`: Postgres. Connection, publication, slot, the replication stream and the slot read by SQL.
- `encoding`: bytes of pgoutput and COPY to Avro records; pure, with compiled kernels.
- `snapshot`: reading whole tables, also while changes flow, and rows of which an update did not send a TOAST value.
"""

# psycopg2's C code imports these, and clears whatever is raised meanwhile: a signal at the start would be lost.
import datetime  # noqa: F401
import ssl  # noqa: F401
