"""Postgres as the capture sees it: connection, publication, replication slot and the two ways to read changes."""
