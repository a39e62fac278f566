"""Records of a fetch by file: a region of an open file instead of the bytes, between two processes of one machine.

A fetch (version 12 and up) that ends with this protocol's tagged field, the id of the running kernel, asks for it. A
node on the same machine and under the same kernel may then leave a partition's records empty, and name in a tagged
field of the partition which of its open files has them, and where; the client opens that file through /proc and maps
the region. Everything else of the request holds as ever: who may read, how much, which records are committed. Apache
Kafka passes over the field, as brokers do with what they do not know (KIP-482).

Which file: its device and its inode mean one file as long as somebody has it open, and the node holds what it named
until the connection's next request, at most for some seconds; a client does not send that request before it has opened
the files. A client that was stopped for longer may find another file under the same numbers: so the region's first
batch header, with its offset, its producer and its checksum, is told and compared, too. What cannot be opened (another
user's process, another container) or is not the file that was meant, is asked for again, as bytes.

Named bytes do not change: a segment only grows behind them, is renamed, or unlinked. A disk that fails under a map ends
the reading process with SIGBUS, where a fetch of bytes would have been an error of the node's.
"""

from __future__ import annotations

import mmap
import os
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

from suiro.protocol.record_batch import HEADER_SIZE

TAG = 0x5375
LEAST_BYTES = 64 * 1024
"""Of records that are less, the bytes cost less than opening a file."""
MOST_FILES = 16
"""That one answer names: as many descriptors, and perhaps deleted segments, wait for one client."""

_TAG = b"\xf5\xa6\x01"  # as an unsigned varint
_FIELDS = struct.Struct(f">iiQQQI{HEADER_SIZE}s")
_KERNEL_BYTES = 16
_ASKED = b"\x01" + _TAG + bytes((_KERNEL_BYTES,))
_QUESTION_BYTES = len(_ASKED) + _KERNEL_BYTES
_KERNEL = Path("/proc/sys/kernel/random/boot_id")


class FileUnreachableError(OSError):
    """The file cannot be opened here, or what has its name here is another one."""


class FileRegion(NamedTuple):
    """Where records are: in a file that a process holds open under that descriptor."""

    process: int
    descriptor: int
    device: int
    inode: int
    position: int
    length: int
    head: bytes
    """The first batch's header."""

    @classmethod
    def of(cls, descriptor: int, position: int, length: int) -> FileRegion:
        """Of a file that this process holds open. Bytes of it must not change any more."""
        found = os.fstat(descriptor)
        return cls(
            os.getpid(),
            int(descriptor),
            found.st_dev,
            found.st_ino,
            position,
            length,
            os.pread(descriptor, HEADER_SIZE, position),
        )

    @classmethod
    def from_bytes(cls, data: bytes | memoryview) -> FileRegion:
        """Raises `ValueError`."""
        if len(data) != _FIELDS.size:
            raise ValueError(f"a file region of {len(data)} bytes")
        return cls(*_FIELDS.unpack(data))

    def tagged_fields(self) -> bytes:
        """The whole section of a structure that has no other tagged field."""
        return b"\x01" + _TAG + bytes((_FIELDS.size,)) + _FIELDS.pack(*self)

    def map(self) -> memoryview:
        """The bytes, as they lie in the page cache, for as long as the view or a part of it is held.

        Raises `FileUnreachableError`.
        """
        path = f"/proc/{self.process}/fd/{self.descriptor}"
        try:
            self._check(os.stat(path))  # first: in another container the name may be that of a pipe or a terminal
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FileUnreachableError(str(error)) from error
        try:
            self._check(os.fstat(descriptor))
            first = self.position - self.position % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(descriptor, self.position + self.length - first, offset=first, prot=mmap.PROT_READ)
        except (OSError, ValueError) as error:
            raise FileUnreachableError(str(error)) from error
        finally:
            os.close(descriptor)
        data = memoryview(mapped)[self.position - first :].toreadonly()
        if data[:HEADER_SIZE] != self.head:
            raise FileUnreachableError(f"{path} is not the node's file any more")
        return data

    def _check(self, found: os.stat_result) -> None:
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            raise FileUnreachableError(f"/proc/{self.process}/fd/{self.descriptor} is not the node's file")
        if not self.length or self.position + self.length > found.st_size:
            raise FileUnreachableError(f"the file has {found.st_size} bytes, not {self.length} at {self.position}")


@cache
def _kernel() -> bytes:
    """The running kernel's id; empty where there is none to know."""
    try:
        return UUID(_KERNEL.read_text().strip()).bytes
    except (OSError, ValueError):
        return b""


def question() -> bytes:
    """How a request ends that asks for files: its section of tagged fields."""
    kernel = _kernel()
    return _ASKED + kernel if kernel else b"\0"


def take_question(request: bytes | memoryview) -> tuple[bytes, bool] | None:
    """Of the frame of a request that asks for files: the same without that, and whether it comes from under this
    kernel. None of any other."""
    if request[-_QUESTION_BYTES:-_KERNEL_BYTES] != _ASKED:
        return None
    return bytes(request[:-_QUESTION_BYTES]) + b"\0", request[-_KERNEL_BYTES:] == _kernel()
