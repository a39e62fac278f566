"""Expressions over columns: a tree, and its two evaluators, on Python values and on Arrow columns."""
