"""The view of the demo without Spark: as it is written, it has the bug; mended by one line, it has not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suiro.demo.change import FIX, copy_view, fix_view
from suiro.demo.dataset import flights
from suiro.demo.expected import expected
from suiro.demo.names import RAW, VIEW
from suiro.demo.pipeline import FLIGHT, FLIGHT_KEY
from suiro.demo.view_check import row_of
from suiro.streams import explain, serdes
from suiro.streams.dsl.registries import with_registry
from suiro.testing import TopologyTestDriver
from suiro.views import topology_of
from suiro.views.pipeline.archive import Code, archive_of

LIMIT = 3_000
URL = "mock://demo"
KEY = [field["name"] for field in FLIGHT_KEY["fields"]]


def _topology(app: Path) -> Any:
    """As a host has it: out of the archive that is deployed."""
    definition = Code(archive_of(app)).load(f"{app.name}:{VIEW}")
    assert (definition.name, definition.key) == (VIEW, ("carrier",))
    return with_registry(topology_of(definition, "rows"), URL)


def _rows(app: Path, loaded: list[dict[str, Any]]) -> dict[str, Any]:
    with TopologyTestDriver(_topology(app)) as driver:
        topic = driver.create_input_topic(
            RAW,
            key=serdes.avro.with_(schema=FLIGHT_KEY, registry=URL),
            value=serdes.avro.with_(schema=FLIGHT, registry=URL),
        )
        for row in loaded:
            topic.pipe_input({name: row[name] for name in KEY}, row)
        topic.pipe_input({name: loaded[0][name] for name in KEY}, None)  # a deleted row leaves no trace
        out = driver.create_output_topic("rows", key=serdes.string, value=serdes.json)
        found: dict[str, Any] = out.read_key_values_to_map()
        return found


def test_each_version_gives_what_the_data_says(tmp_path: Path) -> None:
    loaded = flights(limit=LIMIT).to_pylist()
    departures = expected(limit=LIMIT).departures
    app = copy_view(tmp_path)
    assert _rows(app, loaded) == {carrier: row_of(1, each) for carrier, each in departures.items()}
    changed = fix_view(app)
    assert [line for line in changed if line.startswith("+")] == [f"+{FIX.rstrip()}"]
    assert len([line for line in changed if line.startswith("-")]) == 1
    assert _rows(app, loaded) == {carrier: row_of(2, each) for carrier, each in departures.items()}


def test_flights_are_read_on_columns(tmp_path: Path) -> None:
    assert explain(_topology(copy_view(tmp_path))).startswith("sub-topology 0: on columns")
