"""Operators on columns: the same results as the rules in `operators/`, without a Python call for each key or record.

`plan.columnar_form_of` says whether a sub-topology can run here, and why not where it cannot; the rules run it then.
What runs here keeps its state in the very bytes the rules' stores would hold, so either can take over from the other.
"""
