"""Records of a fetch by file: a region of an open file instead of the bytes, between two processes of one machine.

A fetch (version 12 and up) that ends with this protocol's tagged field, the id of the running kernel, asks for it. A
node under the same kernel may then leave a partition's records empty, and name in a tagged field of the partition which
of its open files has them, and where; the client opens that file through /proc and maps the region. Everything else of
the request holds as ever: who may read, how much, which records are committed. Brokers and clients that do not know the
field pass over it (KIP-482), and so does Apache Kafka.

Two numbers of a file, its device and its inode, mean one file within a kernel, as long as somebody has it open. The
node holds the files that it named until the connection's next request: by then the client has opened them. So it is
the file that was meant, or, where it cannot be opened (another user's process, another container), none; then the
client asks again, for the bytes.
"""

from __future__ import annotations

import mmap
import os
import struct
from functools import cache
from pathlib import Path
from typing import NamedTuple
from uuid import UUID

__all__ = ["LEAST_BYTES", "TAG", "FileRegion", "FileUnreachableError", "question", "without_question"]

TAG = 0x5375
LEAST_BYTES = 64 * 1024
"""Of records that are less, the bytes cost less than opening a file."""

_TAG = b"\xf5\xa6\x01"  # as an unsigned varint
_FIELDS = struct.Struct(">iiQQQI")
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

    @classmethod
    def of(cls, descriptor: int, position: int, length: int) -> FileRegion:
        """Of a file that this process holds open. Bytes of it must not change any more."""
        found = os.fstat(descriptor)
        return cls(os.getpid(), int(descriptor), found.st_dev, found.st_ino, position, length)

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
            self._check(
                os.stat(path)
            )  # first: in another container the name may be that of a pipe or a terminal
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise FileUnreachableError(str(error)) from error
        try:
            self._check(os.fstat(descriptor))
            first = self.position - self.position % mmap.ALLOCATIONGRANULARITY
            mapped = mmap.mmap(
                descriptor,
                self.position + self.length - first,
                flags=mmap.MAP_SHARED | getattr(mmap, "MAP_POPULATE", 0),  # all of it will be read
                prot=mmap.PROT_READ,
                offset=first,
            )
        except (OSError, ValueError) as error:
            raise FileUnreachableError(str(error)) from error
        finally:
            os.close(descriptor)
        return memoryview(mapped)[self.position - first :].toreadonly()

    def _check(self, found: os.stat_result) -> None:
        if (found.st_dev, found.st_ino) != (self.device, self.inode):
            raise FileUnreachableError(f"/proc/{self.process}/fd/{self.descriptor} is not the node's file")
        if not self.length or self.position + self.length > found.st_size:
            raise FileUnreachableError(
                f"the file has {found.st_size} bytes, not {self.length} at {self.position}"
            )


@cache
def question() -> bytes:
    """How a request ends that asks for files: its section of tagged fields. Of no field where there is no /proc."""
    try:
        kernel = UUID(_KERNEL.read_text().strip()).bytes
    except (OSError, ValueError):
        return b"\x00"
    return b"\x01" + _TAG + bytes((len(kernel),)) + kernel


def without_question(request: bytes | memoryview) -> bytes | None:
    """The frame of a request that asks for files, from under this kernel, as it would be if it did not; else None."""
    end = question()
    if len(end) == 1 or request[-len(end) :] != end:
        return None
    return bytes(request[: -len(end)]) + b"\x00"
