"""What several packages need and none owns.

- `http`: how everything that answers HTTP listens: limits, users, TLS, and what web pages may not do.
- `nesting`: JSON of strangers, and how deep is too deep.
- `readiness`: how a service says that it answers, on stdout and to systemd.
- `stopping`: when a service stops.
"""
