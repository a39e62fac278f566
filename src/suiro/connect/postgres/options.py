"""`CaptureOptions`: the settings of a capture, with their defaults and checks."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from math import inf
from pathlib import Path

from suiro.errors import ConfigError
from suiro.foundation.settings import require_least, require_one_of

_SLOT = re.compile(r"[a-z0-9_]{1,63}")
_TOPIC_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,120}")

MIB = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class CaptureOptions:
    """`tables` are `schema.table` or `table` (of schema public); none: all tables of the publication."""

    dsn: str
    bootstrap_servers: str
    registry: str
    topic_prefix: str
    tables: tuple[str, ...] = ()
    slot: str = ""
    publication: str = ""
    partitions: int = -1  # of topics that the capture creates; -1: the broker's default
    decimals: str = "decimal"  # or "string": see the table of types
    as_text: tuple[str, ...] = ()  # columns to capture as Postgres prints them: schema.table.column
    compression: str = "none"
    snapshot: str = "initial"  # "initial": unless there is a position; "new": again; "never"
    state_directory: Path | None = None  # for last values; default: a temporary one
    kafka_settings: dict[str, str] = field(default_factory=dict)

    chunk_rows: int = 10_000  # of a range of a snapshot
    snapshot_readers: int = 2
    heartbeat_s: float = 10.0
    lag_alert_bytes: int = 1024 * MIB
    catch_up_bytes: int = 16 * MIB  # further behind than this, the log is read in blocks by SQL
    memory_bytes: int = 64 * MIB  # of last values, and of one block; what is more goes to disk
    owed_keys_max: int = 50_000  # rows to be read by their keys: updates left values out that nothing had
    transaction_timeout_ms: int = 900_000

    def __post_init__(self) -> None:
        default = "suiro_" + re.sub(r"[^a-z0-9_]", "_", self.topic_prefix.lower())
        for name in ("slot", "publication"):
            if not getattr(self, name):
                object.__setattr__(self, name, default[:63])
        tables = tuple(one if "." in one else f"public.{one}" for one in self.tables)
        object.__setattr__(self, "tables", tuple(dict.fromkeys(tables)))
        if not _SLOT.fullmatch(self.slot):
            raise ConfigError(
                f"slot {self.slot!r}: Postgres takes lower case letters, digits and underscores, at most 63"
            )
        if not _TOPIC_PREFIX.fullmatch(self.topic_prefix):
            raise ConfigError(f"topic prefix {self.topic_prefix!r}: letters, digits, '.', '_' and '-', at most 120")
        if len(self.publication.encode()) > 63:
            raise ConfigError(f"publication {self.publication!r} is longer than Postgres's 63 bytes")
        require_one_of("decimals", self.decimals, ("decimal", "string"))
        require_one_of("snapshot", self.snapshot, ("initial", "new", "never"))
        require_one_of("compression", self.compression, ("none", "gzip", "snappy", "lz4", "zstd"))
        require_least(self, chunk_rows=1, snapshot_readers=1, memory_bytes=MIB, catch_up_bytes=MIB, owed_keys_max=1)
        if not 0 < self.heartbeat_s < inf:
            raise ConfigError(f"heartbeat_s is more than 0, not {self.heartbeat_s}")

    @property
    def name(self) -> str:
        """Of the source: its position lies under it, and its transactional id is made of it."""
        return f"{self.topic_prefix}.{self.slot}"

    def topic(self, schema: str, table: str) -> str:
        """Kafka's topics have fewer characters than Postgres's names: any other becomes an underscore."""
        return re.sub(r"[^A-Za-z0-9._-]", "_", f"{self.topic_prefix}.{schema}.{table}")
