"""The included sources, one module each."""
