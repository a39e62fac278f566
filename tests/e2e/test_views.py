"""The whole story by the command line, on a real node and Spark: two versions, compared, explained, shifted, rolled
back, forward, retired, while readers read."""

from __future__ import annotations

from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest
from support.views import (
    CARRIERS,
    WITHOUT_GAPS,
    Feed,
    HostProcess,
    Reader,
    expected,
    rows_of,
    write_app,
)
from support.waiting import wait_until

from suiro.client import Client
from suiro.views import Views

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1_800)]


@pytest.mark.soak  # CI's time: four starts of Spark. The demo goes the same way in every CI run
def test_the_whole_story(suiro_node: Any, host: HostProcess, feed: Feed, tmp_path: Path) -> None:
    view = f"delays_{uuid4().hex[:8]}"
    feed.send(400)
    app = write_app(tmp_path, 1, view=view, topic=feed.topic)
    made = host.cli("deploy", app)
    assert (made["position"], made["deployed"]) == ("alone", 1)
    with Views(host.url, caller="me", timeout_s=120) as views:
        assert rows_of(views, view, feed, 1) == expected(feed, 1)
        assert "no second version" in host.cli("shift", view, "10", ok=False)
        with Reader(host.url, view, feed) as reader:
            write_app(tmp_path, 2, view=view, topic=feed.topic)
            made = host.cli("deploy", app)
            assert (made["position"], made["deployed"]) == ("ready", 2)
            assert "at most two versions" in host.cli("deploy", app, ok=False)
            feed.send(100)
            assert rows_of(views, view, feed, 2) == expected(feed, 2)

            compared = host.cli("compare", view)["result"]
            assert (compared["equal"], compared["differing"]) == (1, len(CARRIERS) - 1)
            again = host.cli("compare", view, "--ignore", "flights")["result"]
            assert again["equal"] == len(CARRIERS)
            host.cli("compare", view)
            explained = host.cli("explain", view, "UA")
            assert "UA" in explained["text"]
            assert host.cli("explain", view)["text"]

            found = host.cli("shift", view, "1")
            assert found["routing"]["share"] == 100
            guards = ("--guard", "errors=0.01", "--guard", "difference=0.5")  # 4 of 5 rows differ
            host.cli("shift", view, "--steps", "10,100", "--hold", "100ms", *guards, ok=False)
            found = host.cli("status", view)
            assert (found["position"], found["routing"]["share"]) == ("rolled back", 0)
            assert "80.00% of the rows" in host.cli("history", view)[-1]["detail"]["reason"]
            found = host.cli("shift", view, "--steps", "50,100", "--hold", "100ms", "--guard", "errors=0.01")
            assert (found["position"], found["routing"]["guide"]) == ("shifted", None)
            assert views.get(view, "UA")["version"] == 2
            feed.send(100)
            before = rows_of(views, view, feed, 1)
            back = host.cli("rollback", view)
            assert back["position"] == "rolled back"
            answer = views.get(view, "UA")
            assert (answer["version"], answer["row"]["value"]) == (1, before["UA"])
            host.cli("forward", view)
            assert "are on version 1" not in host.cli("status", view)["position"]
            assert "cannot be undone. There is no terminal to ask on; give --yes" in host.cli(
                "retire", view, "1", ok=False
            )
            done = host.cli("retire", view, "1", "--yes")
            assert (done["position"], done["routing"]["serving"]) == ("alone", 2)
        reader.check(host.cli("history", view))
        assert {one.version for seen in reader.seen.values() for one in seen} == {1, 2}
        with Client(suiro_node.bootstrap_servers) as client:
            own = wait_until(
                lambda: not [name for name in client.metadata() if name.startswith((f"{view}.v1", f"{view}-v1-"))],
                what="version 1's topics to be deleted",
            )
            assert own
        wait_until(lambda: not (tmp_path / "views" / view / "v1").exists(), what="version 1's folder to be deleted")
        assert "was retired, which cannot be undone" in host.cli("rollback", view, ok=False)
        feed.send(100)
        assert rows_of(views, view, feed, 2) == expected(feed, 2)
        commands = [event["command"] for event in host.cli("history", view)]
        assert commands[:4] == ["deploy", "caught up", "deploy", "caught up"]
        done = ["shift", "shift", "trip", "shift", "shift", "shift", "rollback", "forward", "retire serving"]
        assert commands[4:13] == done
        assert expected(feed, 1)[WITHOUT_GAPS] == expected(feed, 2)[WITHOUT_GAPS]
