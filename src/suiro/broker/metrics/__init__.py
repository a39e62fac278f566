"""The counters and timers of a node."""
