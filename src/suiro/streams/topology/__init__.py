"""A topology as data: nodes, stores, sub-topologies, and its description."""
