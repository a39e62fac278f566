"""Postgres as a source: a snapshot, then every change, as Avro records in log-compacted topics."""
