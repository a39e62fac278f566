"""What people ask of a cluster every day, as functions: the commands call them, and so does whatever shows a cluster.

A `Client` goes in, frozen dataclasses come out, and errors are those of `suiro.errors`. Nothing here prints, asks, or
imports Spark, pandas or numba.

- `cluster`, `topics`, `groups`, `security`: the cluster and its brokers, topics, groups, who may do what.
- `records`: records read from an offset or a time on, decoded, filtered; and written.
- `schemas`: subjects of a registry, with differences. `dead_letters`: records put aside, and their way back.
- `text`: bytes of strangers as text that a terminal can take.

Import its modules one by one: a command loads only what it needs.
"""
