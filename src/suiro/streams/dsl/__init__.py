"""What users build topologies with: streams, tables, groups, joins, and Kafka Streams' names for what they build."""
