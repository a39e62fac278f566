"""Postgres as a source: a snapshot, then every change, as Avro records in log-compacted topics.

- `capture`: `PostgresCapture`, session after session. `session`: one of them. `options`, `status`: what it is told,
  what it says.
- `database`, `publication`, `slot`: Postgres's side. `stream`, `peek`: two ways to read; `spool`: large transactions.
- `changes`: messages to records. `untouched`, `topic_state`: what only the topic knows. `snapshots`, `ranges`,
  `window`, `visibility`: whole tables, beside the stream too. `tables`: forms and schemas. `batches`, `delivery`: into
  Kafka. `engine`: compiled kernels, or the plain rules until they are loaded.
- `pgoutput`, `copy_binary`, `avro_rows`, `types`, `schemas`: bytes to Avro, pure. `kernels`: their loops,
  compiled.
"""
