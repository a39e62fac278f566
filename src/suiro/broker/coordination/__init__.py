"""Kafka's coordinators: groups with their members and offsets, transactions, fetch sessions."""
