"""Compares what is in the topics with what must be there; every difference is named.

A pure rule over what was read (`reading`), so that tests can show it a wrong record.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.demo.expected import Expected, Hour
from suiro.demo.names import (
    AIRLINES,
    AIRPORTS,
    ALERTS,
    DELAYS,
    ENRICHED,
    PLANES,
    RAW,
    REJECTED,
    VALIDATED,
    WEATHER,
    WEATHER_REJECTED,
)
from suiro.demo.reading import Read

__all__ = ["Counts", "Verdict", "verify"]

NAMED_EXAMPLES = 5
TOLERANCE = 1e-9
REASON = "departed, but has no arrival delay"

Delivered = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Counts:
    """Records per topic as read, and of all topics, keys that are missing and records that are there once too often;
    alerts that the receiver has."""

    weather: int
    raw: int
    validated: int
    rejected: int
    enriched: int
    carriers: int
    carrier_updates: int
    alerts: int
    alerts_delivered: int
    lost: int
    duplicates: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Verdict:
    counts: Counts
    differences: tuple[str, ...]


def verify(found: Mapping[str, Sequence[Read]], delivered: Delivered, expected: Expected) -> Verdict:
    """Point by point; no difference means: nothing lost, nothing twice, nothing changed.

    `delivered` is what came under each idempotency key, TOPIC-PARTITION-OFFSET.
    """
    differences: list[str] = []
    raw, validated, rejected = found[RAW], found[VALIDATED], found[REJECTED]
    enriched, delays, alerts = found[ENRICHED], found[DELAYS], found[ALERTS]

    lost = duplicates = 0
    hours = {f'["{origin}","{hour}"]' for origin, hour in expected.weather}
    for topic, records, wanted in (
        (AIRLINES, found[AIRLINES], expected.airlines.keys()),
        (AIRPORTS, found[AIRPORTS], expected.airports.keys()),
        (PLANES, found[PLANES], expected.planes.keys()),
        (WEATHER, found[WEATHER], hours),
        (WEATHER_REJECTED, found[WEATHER_REJECTED], ()),
        (RAW, raw, expected.flights.keys()),
        (VALIDATED, validated, expected.flights.keys() - expected.rejected),
        (REJECTED, rejected, expected.rejected),
        (ENRICHED, enriched, expected.flights.keys() - expected.rejected),
    ):
        missing, doubled = _check_ids(topic, records, wanted, differences)
        lost, duplicates = lost + missing, duplicates + doubled

    if len(raw) != len(validated) + len(rejected):
        differences.append(
            f"{RAW} has {len(raw)} records, but {len(validated)} were validated and {len(rejected)} rejected"
        )
    if len(enriched) != len(validated):
        differences.append(f"{ENRICHED} has {len(enriched)} records, {VALIDATED} {len(validated)}")

    origin = {record.key: record for record in raw}
    _check_each(RAW, raw, lambda record: _wrong_flight(record, expected), differences)
    _check_each(VALIDATED, validated, lambda record: _wrong_flight(record, expected), differences)
    _check_each(REJECTED, rejected, lambda record: _wrong_rejected(record, origin, expected), differences)
    _check_each(ENRICHED, enriched, lambda record: _wrong_enriched(record, expected), differences)
    carriers = _check_delays(delays, expected, differences)
    _check_alerts(alerts, expected, differences)
    _check_delivered(delivered, alerts, differences)
    return Verdict(
        counts=Counts(
            weather=len(found[WEATHER]),
            raw=len(raw),
            validated=len(validated),
            rejected=len(rejected),
            enriched=len(enriched),
            carriers=carriers,
            carrier_updates=len(delays),
            alerts=len(alerts),
            alerts_delivered=len(delivered),
            lost=lost,
            duplicates=duplicates,
        ),
        differences=tuple(differences),
    )


def _check_ids(
    topic: str, records: Sequence[Read], wanted: Iterable[str], differences: list[str]
) -> tuple[int, int]:
    """Each wanted id once, and no other. Returns how many are missing, and how many records are once too often."""
    times = Counter(record.key for record in records)
    wanted = set(wanted)
    missing = sorted(wanted - times.keys())
    doubled = sorted(key for key, count in times.items() if count > 1)
    for what, keys in (
        ("missing", missing),
        ("there more than once", doubled),
        ("not expected", sorted(times.keys() - wanted)),
    ):
        if keys:
            differences.append(f"{topic}: {len(keys)} keys {what}: {_some(keys)}")
    return len(missing), sum(times[key] - 1 for key in doubled)


def _check_each(
    topic: str, records: Sequence[Read], wrong: Callable[[Read], str | None], differences: list[str]
) -> None:
    named = [
        f"{record.key} (partition {record.partition}, offset {record.offset}): {what}"
        for record in records
        if (what := wrong(record)) is not None
    ]
    if named:
        differences.append(f"{topic}: {len(named)} records differ: {_some(named)}")


def _wrong_flight(record: Read, expected: Expected) -> str | None:
    flight = expected.flights.get(record.key)
    if flight is None or record.value == flight:
        return None  # an unexpected id is named already
    return "is not the flight in the data"


def _wrong_rejected(record: Read, origin: Mapping[str, Read], expected: Expected) -> str | None:
    wrong = _wrong_flight(record, expected)
    source = origin.get(record.key)
    if wrong is not None or source is None:
        return wrong
    wanted = {
        "reason": REASON,
        "topic": RAW,
        "partition": str(source.partition),
        "offset": str(source.offset),
    }
    told = {name: record.headers.get(name) for name in wanted}
    return None if told == wanted else f"headers are {told}, expected {wanted}"


def _wrong_enriched(record: Read, expected: Expected) -> str | None:
    flight, value = expected.flights.get(record.key), record.value
    if flight is None:
        return None
    if value is None:
        return "is not JSON"
    weather = expected.weather.get((flight["origin"], flight["time_hour"]))
    wanted = {
        **flight,
        "airline": expected.airlines.get(flight["carrier"]),
        "destination": _columns(expected.airports.get(flight["dest"]), ("name", "lat", "lon", "tzone")),
        "plane": _columns(
            expected.planes.get(flight["tailnum"]), ("year", "type", "manufacturer", "model", "seats")
        ),
        "weather": _columns(weather, ("temp", "wind_speed", "precip", "visib")),
    }
    if value == wanted:
        return None
    names = [name for name in wanted if value.get(name) != wanted[name]] or sorted(
        value.keys() - wanted.keys()
    )
    return f"{names[0]} is {value.get(names[0])!r}, expected {wanted.get(names[0])!r}"


def _check_delays(delays: Sequence[Read], expected: Expected, differences: list[str]) -> int:
    """The last record per carrier, and that its flights only ever grew. Returns how many carriers there are."""
    last: dict[str, dict[str, Any]] = {}
    place: dict[str, int] = {}
    for record in sorted(delays, key=lambda record: (record.partition, record.offset)):
        value = record.value
        if value is None:
            differences.append(f"{DELAYS}: partition {record.partition}, offset {record.offset} is not JSON")
            continue
        before = last.get(record.key)
        if place.setdefault(record.key, record.partition) != record.partition:
            differences.append(f"{DELAYS}: {record.key} is in two partitions")
        elif before is not None and value["flights"] <= before["flights"]:
            differences.append(
                f"{DELAYS}: {record.key} went from {before['flights']} to {value['flights']} flights "
                f"at offset {record.offset}: an update came twice or out of order"
            )
        last[record.key] = value
    for carrier in sorted(expected.carriers.keys() | last.keys()):
        wanted, got = expected.carriers.get(carrier), last.get(carrier)
        if wanted is None or got is None:
            differences.append(f"{DELAYS}: carrier {carrier} is {'not expected' if got else 'missing'}")
            continue
        for name in ("flights", "cancelled", "mean_dep_delay", "mean_arr_delay"):
            if not _close(got.get(name), getattr(wanted, name)):
                differences.append(
                    f"{DELAYS}: {carrier} {name} is {got.get(name)}, expected {getattr(wanted, name)}"
                )
    return len(last)


def _check_alerts(alerts: Sequence[Read], expected: Expected, differences: list[str]) -> None:
    """One for each hour of a carrier that was late, and no other."""
    times: Counter[Hour] = Counter()
    for record in alerts:
        value = record.value or {}
        hour = record.key, str(value.get("hour"))
        times[hour] += 1
        wanted = expected.alerts.get(hour)
        if wanted is not None and not (
            value.get("carrier") == record.key
            and value.get("departed") == wanted.dep_count
            and _close(value.get("mean_dep_delay"), wanted.mean_dep_delay)
        ):
            differences.append(
                f"{ALERTS}: {_named(hour)} is {value}, expected {wanted.mean_dep_delay} minutes of {wanted.dep_count} "
                "flights"
            )
    for what, hours in (
        ("missing", expected.alerts.keys() - times.keys()),
        ("there more than once", {hour for hour, count in times.items() if count > 1}),
        ("not expected", times.keys() - expected.alerts.keys()),
    ):
        if hours:
            differences.append(f"{ALERTS}: {len(hours)} alerts {what}: {_some(sorted(map(_named, hours)))}")


def _check_delivered(delivered: Delivered, alerts: Sequence[Read], differences: list[str]) -> None:
    """Each alert came, under a key that is its place in the topic, as it is there."""
    wanted = {f"{ALERTS}-{record.partition}-{record.offset}": record for record in alerts}
    for what, keys in (
        ("were not delivered", wanted.keys() - delivered.keys()),
        ("were delivered, but are not in the topic", delivered.keys() - wanted.keys()),
        (
            "were delivered with something else in them",
            {
                key
                for key in wanted.keys() & delivered.keys()
                if delivered[key].get("value") != wanted[key].value
            },
        ),
    ):
        if keys:
            differences.append(f"{ALERTS}: {len(keys)} alerts {what}: {_some(sorted(keys))}")


def _named(hour: Hour) -> str:
    return f"{hour[0]} at {hour[1]}"


def _close(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None:
        return got is wanted
    return abs(got - wanted) <= TOLERANCE


def _columns(row: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in names}


def _some(names: Sequence[str]) -> str:
    shown = ", ".join(names[:NAMED_EXAMPLES])
    return shown if len(names) <= NAMED_EXAMPLES else f"{shown}, ..."
