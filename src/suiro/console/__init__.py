"""Everyday administration of a cluster, as functions for the commands and the web console.

A function takes a `Client` and returns frozen dataclasses. Errors are those of `suiro.errors`. Nothing here prints,
asks, or imports Spark, pandas or numba.

- `topics`, `groups`, `security`: brokers, topics, consumer groups, access rules.
- `records`: reads records from an offset or a time on, and writes records. `pages`: pages through a log in both
  directions.
- `formats`: decodes, encodes and filters keys and values.
- `schemas`: subjects of a registry, with differences. `dead_letters`: dead letters; `redrives`: sends them back.
- `text`: makes untrusted bytes safe to print.
- `web`: all of it over HTTP, with a page for browsers.

Import the modules one by one: a command loads only those that it needs.
"""
