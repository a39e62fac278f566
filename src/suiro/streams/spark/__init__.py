"""Runs a topology on Spark: one query, one micro-batch at a time, one Kafka transaction for each.

```
source task    fetch, decode; sub-topologies without state run here       source
bucket         one task of the topology, all its operators, its state     bucket, state_log
driver         the micro-batch's transaction                              runner
```
Spark plans, shuffles, keeps the state and repeats what failed; the rules are those of `suiro.streams.operators`. A row
that Spark sees holds many records (`cargo`). `plan` says what runs where, `program` brings it to the workers,
`outputs` is the way out of a task.
"""
