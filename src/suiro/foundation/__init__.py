"""What several packages need and none owns.

- `http`: how everything that answers HTTP listens: limits, users, TLS, and what web pages may not do.
- `stopping`: when a service stops.
"""
