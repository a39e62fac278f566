"""A partition's segments in a remote store (KIP-405): listing, copying and reading them. Enter here.

`segment_metadata` and `remote_log` are the rules: records of the metadata topic in, readable segments out. `store`
is the edge; `copying` and `reading` use it, in threads. The broker decides what is copied when.
"""

from suiro.log.tier.copying import (
    Proceed,
    Source,
    checked_object,
    download,
    leader_epochs_source,
    remove,
    upload,
)
from suiro.log.tier.reading import RemoteRead, RemoteReader
from suiro.log.tier.remote_log import RemoteLog
from suiro.log.tier.segment_metadata import RemoteSegment, SegmentState, StoredObject, decode, encode
from suiro.log.tier.store import (
    DirectoryStore,
    ObjectMissingError,
    RemoteStore,
    RemoteStoreError,
    open_store,
)

__all__ = [
    "DirectoryStore",
    "ObjectMissingError",
    "Proceed",
    "RemoteLog",
    "RemoteRead",
    "RemoteReader",
    "RemoteSegment",
    "RemoteStore",
    "RemoteStoreError",
    "SegmentState",
    "Source",
    "StoredObject",
    "checked_object",
    "decode",
    "download",
    "encode",
    "leader_epochs_source",
    "open_store",
    "remove",
    "upload",
]
