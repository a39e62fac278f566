"""Data in and out: sources and sinks beside the log."""
