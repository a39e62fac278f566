"""The failure matrix: who dies x at which step x with which broker; every cell is run, and looked at from outside.

    python -m tests.matrix --broker node --rounds 3     # `make matrix` runs all brokers

- `brokers`: the columns, real brokers that come back with their data. `driver`: what Spark does around the sink, as a
  process that may be killed at any step. `scene`: one cell's topics, link, driver and reader. `cells`: what happens in
  each cell. `checker`: the anomalies, by name. `spark_cells`: the cells for which Spark itself is needed.
- `barrier_cells`, `barrier_driver`: the same where the tasks send the records themselves (`producer.tasks`).
- `results`: runs are counted in `docs/explain/exactly-once-matrix.json`, and the page beside it prints the table.
"""
