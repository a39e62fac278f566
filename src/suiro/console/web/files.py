"""The files of the page, read once: about a hundred small ones, which do not change while the console runs.

Browsers revalidate them by ETag at each load, so a new version of suiro is used at once.
"""

from __future__ import annotations

import gzip
import hashlib
import mimetypes
from dataclasses import dataclass
from importlib.resources import files
from importlib.resources.abc import Traversable

from starlette.responses import Response

_TYPES = {".js": "text/javascript", ".css": "text/css", ".html": "text/html", ".json": "application/json"}
_PACKED_FROM_BYTES = 512


@dataclass(frozen=True, slots=True)
class _File:
    content: bytes
    packed: bool
    media_type: str
    etag: str


class PageFiles:
    def __init__(self) -> None:
        self._files: dict[str, _File] = {}
        _collect(files("suiro.console.web").joinpath("page"), "/page/", self._files)
        self._files["/"] = self._files["/page/index.html"]

    def answer(self, method: str, path: str, known: str, accepted: str) -> Response:
        """`known` is the ETag of the client (If-None-Match), `accepted` its Accept-Encoding."""
        file = self._files.get(path)
        if file is None:
            return Response("there is no such page; the console is at /\n", status_code=404, media_type="text/plain")
        if method not in ("GET", "HEAD"):
            return Response("GET only\n", status_code=405, media_type="text/plain")
        headers = {"etag": file.etag, "cache-control": "no-cache", "vary": "accept-encoding"}
        if known == file.etag:
            return Response(status_code=304, headers=headers)
        content = file.content
        if file.packed:
            if _takes_gzip(accepted):
                headers["content-encoding"] = "gzip"
            else:  # all browsers accept gzip; curl and scripts may not
                content = gzip.decompress(content)
        return Response(content, headers=headers, media_type=file.media_type)


def _takes_gzip(accepted: str) -> bool:
    for each in accepted.lower().split(","):
        coding, _, weight = each.partition(";")
        if coding.strip() in ("gzip", "x-gzip", "*"):
            return weight.replace(" ", "") not in ("q=0", "q=0.0", "q=0.00", "q=0.000")
    return False


def _collect(folder: Traversable, path: str, found: dict[str, _File]) -> None:
    for each in folder.iterdir():
        if each.is_dir():
            _collect(each, f"{path}{each.name}/", found)
            continue
        content = each.read_bytes()
        suffix = "." + each.name.rpartition(".")[2]
        kind = _TYPES.get(suffix) or mimetypes.guess_type(each.name)[0] or "application/octet-stream"
        packed = len(content) >= _PACKED_FROM_BYTES
        found[path + each.name] = _File(
            content=gzip.compress(content, mtime=0) if packed else content,
            packed=packed,
            media_type=kind,
            etag=f'"{hashlib.sha256(content).hexdigest()[:32]}"',
        )
