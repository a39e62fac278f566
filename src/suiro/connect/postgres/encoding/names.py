"""Quotes Postgres names for SQL, and converts them to Avro names.

In a name that Avro does not allow, each invalid character is replaced by `_`, and six hexadecimal digits of a hash of
the original are appended. Names stay distinct, and a name does not change when another column is added or dropped.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_BAD = re.compile(r"[^A-Za-z0-9_]")


def avro_name(name: str) -> str:
    return avro_names([name])[0]


def avro_names(names: Sequence[str]) -> list[str]:
    """Returns distinct names for Avro. Names that Avro allows stay as they are."""
    taken = {name for name in names if _NAME.fullmatch(name)}
    written = []
    for name in names:
        if name in taken:
            written.append(name)
            continue
        digest = hashlib.sha256(name.encode()).hexdigest()
        plain = _BAD.sub("_", name)
        if not _NAME.match(plain):
            plain = "_" + plain
        digits = 6
        while (sanitised := f"{plain}_{digest[:digits]}") in taken:
            digits += 1
        taken.add(sanitised)
        written.append(sanitised)
    return written


def quoted(*names: str) -> str:
    """Quotes an identifier: `quoted("public", "t")` is `"public"."t"`."""
    return ".".join('"' + name.replace('"', '""') + '"' for name in names)
