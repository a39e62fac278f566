"""Code that several packages need.

- `http`: how everything that answers HTTP listens: limits, users, TLS, and what web pages may not do.
- `nesting`: parses JSON from untrusted senders, with a limit on its depth.
- `readiness`: announces that a service is ready, on stdout and to systemd.
- `stopping`: when a service stops.
"""
