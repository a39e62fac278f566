"""What people ask of a cluster every day, as functions: the commands call them, and so does whatever shows a cluster.

A `Client` goes in, frozen dataclasses come out, and errors are those of `suiro.errors`. Nothing here prints, asks, or
imports Spark, pandas or numba.

- `cluster`, `topics`, `groups`, `security`: the cluster and its brokers, topics, groups, who may do what.
- `records`: records read from an offset or a time on; and written. `pages`: leafing through a log in both directions.
- `formats`: keys and values decoded, encoded, filtered.
- `schemas`: subjects of a registry, with differences. `dead_letters`: records put aside; `redrives`: their way back.
- `text`: bytes of strangers as text that a terminal can take.
- `web`: all of it over HTTP, with a page for browsers.

Import its modules one by one: a command loads only what it needs.
"""
