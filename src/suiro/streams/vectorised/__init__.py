"""Operators on columns: the same results as the rules in `operators/`, without a Python call for each key or record.

`plan.columnar_form_of` returns the columnar form of a sub-topology, or the reason why it has none; then the rules run
it. State has the same bytes as in the stores of the rules, so either can take over from the other.
"""
