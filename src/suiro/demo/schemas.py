"""Avro schemas of a flight and its key: the format in which the pipeline reads rows and writes results.

The names are those of the capture. A new column of the table changes nothing here.
"""

from __future__ import annotations

from typing import Any

from suiro.demo.names import PREFIX

_MOMENT = {"type": "long", "logicalType": "timestamp-micros"}

FLIGHT_KEY: dict[str, Any] = {
    "type": "record",
    "name": "Key",
    "namespace": f"{PREFIX}.public.flights",
    "fields": [
        {"name": "time_hour", "type": _MOMENT},
        {"name": "minute", "type": "int"},
        {"name": "carrier", "type": "string"},
        {"name": "flight", "type": "int"},
        {"name": "origin", "type": "string"},
    ],
}

_COLUMNS: dict[str, Any] = {
    "year": "int",
    "month": "int",
    "day": "int",
    "dep_time": "int",
    "sched_dep_time": "int",
    "dep_delay": "int",
    "arr_time": "int",
    "sched_arr_time": "int",
    "arr_delay": "int",
    "carrier": "string",
    "flight": "int",
    "tailnum": "string",
    "origin": "string",
    "dest": "string",
    "air_time": "int",
    "distance": "int",
    "hour": "int",
    "minute": "int",
    "time_hour": _MOMENT,
}

FLIGHT: dict[str, Any] = {
    "type": "record",
    "name": "Value",
    "namespace": f"{PREFIX}.public.flights",
    "fields": [{"name": name, "type": ["null", kind], "default": None} for name, kind in _COLUMNS.items()],
}
