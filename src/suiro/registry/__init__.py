"""A schema registry with Confluent's REST API, its client, and serdes that use it."""
