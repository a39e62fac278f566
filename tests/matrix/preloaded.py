"""What the server has imported from which drivers are forked: a driver is started a few times in every cell."""

from __future__ import annotations

import pandas  # noqa: F401  # pyarrow looks for it when a task runs

import suiro.client
import suiro.spark.connections  # noqa: F401
from suiro.protocol.messages import API_KEYS, known_versions, request_class, response_class
from tests.matrix import barrier_driver, driver  # noqa: F401

_APIS = (
    "metadata",
    "find_coordinator",
    "init_producer_id",
    "offset_fetch",
    "list_offsets",
    "add_partitions_to_txn",
    "add_offsets_to_txn",
    "produce",
    "txn_offset_commit",
    "end_txn",
)

for _key in map(API_KEYS.__getitem__, _APIS):
    _lowest, _highest = known_versions(_key)
    for _version in range(_lowest, _highest + 1):
        request_class(_key, _version)
        response_class(_key, _version)
