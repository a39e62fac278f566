"""Comparing two versions of a view, row by row, at the same input."""
