"""suiro (水路, "waterway"): event streaming in Python on the Kafka wire protocol and Apache Spark.

Spark's Python workers import this module at every start, so it imports nothing.
"""

__version__ = "0.1.0.dev0"
