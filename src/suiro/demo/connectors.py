"""The configuration file of `suiro connect run`: weather from files, alerts to a webhook."""

from __future__ import annotations

from pathlib import Path

from suiro.demo.names import ALERTS, WEATHER, WEATHER_REJECTED

__all__ = ["write_connectors"]

_FILE = """\
[connect]
bootstrap_servers = "{bootstrap_servers}"
listen = "127.0.0.1:0"

[source.weather-{run}]
kind = "files"
folder = "{folder}"
pattern = "*.csv"
topic = "{weather}"
key = ["origin", "time_hour"]
null = ["", "NA"]
dead_letter_topic = "{rejected}"

[source.weather-{run}.types]
temp = "double"
wind_speed = "double"
precip = "double"
visib = "double"

[sink.alerts-{run}]
kind = "webhook"
url = "{url}"
topics = ["{alerts}"]
"""


def write_connectors(path: Path, *, run: str, bootstrap_servers: str, folder: str, url: str) -> None:
    """`run` is in their names: on a cluster that saw the demo before, they begin anew."""
    text = _FILE.format(
        run=run,
        bootstrap_servers=bootstrap_servers,
        folder=folder,
        url=url,
        weather=WEATHER,
        rejected=WEATHER_REJECTED,
        alerts=ALERTS,
    )
    path.write_text(text, encoding="utf-8")
