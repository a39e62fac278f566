"""Compares the contents of the topics with the expected ones, and names every difference.

This is a pure rule over records as they are read (`reading`), so that tests can show it a wrong one. Of a million
records, only counts are kept, and what must be compared as a whole: alerts, carriers' figures, rejected flights.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suiro.demo.anomalies import Keys, some
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

__all__ = ["Counts", "Noted", "Verdict", "verify"]

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


class Noted:
    """What somebody read, as far as the verdict needs it: `merge` adds what another read of other partitions."""

    def __init__(self, expected: Expected) -> None:
        self.ids = {topic: Keys(wanted) for topic, wanted in _wanted(expected).items()}
        self.named: dict[str, list[str]] = {topic: [] for topic in (RAW, VALIDATED, REJECTED, ENRICHED)}
        self.kept: dict[str, list[Read]] = {REJECTED: [], DELAYS: [], ALERTS: []}
        self.origin: dict[str, Read] = {}

    def note_all(self, records: Iterable[tuple[str, Read]], expected: Expected) -> None:
        """`records`: with their topics, each partition in order."""
        ids, kept, named = self.ids, self.kept, self.named
        wrong: dict[str, Callable[[Read], str | None]] = {
            RAW: lambda record: _wrong_flight(record, expected),
            VALIDATED: lambda record: _wrong_flight(record, expected),
            ENRICHED: lambda record: _wrong_enriched(record, expected),
        }
        for topic, record in records:
            if topic in ids:
                ids[topic].note(record.key)
            if topic in kept:
                kept[topic].append(record)
            elif topic in wrong and (what := wrong[topic](record)) is not None:
                named[topic].append(_place(record, what))
            if topic == RAW and record.key in expected.rejected:
                self.origin[record.key] = record

    def merge(self, other: Noted) -> None:
        for topic, each in other.ids.items():
            self.ids[topic].merge(each)
        for topic, texts in other.named.items():
            self.named[topic] += texts
        for topic, records in other.kept.items():
            self.kept[topic] += records
        self.origin |= other.origin


def verify(noted: Noted, delivered: Delivered, expected: Expected) -> Verdict:
    """Point by point; no difference means: nothing lost, nothing twice, nothing changed.

    `delivered` is what came under each idempotency key, TOPIC-PARTITION-OFFSET.
    """
    ids, named, kept = noted.ids, noted.named, noted.kept
    for record in kept[REJECTED]:
        if (what := _wrong_rejected(record, noted.origin, expected)) is not None:
            named[REJECTED].append(_place(record, what))
    differences = [f"{topic}: {one.words}" for topic, each in ids.items() for one in each.anomalies("keys")]
    counts = {topic: each.total for topic, each in ids.items()}
    if counts[RAW] != counts[VALIDATED] + counts[REJECTED]:
        differences.append(
            f"{RAW} has {counts[RAW]} records, but {counts[VALIDATED]} were validated and {counts[REJECTED]} rejected"
        )
    if counts[ENRICHED] != counts[VALIDATED]:
        differences.append(f"{ENRICHED} has {counts[ENRICHED]} records, {VALIDATED} {counts[VALIDATED]}")
    for topic, texts in named.items():
        if texts:
            differences.append(f"{topic}: {len(texts)} records differ: {some(texts)}")
    carriers = _check_delays(kept[DELAYS], expected, differences)
    _check_alerts(kept[ALERTS], expected, differences)
    _check_delivered(delivered, kept[ALERTS], differences)
    return Verdict(
        counts=Counts(
            weather=counts[WEATHER],
            raw=counts[RAW],
            validated=counts[VALIDATED],
            rejected=counts[REJECTED],
            enriched=counts[ENRICHED],
            carriers=carriers,
            carrier_updates=len(kept[DELAYS]),
            alerts=len(kept[ALERTS]),
            alerts_delivered=len(delivered),
            lost=sum(len(each.missing) for each in ids.values()),
            duplicates=sum(sum(each.again.values()) for each in ids.values()),
        ),
        differences=tuple(differences),
    )


def _wanted(expected: Expected) -> dict[str, Iterable[str]]:
    sound = expected.flights.keys() - expected.rejected
    return {
        AIRLINES: expected.airlines.keys(),
        AIRPORTS: expected.airports.keys(),
        PLANES: expected.planes.keys(),
        WEATHER: {f'["{origin}","{hour}"]' for origin, hour in expected.weather},
        WEATHER_REJECTED: (),
        RAW: expected.flights.keys(),
        VALIDATED: sound,
        REJECTED: expected.rejected,
        ENRICHED: sound,
    }


def _place(record: Read, what: str) -> str:
    return f"{record.key} (partition {record.partition}, offset {record.offset}): {what}"


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
    hours: Keys[Hour] = Keys(expected.alerts)
    for record in alerts:
        value = record.value or {}
        hour = record.key, str(value.get("hour"))
        hours.note(hour)
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
    differences += (f"{ALERTS}: {one.words}" for one in hours.anomalies("alerts", text_of=_named))


def _check_delivered(delivered: Delivered, alerts: Sequence[Read], differences: list[str]) -> None:
    """Each alert came, under a key that is its place in the topic, as it is there."""
    wanted = {f"{ALERTS}-{record.partition}-{record.offset}": record for record in alerts}
    keys = Keys(wanted)
    for key in delivered:
        keys.note(key)
    texts = ("were not delivered", "came again", "were delivered, but are not in the topic")
    differences += (f"{ALERTS}: {one.words}" for one in keys.anomalies("alerts", texts))
    both = wanted.keys() & delivered.keys()
    if other := sorted(key for key in both if delivered[key].get("value") != wanted[key].value):
        text = f"{len(other)} alerts were delivered with something else in them: {some(other)}"
        differences.append(f"{ALERTS}: {text}")


def _named(hour: Hour) -> str:
    return f"{hour[0]} at {hour[1]}"


def _close(got: float | None, wanted: float | None) -> bool:
    if got is None or wanted is None:
        return got is wanted
    return abs(got - wanted) <= TOLERANCE


def _columns(row: Mapping[str, Any] | None, names: Sequence[str]) -> dict[str, Any] | None:
    return None if row is None else {name: row[name] for name in names}
