"""The DSL for topologies: streams, tables, groups and joins, with Kafka Streams' names for nodes and stores."""
