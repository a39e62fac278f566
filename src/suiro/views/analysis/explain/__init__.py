"""Explaining why two versions of a view have different rows: the input records are replayed through both topologies."""
