"""Selects the sub-topologies that run on columnar operators (columnar forms), once per process and from the program
alone."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache

from suiro.streams.blocks import BlockPlan, block_plan
from suiro.streams.operators.context import TaskSettings
from suiro.streams.topology.topology import Topology
from suiro.streams.vectorised.columnar_aggregate import ColumnarAggregate
from suiro.streams.vectorised.plan import ColumnarForm, columnar_form_of
from suiro.streams.vectorised.stateless import Reason
from suiro.streams_spark.program import Program


@dataclass(slots=True)
class ColumnarForms:
    topology: Topology
    settings: TaskSettings
    _found: dict[int, ColumnarForm | Reason] = field(default_factory=dict)
    _plans: dict[int, BlockPlan] = field(default_factory=dict)

    def of(self, number: int) -> ColumnarForm | None:
        """The columnar form of a sub-topology, by its number; None: the rules run it."""
        if number not in self._found:
            sub = self.topology.sub_topologies[number]
            self._found[number] = columnar_form_of(self.topology, sub, self.settings)
        found = self._found[number]
        return None if isinstance(found, Reason) else found

    def combining(self, number: int) -> ColumnarAggregate | None:
        """The form that combines records before they come to the sub-topology's tasks."""
        found = self.of(number)
        return found if isinstance(found, ColumnarAggregate) else None

    def block_plan(self, number: int) -> BlockPlan:
        """How a sub-topology runs that has no columnar form, or whose data its columnar form cannot do."""
        if number not in self._plans:
            self._plans[number] = block_plan(self.topology, self.topology.sub_topologies[number])
        return self._plans[number]


@lru_cache(maxsize=8)
def columnar_forms_of(program: Program) -> ColumnarForms:
    return ColumnarForms(program.plan.topology, program.settings)
