"""Settings of topics, groups and the node, where each comes from, and the file of what outlives the process."""
