"""The application of `benchmarks/processes.py`, as `suiro run` takes it: counts by key, or upper case without state.

The environment says what: WORKLOAD (`count`, `map`), INPUT, OUTPUT, and PHASES, a file to which what suiro tells of its
start (the debug lines of the loggers below `suiro`) is written with the time, in seconds since the epoch.
"""

from __future__ import annotations

import logging
import os

from suiro.streams import StreamsBuilder, record_value, serdes

_log = logging.getLogger("suiro.benchmark")

if "PHASES" in os.environ:
    handler = logging.FileHandler(os.environ["PHASES"])
    handler.setFormatter(logging.Formatter("%(created).6f %(message)s"))
    logging.getLogger("suiro").addHandler(handler)
    logging.getLogger("suiro").setLevel(logging.DEBUG)
    _log.debug("Python: the command and the application are imported")

builder = StreamsBuilder()
stream = builder.stream(os.environ["INPUT"], key=serdes.string, value=serdes.string)
if os.environ["WORKLOAD"] == "count":
    stream.group_by_key().count().to_stream().to(os.environ["OUTPUT"])
else:
    stream.map_values(record_value().upper()).to(os.environ["OUTPUT"])
topology = builder.build()
