"""The host of views: the rules of changes, the journal of decisions, and the reconcilers that carry them out."""
