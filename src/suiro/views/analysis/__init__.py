"""Comparing two versions of a view, and explaining why a row differs."""
