"""The rules: how each operator processes a record. Every runner follows them.

A rule is a class made from the operator and a `Context`; `process(record, port)` forwards through the context, uses
the context's stores and time, and does no I/O. A rule may have `end_of_batch()`, called when a runner has fed all it
has. One module for each family; `rule_of` finds the class.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Protocol

from suiro.streams.records import Record
from suiro.streams.topology.nodes import Operator

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context

__all__ = ["Rule", "rule_of"]

_RULES = {
    "Source": ("stateless", "PassOn"),
    "Merge": ("stateless", "PassOn"),
    "Filter": ("stateless", "FilterRule"),
    "Map": ("stateless", "MapRule"),
    "MapValues": ("stateless", "MapValuesRule"),
    "FlatMap": ("stateless", "FlatMapRule"),
    "FlatMapValues": ("stateless", "FlatMapValuesRule"),
    "SelectKey": ("stateless", "SelectKeyRule"),
    "Peek": ("stateless", "PeekRule"),
    "Branch": ("stateless", "BranchRule"),
    "AsyncCall": ("called", "CalledRule"),
    "MapBatches": ("called", "CalledRule"),
    "TableSource": ("table", "TableSourceRule"),
    "TableFilter": ("table", "TableStepRule"),
    "TableMapValues": ("table", "TableStepRule"),
    "ToStream": ("table", "ToStreamRule"),
    "TableGroupBy": ("table_aggregate", "TableGroupByRule"),
    "TableAggregate": ("table_aggregate", "TableAggregateRule"),
    "StreamAggregate": ("aggregate", "StreamAggregateRule"),
    "TimeWindowAggregate": ("windowed_aggregate", "WindowedAggregateRule"),
    "SlidingAggregate": ("windowed_aggregate", "WindowedAggregateRule"),
    "SessionAggregate": ("windowed_aggregate", "WindowedAggregateRule"),
    "Suppress": ("suppress", "SuppressRule"),
    "StreamStreamJoin": ("stream_stream_join", "StreamStreamJoinRule"),
    "StreamTableJoin": ("stream_table_join", "StreamTableJoinRule"),
    "StreamGlobalTableJoin": ("stream_table_join", "StreamGlobalTableJoinRule"),
    "TableTableJoin": ("table_table_join", "TableTableJoinRule"),
    "ForeignKeySubscribe": ("foreign_key_join", "ForeignKeySubscribeRule"),
    "ForeignKeyRespond": ("foreign_key_join", "ForeignKeyRespondRule"),
    "ForeignKeyResolve": ("foreign_key_join", "ForeignKeyResolveRule"),
    "Process": ("processor_api", "ProcessRule"),
}


class Rule(Protocol):
    def process(self, record: Record, port: int) -> None: ...


def rule_of(operator: Operator, context: Context) -> Rule:
    module, name = _RULES[type(operator).__name__]
    rule: Rule = getattr(import_module(f"suiro.streams.operators.{module}"), name)(operator, context)
    return rule
