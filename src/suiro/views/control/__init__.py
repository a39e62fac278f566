"""The host of views: what was decided, what may be decided, and keeping it running."""
