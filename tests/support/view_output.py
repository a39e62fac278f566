"""What a version's pipeline writes, written by a test: rows and their cut in one transaction, or an aborted one."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Mapping
from typing import Any

from suiro.client import LATEST, Client, NewTopic, TransactionalBatch
from suiro.protocol.records import Record, encode_batch
from suiro.views.cuts import Cut
from suiro.views.definition import VersionSpec

Key = tuple[Any, ...]


def spec_of(view: str, version: int = 1, *, key: tuple[str, ...] = ("carrier", "day"), **changes: Any) -> VersionSpec:
    name = f"{view}.v{version}"
    values: dict[str, Any] = {
        "view": view, "version": version, "key": key, "serve": "sqlite", "search": (), "history_ms": 3_600_000,
        "application_id": f"{view}-v{version}", "output_topic": name, "cuts_topic": f"{name}.cuts", "code": "",
        "entry": "app.py:flights", "fingerprint": "", "inputs": ("in",),
    }  # fmt: skip
    return VersionSpec(**values | changes)


class Output:
    """Makes the version's topics. `cuts` are those that were committed."""

    def __init__(self, client: Client, spec: VersionSpec, *, partitions: int = 2, **settings: str) -> None:
        self._client, self._spec, self._partitions = client, spec, partitions
        policy = {"cleanup.policy": "compact"} | {name.replace("_", "."): item for name, item in settings.items()}
        client.create_topics(
            [NewTopic(spec.output_topic, partitions, 1, policy), NewTopic(spec.cuts_topic, 1, 1, policy)]
        )
        self.cuts: list[Cut] = []

    def write(
        self,
        rows: Mapping[Key, dict[str, Any] | None],
        *,
        commit: bool = True,
        time_ms: int | None = None,
    ) -> Cut:
        """Each row a record `key` -> `value`, both JSON."""
        spec = self._spec
        number = len(self.cuts)
        places = [(spec.output_topic, p) for p in range(self._partitions)]
        by_partition: dict[int, list[Record]] = {}
        for key, value in rows.items():
            data = json.dumps(dict(zip(spec.key, key, strict=True))).encode()
            records = by_partition.setdefault(zlib.crc32(data) % self._partitions, [])
            records.append(_record(len(records), data, value))
        producer = self._client.transaction(spec.application_id)
        producer.init()
        producer.add_partitions([*places, (spec.cuts_topic, 0)])
        producer.produce(
            TransactionalBatch(spec.output_topic, p, encode_batch(found), len(found))
            for p, found in by_partition.items()
        )
        ends = self._client.list_offsets(dict.fromkeys(places, LATEST))
        cut = Cut(
            number=number,
            inputs={("in", 0): 10 * (number + 1)},
            outputs={p: ends[topic, p].offset for topic, p in places},
            time_ms=int(time.time() * 1000) if time_ms is None else time_ms,
        )
        batch = encode_batch([_record(0, cut.key, cut.to_json())])
        producer.produce([TransactionalBatch(spec.cuts_topic, 0, batch, 1)])
        producer.end(commit=commit)
        if commit:
            self.cuts.append(cut)
        return cut


def _record(offset: int, key: bytes, value: dict[str, Any] | None) -> Record:
    data = None if value is None else json.dumps(value).encode()
    return Record(offset=offset, timestamp=1, key=key, value=data, headers=())
