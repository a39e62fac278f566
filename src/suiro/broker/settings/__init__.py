"""Settings of topics, groups and the node, where each one comes from, and the file of what outlives the node's process."""
