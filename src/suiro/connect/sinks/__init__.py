"""The sinks that come along, one file each."""
