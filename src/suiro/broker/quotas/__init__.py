"""Quotas: how fast a client may produce, fetch, use the node's time and change topics, by user and client id."""
