"""What a node counts and times, and `/metrics`."""
