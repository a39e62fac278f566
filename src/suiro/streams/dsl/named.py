"""Names of operators, stores and internal topics, as Kafka Streams generates them; and what users say of an operator:
its name, serdes and store, as frozen objects with Kafka Streams' class names.

Wherever an operation takes one of them it also takes the parts as keyword arguments (`name=`, `key=`, `value=`); a
keyword argument wins over the object's part.

One counter for a whole topology. Whatever is built takes its numbers in Kafka Streams' order, also where a user's name
makes the generated one unnecessary, so that naming one operator renames no other one.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any, Self, TypeVar

from suiro.streams.durations import milliseconds
from suiro.streams.errors import TopologyError
from suiro.streams.serdes import Serde
from suiro.streams.windows import Duration

_LEGAL = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")
_NUMBERED = re.compile(r".*-[0-9]{10}.*")

T = TypeVar("T")
Partitioner = Callable[..., int | None]
"""(topic, key, value, partition count) -> a partition; None: as Kafka's producer chooses."""


@dataclass(frozen=True, slots=True)
class Named:
    """`Named.as_("late-only")`: an operator's name, which stays when operators are added before it.

    >>> delays.filter(lambda carrier, minutes: minutes > 15, name=Named.as_("late-only")).to("late")
    >>> "Processor: late-only" in builder.build().describe()
    True
    """

    name: str

    @classmethod
    def as_(cls, name: str) -> Named:
        return cls(name)


Name = str | Named | None


def name_of(name: Name) -> str | None:
    return name.name if isinstance(name, Named) else name


class Names:
    """The counter."""

    __slots__ = ("_next",)

    def __init__(self) -> None:
        self._next = 0

    def generate(self, prefix: str) -> str:
        number = self._next
        self._next += 1
        return f"{prefix}{number:010d}"

    def processor(self, prefix: str, name: Name = None, suffix: str = "") -> str:
        """Returns the user's name with a suffix, or a generated name. Both use up a number."""
        generated = self.generate(prefix)
        given = name_of(name)
        return generated if given is None else legal_name(given + suffix)

    def store(self, prefix: str) -> str:
        return self.generate(f"{prefix}STATE-STORE-")


def is_legal(name: str) -> bool:
    """Tells whether a topic may have the name."""
    return _LEGAL.fullmatch(name) is not None and name not in (".", "..")


def legal_name(name: str) -> str:
    """Returns the name. Raises TopologyError if it cannot be a part of a Kafka topic's name."""
    if not is_legal(name):
        raise TopologyError(
            f"{name!r} cannot be a name: it becomes a part of topic names; use up to 249 letters, "
            "digits, '.', '_' and '-'"
        )
    return name


def is_generated(name: str) -> bool:
    """Tells whether a name was generated for a stream operator. Further names made from it would say nothing more."""
    return _GENERATED.fullmatch(name) is not None


def moves_with_its_place(name: str) -> bool:
    """Tells whether the name contains a number of the counter. Such a name changes when operators are added above."""
    return _NUMBERED.fullmatch(name) is not None


def options_of(given: T | None, kind: type[T]) -> T:
    """Returns what an operation was given as one of these classes, or an empty one."""
    if given is None:
        return kind()
    if not isinstance(given, kind):
        text = f"{kind.__name__}.as_({given!r})" if isinstance(given, str) else f"{kind.__name__}.with_(...)"
        raise TopologyError(f"{given!r} is no {kind.__name__}; give {text}")
    return given


class _Itself:
    """`Consumed.with_(...)` is `Consumed(...)`, with the name that it has in Kafka Streams."""

    def __get__(self, instance: object, owner: type[T]) -> type[T]:
        return owner


@dataclass(frozen=True, slots=True)
class _Serdes:
    """Serdes of a key and a value, and a name."""

    key: Serde | None = None
    value: Serde | None = None
    name: str | None = field(default=None, kw_only=True)

    with_ = _Itself()

    @classmethod
    def as_(cls, name: str) -> Self:
        return cls(name=name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Consumed(_Serdes):
    """How topics are read. `timestamp`: see `extractors`."""

    timestamp: Any = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Produced(_Serdes):
    """How a topic is written."""

    partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Grouped(_Serdes):
    """Serdes of a group, and the name of its repartition topic (`<name>-repartition`).

    >>> by_minutes = Grouped.with_(serdes.long, serdes.long, name="by-minutes")
    >>> counts = delays.group_by(lambda carrier, minutes: minutes, by_minutes).count()
    >>> results(counts, delays=[("UA", 3, 0)])
    [(3, 1, 0)]
    """


@dataclass(frozen=True, slots=True, kw_only=True)
class Repartitioned(_Serdes):
    """The topic of an explicit `repartition()`."""

    partitions: int | None = None
    partitioner: Partitioner | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Joined(_Serdes):
    """Serdes of the stream of a stream-table join, its name, and how long it waits for late rows of the table."""

    grace: Duration | None = None


@dataclass(frozen=True, slots=True)
class StreamJoined(_Serdes):
    """Serdes of both sides of a stream-stream join. `name` names its operators, `store_name` its stores."""

    other_value: Serde | None = None
    store_name: str | None = field(default=None, kw_only=True)
    logged: bool = field(default=True, kw_only=True)

    @classmethod
    def as_(cls, store_name: str) -> StreamJoined:
        """As in Kafka Streams, this names the stores; `with_(name=)` names the operators."""
        return cls(store_name=store_name)


@dataclass(frozen=True, slots=True, kw_only=True)
class Materialized:
    """A table's store. A name makes it queryable and its changelog topic (`<name>-changelog`) stable.

    `retention_ms` is for windowed stores, at least what the windows need. `history_ms` makes the store versioned.
    """

    name: str | None = None
    key: Serde | None = None
    value: Serde | None = None
    retention_ms: int | None = None
    history_ms: int | None = None
    logged: bool = True

    @classmethod
    def as_(
        cls,
        name: str,
        *,
        retention: Duration | None = None,
        key: Serde | None = None,
        value: Serde | None = None,
        logged: bool = True,
    ) -> Materialized:
        """A store with a name, which `get_key_value_store` and queries find. `retention`: of windows.

        >>> counts = delays.group_by_key().count(materialized=Materialized.as_("counts"))
        >>> with TopologyTestDriver(builder.build()) as driver:
        ...     driver.create_input_topic("delays").pipe_input("UA", 3)
        ...     driver.get_key_value_store("counts").get("UA")
        1
        """
        retention_ms = None if retention is None else milliseconds(retention, what=f"the retention of {name}")
        return cls(name=name, retention_ms=retention_ms, key=key, value=value, logged=logged)

    @classmethod
    def with_(cls, key: Serde | None = None, value: Serde | None = None) -> Materialized:
        """Serdes for a store that keeps its generated name.

        >>> total = delays.group_by_key().reduce(max, materialized=Materialized.with_(value=serdes.long))
        >>> results(total, delays=[("UA", 3, 0)])
        [('UA', 3, 0)]
        """
        return cls(key=key, value=value)

    @classmethod
    def versioned(
        cls, name: str, *, history: Duration, key: Serde | None = None, value: Serde | None = None
    ) -> Materialized:
        """A store with rows as of any time of the last `history` (KIP-889). `TopologyError`: no history.

        >>> prices = Materialized.versioned("prices", history="1 day")
        >>> table = builder.table("prices", key=serdes.string, value=serdes.long, materialized=prices)
        >>> paid = delays.join(table, lambda minutes, price: price * minutes)
        >>> results(paid, prices=[("UA", 2, 0), ("UA", 5, 10)], delays=[("UA", 3, 4)])
        [('UA', 6, 4)]
        """
        history_ms = milliseconds(history, what=f"the history of {name}")
        if history_ms == 0:
            raise TopologyError(f"store {name} would keep no history; give one longer than 0 ms")
        return cls(name=name, history_ms=history_ms, key=key, value=value)


@dataclass(frozen=True, slots=True, kw_only=True)
class Suppressed:
    """Waits until windows close, or until a key has waited for `time_limit_ms`."""

    time_limit_ms: int | None = None
    max_records: int | None = None
    max_bytes: int | None = None
    name: str | None = None

    def __post_init__(self) -> None:
        for what, limit in (("max_records", self.max_records), ("max_bytes", self.max_bytes)):
            if limit is not None and limit < 0:
                raise TopologyError(f"{what} of suppress is {limit}; give 0 or more, or leave it out for no limit")

    @classmethod
    def until_window_closes(
        cls, *, max_records: int | None = None, max_bytes: int | None = None, name: str | None = None
    ) -> Suppressed:
        """One final result for each window. A full buffer is an error, since an early result would not be final.

        >>> Suppressed.until_window_closes(max_records=1_000).max_records
        1000
        """
        return cls(max_records=max_records, max_bytes=max_bytes, name=name)

    @classmethod
    def until_time_limit(
        cls,
        limit: Duration,
        *,
        max_records: int | None = None,
        max_bytes: int | None = None,
        name: str | None = None,
    ) -> Suppressed:
        """At most one update of a key in each `limit`. A full buffer forwards its oldest keys early.

        >>> calm = planes.suppress(Suppressed.until_time_limit(10))
        >>> results(calm, planes=[("N1", 180, 0), ("N1", 90, 5), ("N2", 50, 10)])
        [('N1', 90, 5)]
        """
        time_limit_ms = milliseconds(limit, what="the time limit of suppress")
        return cls(time_limit_ms=time_limit_ms, max_records=max_records, max_bytes=max_bytes, name=name)

    def with_name(self, name: str) -> Suppressed:
        """With another name for the operator and its store.

        >>> Suppressed.until_window_closes().with_name("final").name
        'final'
        """
        return replace(self, name=name)
