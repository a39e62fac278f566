"""The sink and the node in one simulated world; `python -m tests.sim --seeds 10000` runs many seeds of it.

`world` has time, chance and processes; `network` carries bytes between them and loses, delays and repeats them;
`node` is the real broker on it, `query` a Spark query whose sink is the real committer and client, `strangers`
other producers. `scenario` draws a whole life of these from one seed, `checker` looks after every event.
"""
