"""`lineage_report` around an application on Spark: what it read and wrote, and how it ended."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from pathlib import Path
from typing import Any

import pytest
from support.openlineage import events_of, turns
from support.spark_streams import Running, Sent

from suiro.streams import StreamsBuilder, serdes
from suiro.streams_spark import lineage_report

pytestmark = pytest.mark.spark


@pytest.mark.parametrize("fails", [False, True], ids=["completes", "fails"])
def test_a_run_of_an_application(
    run: Callable[..., Running], name: str, suiro_node: Any, tmp_path: Path, fails: bool
) -> None:
    def mapper(value: str) -> str:
        return value if not fails else str(1 // 0)

    builder = StreamsBuilder()
    stream = builder.stream(f"{name}.in", key=serdes.string, value=serdes.string)
    stream.map_values(mapper, value=serdes.string).to(f"{name}.out")
    running = run(builder.build(), name, before=[Sent(f"{name}.in", "a", "v", 5)])
    events = tmp_path / "events"
    expected = pytest.raises(Exception, match="ZeroDivisionError") if fails else nullcontext()
    with expected, lineage_report(running.streams, str(events), name="reported"), running:
        running.finish()
    first, last = turns(events_of(events.read_text()))
    assert (first["eventType"], last["eventType"]) == ("START", "FAIL" if fails else "COMPLETE")
    assert first["job"]["name"] == "reported"
    assert [one["name"] for one in last["inputs"]] == [f"{name}.in"]
    assert [one["name"] for one in last["outputs"]] == [f"{name}.out"]
    assert {one["namespace"] for one in last["inputs"]} == {f"kafka://{suiro_node.bootstrap_servers}"}
    if fails:
        assert "ZeroDivisionError" in last["run"]["facets"]["errorMessage"]["message"]
    assert not list(tmp_path.rglob("*.openlineage"))
