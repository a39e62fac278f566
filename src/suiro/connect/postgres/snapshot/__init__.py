"""Snapshots of tables: in ranges, before the stream starts or while it runs, and rows read again by their keys."""
