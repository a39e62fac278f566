"""A version of a view while it is built: its process on Spark, its cuts, its follower, and its share of the machine."""
