"""One partition on disk in Kafka's own file layout. Enter here.

`DataDirectory` owns a node's folder and opens the `PartitionLog`s in it; `LogConfig` holds a topic's
settings; every refusal is a `LogError` whose `code` is Kafka's. A tour of the modules, from the disk
up: `files`, `index`, `transaction_index`, `segment`, `segments`; rules in `admission`,
`producer_state`, `compaction`, `upkeep`; `recovery`, `lookup` and `partition` join them;
`directory` holds many.
"""

from suiro.log.checkpoints import check_version
from suiro.log.compaction import (
    Cleaned,
    CleanerSettings,
    CleaningFailed,
    CleaningJob,
    Dirtiness,
    GroupCleaned,
    Uncleanable,
    dirtiness,
    receive_message,
    send_message,
)
from suiro.log.config import LogConfig, parse_topic_setting
from suiro.log.copying import LogExtent, copy_partition, finish_folder
from suiro.log.directory import HANDED_OVER, DataDirectory, PartitionPlace, partition_place
from suiro.log.errors import DamagedLogError, InRemoteTierError, LogError, OffsetOutOfRangeError, StorageError
from suiro.log.files import FileHandle, replace_file
from suiro.log.lookup import TimeLookup
from suiro.log.partition import PartitionLog
from suiro.log.results import Appended, FlushJob, ReadResult
from suiro.log.segments import Region

__all__ = [
    "HANDED_OVER",
    "Appended",
    "Cleaned",
    "CleanerSettings",
    "CleaningFailed",
    "CleaningJob",
    "DamagedLogError",
    "DataDirectory",
    "Dirtiness",
    "FileHandle",
    "FlushJob",
    "GroupCleaned",
    "InRemoteTierError",
    "LogConfig",
    "LogError",
    "LogExtent",
    "OffsetOutOfRangeError",
    "PartitionLog",
    "PartitionPlace",
    "ReadResult",
    "Region",
    "StorageError",
    "TimeLookup",
    "Uncleanable",
    "check_version",
    "copy_partition",
    "dirtiness",
    "finish_folder",
    "parse_topic_setting",
    "partition_place",
    "receive_message",
    "replace_file",
    "send_message",
]
