"""Change data capture from Postgres: a snapshot of each table, then every change, as Avro records in compacted topics.

Start with `capture`: `PostgresCapture` runs one `session` after another. A session reads blocks of changes, `changes`
converts them to records, and `delivery` writes these to Kafka in transactions. `tables` has the schema of each table,
`options` the settings, `status` the metrics, and `log_messages` the messages that a capture writes to Postgres's log.

- `server`: the connection, the publication, the slot, and the two ways to read changes.
- `encoding`: converts bytes of pgoutput and COPY to Avro records. No I/O; with compiled kernels.
- `snapshot`: reads whole tables, also while changes flow, and rows of which an update did not send a TOAST value.
"""

# psycopg2's C code imports these, and clears exceptions that are raised meanwhile: a signal would be lost.
import datetime  # noqa: F401
import ssl  # noqa: F401
