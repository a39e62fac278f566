"""What Kafka's coordinators do: groups with their members and offsets, transactions, and the topics that keep both."""
