"""Compares the contents of the topics with the expected ones, and names every difference.

This is a pure function of the records that are read (`reading`), so that tests can give it wrong ones. Of a million
records it keeps only counts, and the records that are compared as a whole: alerts, carriers' figures, rejected flights.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from suiro.demo.anomalies import Keys, some
from suiro.demo.expected import Expected, Hour, Row
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

TOLERANCE = 1e-9
REASON = "departed, but has no arrival delay"

Delivered = Mapping[str, Mapping[str, Any]]


class Noted:
    """The parts of the records that the verdict needs. `wrong` has records with another value than expected."""

    def __init__(self, expected: Expected) -> None:
        valid = expected.flights.keys() - expected.rejected
        wanted: dict[str, Iterable[str]] = {
            AIRLINES: expected.airlines,
            AIRPORTS: expected.airports,
            PLANES: expected.planes,
            WEATHER: [f'["{origin}","{hour}"]' for origin, hour in expected.weather],
            WEATHER_REJECTED: (),
            RAW: expected.flights,
            VALIDATED: valid,
            REJECTED: expected.rejected,
            ENRICHED: valid,
        }
        self.expected = expected
        self.keys = {topic: Keys(keys) for topic, keys in wanted.items()}
        self.wrong: dict[str, list[str]] = {topic: [] for topic in (RAW, VALIDATED, REJECTED, ENRICHED)}
        self.kept: dict[str, list[Read]] = {REJECTED: [], DELAYS: [], ALERTS: []}
        self.origin: dict[str, Read] = {}
        """The records of rejected flights in `RAW`."""

    def note(self, topic: str, record: Read) -> None:
        if topic in self.keys:
            self.keys[topic].note(record.key)
        if topic in self.kept:
            self.kept[topic].append(record)
        if topic in self.wrong:
            flight = self.expected.flights.get(record.key)  # unexpected keys are reported by `keys`
            if flight is not None:
                wanted = self.expected.enriched(flight) if topic == ENRICHED else flight
                if record.value != wanted:
                    self.wrong[topic].append(_named(record, _difference(record.value, wanted)))
            if topic == RAW and record.key in self.expected.rejected:
                self.origin[record.key] = record


def verify(noted: Noted, delivered: Delivered) -> tuple[dict[str, int], list[str]]:
    """Returns counts, and every difference as text. No difference means that nothing is lost, duplicated or changed.
    `delivered` has the alerts by idempotency key, TOPIC-PARTITION-OFFSET. `lost` and `duplicates` count the keys of all
    topics."""
    expected, keys, kept = noted.expected, noted.keys, noted.kept
    counts = {topic: each.total for topic, each in keys.items()}
    differences = [f"{topic}: {one.words}" for topic, each in keys.items() for one in each.anomalies("keys")]
    if counts[RAW] != counts[VALIDATED] + counts[REJECTED]:
        differences.append(
            f"{RAW} has {counts[RAW]} records, but {counts[VALIDATED]} were validated and {counts[REJECTED]} rejected"
        )
    if counts[ENRICHED] != counts[VALIDATED]:
        differences.append(f"{ENRICHED} has {counts[ENRICHED]} records, {VALIDATED} {counts[VALIDATED]}")
    wrong = noted.wrong | {REJECTED: [*noted.wrong[REJECTED], *_wrong_headers(noted)]}
    differences += (f"{topic}: {len(each)} records differ: {some(each)}" for topic, each in wrong.items() if each)
    differences += (f"{DELAYS}: {what}" for what in _wrong_delays(kept[DELAYS], expected))
    differences += (f"{ALERTS}: {what}" for what in _wrong_alerts(kept[ALERTS], expected))
    differences += (f"{ALERTS}: {what}" for what in _wrong_deliveries(delivered, kept[ALERTS]))
    return {
        "weather": counts[WEATHER],
        "raw": counts[RAW],
        "validated": counts[VALIDATED],
        "rejected": counts[REJECTED],
        "enriched": counts[ENRICHED],
        "carriers": len({record.key for record in kept[DELAYS]}),
        "carrier_updates": len(kept[DELAYS]),
        "alerts": len(kept[ALERTS]),
        "alerts_delivered": len(delivered),
        "lost": sum(len(each.missing) for each in keys.values()),
        "duplicates": sum(each.again.total() for each in keys.values()),
    }, differences


def _named(record: Read, what: str) -> str:
    return f"{record.key} (partition {record.partition}, offset {record.offset}): {what}"


def _difference(found: Row | None, wanted: Row) -> str:
    if found is None:
        return "has no value that can be read"
    name = next(name for name in (*wanted, *found) if found.get(name) != wanted.get(name) or name not in wanted)
    return f"{name} is {found.get(name)!r}, expected {wanted.get(name)!r}"


def _wrong_headers(noted: Noted) -> Iterable[str]:
    """Checks that rejected flights have headers with the reason and the source."""
    for record in noted.kept[REJECTED]:
        source = noted.origin.get(record.key)
        if source is not None:
            place = {"partition": str(source.partition), "offset": str(source.offset)}
            wanted = {"reason": REASON, "topic": RAW, **place}
            told = {name: record.headers.get(name) for name in wanted}
            if told != wanted:
                yield _named(record, f"headers are {told}, expected {wanted}")


def _wrong_delays(delays: Iterable[Read], expected: Expected) -> Iterable[str]:
    """Checks that the flights of each carrier only grow, and that its last record has the right figures."""
    last: dict[str, Row] = {}
    partition: dict[str, int] = {}
    for record in sorted(delays, key=lambda record: (record.partition, record.offset)):
        if record.value is None:
            yield f"partition {record.partition}, offset {record.offset} is not JSON"
            continue
        before = last.get(record.key)
        if partition.setdefault(record.key, record.partition) != record.partition:
            yield f"{record.key} is in two partitions"
        elif before is not None and record.value["flights"] <= before["flights"]:
            yield (
                f"{record.key} went from {before['flights']} to {record.value['flights']} flights at offset "
                f"{record.offset}: an update came twice or out of order"
            )
        last[record.key] = record.value
    for carrier in sorted(expected.carriers.keys() | last.keys()):
        wanted, found = expected.carriers.get(carrier), last.get(carrier)
        if wanted is None or found is None:
            yield f"carrier {carrier} is {'not expected' if found else 'missing'}"
            continue
        for name in ("flights", "cancelled", "mean_dep_delay", "mean_arr_delay"):
            if not _close(found.get(name), getattr(wanted, name)):
                yield f"{carrier} {name} is {found.get(name)}, expected {getattr(wanted, name)}"


def _wrong_alerts(alerts: Iterable[Read], expected: Expected) -> Iterable[str]:
    """Checks that there is exactly one alert for each hour in which a carrier was late."""

    def text(hour: Hour) -> str:
        return f"{hour[0]} at {hour[1]}"

    hours: Keys[Hour] = Keys(expected.alerts)
    for record in alerts:
        value = record.value or {}
        hour = record.key, str(value.get("hour"))
        hours.note(hour)
        wanted = expected.alerts.get(hour)
        if wanted is None:
            continue
        is_right = (value.get("carrier"), value.get("departed")) == (record.key, wanted.dep_count)
        if not is_right or not _close(value.get("mean_dep_delay"), wanted.mean_dep_delay):
            yield (f"{text(hour)} is {value}, expected {wanted.mean_dep_delay} minutes of {wanted.dep_count} flights")
    for one in hours.anomalies("alerts", text_of=text):
        yield one.words


def _wrong_deliveries(delivered: Delivered, alerts: Iterable[Read]) -> Iterable[str]:
    """Checks that each alert was delivered as it is in the topic, with a key that is its place there."""
    wanted = {f"{ALERTS}-{record.partition}-{record.offset}": record for record in alerts}
    keys = Keys(wanted)
    for key in delivered:
        keys.note(key)
    texts = ("were not delivered", "came again", "were delivered, but are not in the topic")
    for one in keys.anomalies("alerts", texts):
        yield one.words
    both = wanted.keys() & delivered.keys()
    if other := sorted(key for key in both if delivered[key].get("value") != wanted[key].value):
        yield f"{len(other)} alerts were delivered with something else in them: {some(other)}"


def _close(found: float | None, wanted: float | None) -> bool:
    if found is None or wanted is None:
        return found is wanted
    return abs(found - wanted) <= TOLERANCE
