"""The rules: how each operator processes a record. Every runner follows them.

A rule is a class made from the operator and a `Context`; `process(record, port)` forwards through the context, uses
the context's stores and time, and does no I/O. A rule may have `end_of_batch()`, called when a runner has fed all it
has. One module for each family; `rule_of` finds the class, whose name is that of the operator and `Rule`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from suiro.extras import on_first_use
from suiro.streams.records import Record
from suiro.streams.topology.nodes import Operator

if TYPE_CHECKING:
    from suiro.streams.operators.context import Context

__all__ = ["Rule", "rule_of"]


class Rule(Protocol):
    def process(self, record: Record, port: int) -> None: ...


_rule = on_first_use(
    __name__,
    {
        "aggregate": "StreamAggregateRule",
        "called": "AsyncCallRule MapBatchesRule",
        "foreign_key_join": "ForeignKeySubscribeRule ForeignKeyRespondRule ForeignKeyResolveRule",
        "processor_api": "ProcessRule",
        "stateless": "SourceRule MergeRule FilterRule MapRule MapValuesRule FlatMapRule FlatMapValuesRule "
        "SelectKeyRule PeekRule BranchRule",
        "stream_stream_join": "StreamStreamJoinRule",
        "stream_table_join": "StreamTableJoinRule StreamGlobalTableJoinRule",
        "suppress": "SuppressRule",
        "table": "TableSourceRule TableFilterRule TableMapValuesRule ToStreamRule",
        "table_aggregate": "TableGroupByRule TableAggregateRule",
        "table_table_join": "TableTableJoinRule",
        "windowed_aggregate": "TimeWindowAggregateRule SlidingAggregateRule SessionAggregateRule",
    },
)


def rule_of(operator: Operator, context: Context) -> Rule:
    rule: Rule = _rule(f"{type(operator).__name__}Rule")(operator, context)
    return rule
