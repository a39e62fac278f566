"""The included sinks, one module each."""
