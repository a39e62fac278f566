"""Converts columns of an input partition to a chunk of records, as `SourceReader` does for single records.

Data that is not (bytes the serde cannot read, a negative timestamp) raises one of `FALLBACK`; the rules then decide,
record by record, what is left out and what stops the application.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa

from suiro.streams.extractors import FailOnInvalidTimestamp
from suiro.streams.serdes import BytesSerde, NotColumnarError, Serde
from suiro.streams.topology.nodes import Node, Repartition, Source
from suiro.streams.vectorised.columns import Chunk, Column, headers_in, is_usable
from suiro.streams.vectorised.stateless import Reason, Types


def check_input(node: Node) -> None:
    """Raises `Reason` if the input cannot be read as columns."""
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    if isinstance(operator, Source):
        extractor = operator.timestamp
        if extractor is not None and not isinstance(extractor, FailOnInvalidTimestamp):
            raise Reason(f"{node.name}: a timestamp extractor looks at each record")
    elif operator.is_change:
        raise Reason(f"{node.name}: changes of a table travel")
    for serde in (operator.key, operator.value):
        if not is_usable(serde):
            raise Reason(f"{node.name}: serde {serde.name} reads values one by one")


def types_of_input(node: Node) -> Types:
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    return Types.of(operator.key, operator.value)


def read_chunk(node: Node, columns: pa.RecordBatch, topic: str, *, fields: frozenset[str] | None = None) -> Chunk:
    """`columns`: key and value as bytes, timestamp, perhaps headers. `fields`: all that expressions read of values that
    are objects; None: perhaps all of them. Raises one of `FALLBACK`."""
    operator = node.operator
    assert isinstance(operator, Source | Repartition)
    timestamps = columns.column("timestamp").to_numpy()
    if isinstance(operator, Source) and len(timestamps) and int(timestamps.min()) < 0:
        raise NotColumnarError("timestamp", topic, "a timestamp is negative")
    return Chunk(
        key=_column(columns.column("key"), operator.key, topic),
        value=_column(columns.column("value"), operator.value, topic, fields),
        timestamps=timestamps,
        headers=headers_in(columns),
    )


def _column(raw: Any, serde: Serde, topic: str, fields: frozenset[str] | None = None) -> Column:
    found = Column(raw=raw, serde=serde, topic=topic, fields=fields)
    if not isinstance(serde, BytesSerde):
        found.read  # noqa: B018 — reads them all, so that bytes which are not sound are found here
    return found
