"""A partition's segments in a remote store (KIP-405): listing, copying and reading them. Enter here.

`segment_metadata` and `remote_log` are the rules: records of the metadata topic in, readable segments out. `store`
and `s3_store` are the edges; `copying` and `reading` use them, in threads. The broker decides what is copied when.
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
from suiro.log.tier.open_store import open_store
from suiro.log.tier.reading import RemoteRead, RemoteReader
from suiro.log.tier.remote_log import RemoteLog
from suiro.log.tier.segment_metadata import RemoteSegment, SegmentState, StoredObject, decode, encode
from suiro.log.tier.store import (
    DirectoryStore,
    ObjectMissingError,
    RemoteStore,
    RemoteStoreError,
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
