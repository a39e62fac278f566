"""Kafka Streams in Python: topologies built from streams and tables."""
