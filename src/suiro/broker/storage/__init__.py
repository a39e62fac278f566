"""The topics of a node on disk: which there are, cleaning them, and their remote tier."""
