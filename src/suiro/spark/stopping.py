"""Ends the waits in the driver's process when a query is stopped.

Spark ends the worker processes of a stopped query by itself. What runs in the driver's own Python (`foreachBatch`, a
topology) it cannot end, and `StreamingQuery.stop` returns only when that has returned. One thread of the process looks
after all of it; what takes less than its interval costs nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from suiro.foundation.threads import Regularly

CHECK_S = 0.5
_log = logging.getLogger(__name__)


@contextmanager
def given_up_when_stopped(query_id: str, give_up: Callable[[], None]) -> Iterator[None]:
    """Calls `give_up`, from another thread, if the query is stopped meanwhile. Nothing to do in a worker process."""
    from pyspark import SparkContext

    if SparkContext._active_spark_context is None:
        yield
        return
    with _watch.during([_Watched(query_id, give_up)]):
        yield


def is_active(query_id: str) -> bool:
    """As Spark has it, whichever session the query is of. Where it does not say, as in a worker process, it is."""
    from pyspark.sql import SparkSession

    session = SparkSession._instantiatedSession
    if session is None:
        return True
    try:
        shared = session._jsparkSession.sharedState()
        key = session._jvm.java.util.UUID.fromString(query_id)  # type: ignore[union-attr]
        query = shared.activeStreamingQueries().get(key)
        return query is None or bool(query.isActive())
    except Exception as error:  # noqa: BLE001 - py4j and Spark raise many kinds when a session ends
        _log.debug("Spark does not say whether query %s runs: %s", query_id, error)
        return True


@dataclass(slots=True, eq=False)
class _Watched:
    query_id: str
    give_up: Callable[[], None]
    is_old: bool = False
    """It was there at the last look."""
    is_given_up: bool = False


def _give_up(all_: Iterable[_Watched]) -> None:
    for watched in all_:
        if watched.is_old and not watched.is_given_up and not is_active(watched.query_id):
            watched.is_given_up = True
            watched.give_up()
        watched.is_old = True


_watch = Regularly("suiro-stop", CHECK_S, _give_up)
