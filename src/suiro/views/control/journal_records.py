"""The state of the topic `_suiro_views`: folds the signed records, in order, and says whether to trust them.

Each record has a signature in its header `suiro.signature` (`journal_keys`), which is valid at its own offset only.
The last record of each transaction is `head`: a digest of the signatures of all current records, one for each key.

- Records that others wrote, changed or copied are refused, and the state stays as it was.
- Missing records do not match the digest of the last head. They may have been deleted, dropped by compaction in favour
  of another writer's record of the same key, or lost when the topic was truncated (`Seen`).

Only `Seen` does I/O.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from suiro.errors import ConfigError
from suiro.foundation.files import replace_file
from suiro.protocol.records import Record
from suiro.views.control.journal_keys import Keys, Signer, key_id_of
from suiro.views.state import Event, View
from suiro.views.store.json_text import encodable

HOST_KEY, HEAD_KEY = "host", "head"
SIGNATURE = "suiro.signature"
"""The header."""
KEPT_EVENTS = 1_000
"""The events of each view's history that are kept."""
MAX_SHADOWED, MAX_SHADOWED_KEY_BYTES = 10_000, 1_024
"""The number and size of unknown keys of others' records that are remembered, to delete these records."""
MAX_FAULTS = 20
"""The number of faults that are counted separately."""
JournalRecord = tuple[str, bytes | None]
"""Key and value. The value None deletes the record."""

SEEN_FILE = ".journal-seen"
"""In the host's folder."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Live:
    """The current record of a key. `signature` is empty for an unsigned record that was adopted."""

    value: bytes
    signature: bytes


@dataclass(slots=True)
class Known:
    """The state of the topic. `live` has its current records, the other fields their contents."""

    live: dict[str, Live] = field(default_factory=dict)
    views: dict[str, View] = field(default_factory=dict)
    history: dict[str, dict[int, dict[str, Any]]] = field(default_factory=dict)
    codes: dict[str, bytes] = field(default_factory=dict)  # by what follows `code/` in their keys
    comparisons: dict[str, dict[str, dict[str, Any]]] = field(default_factory=dict)
    host: dict[str, Any] | None = None
    head: str | None = None
    """The digest in the last head. `head_offset`: the offset of the head."""
    head_offset: int = -1
    head_key: str | None = None
    """The key that signed it."""
    head_of_others: str | None = None
    """The id of the key that signed the last head, if that key is unknown."""
    shadowed: dict[str, None] = field(default_factory=dict)
    """The keys whose last record is not ours, and would survive compaction."""
    unreadable: dict[str, str] = field(default_factory=dict)
    """The views whose record a later release wrote, with the error. What they serve, and which data is theirs, is not
    known."""
    refused: dict[str, int] = field(default_factory=dict)
    """The number of refused records by fault."""
    last_refused: str = ""

    @property
    def refusals(self) -> int:
        return sum(self.refused.values())

    @property
    def is_whole(self) -> bool:
        """Whether no record is missing, once everything was read. A topic without records is whole."""
        if self.head is None:
            return not self.live and not self.refused
        return self.head == _digest({key: record.signature for key, record in self.live.items()})

    def signed_by_others(self, key_id: str) -> list[str]:
        """Returns the keys of records that this key has not signed."""
        return [key for key, record in self.live.items() if key_id_of(record.signature) != key_id]


def apply(
    known: Known,
    signer: Signer | None,
    offset: int,
    key: bytes | None,
    value: bytes | None,
    signature: bytes | None,
) -> bool:
    """Returns whether the host must look at the change. Without a signer, every record is ours."""
    name = _text(key or b"")
    fault = None if signer is None else signer.fault(signature, offset, key or b"", value)
    if fault is not None:
        _refuse(known, fault, f"offset {offset}, key {name[:80]!r}: it {fault}")
        if name == HEAD_KEY and signer is not None:
            key_id = key_id_of(signature or b"")
            known.head_of_others = None if key_id in signer.keys.secrets else key_id
        is_counted = name in known.live or name == HEAD_KEY
        if is_counted or (key and len(key) <= MAX_SHADOWED_KEY_BYTES and len(known.shadowed) < MAX_SHADOWED):
            known.shadowed[name] = None
        return False
    known.shadowed.pop(name, None)
    if name == HEAD_KEY:
        _apply_head(known, offset, value, signature or b"")
        return False
    if value is None:
        known.live.pop(name, None)
    else:
        known.live[name] = Live(value, (signature or b"") if signer is not None else b"")
    return _understand(known, name, value)


def _refuse(known: Known, fault: str, which: str) -> None:
    if fault not in known.refused and len(known.refused) >= MAX_FAULTS:
        fault = "is not ours, for another reason"
    known.refused[fault] = known.refused.get(fault, 0) + 1
    known.last_refused = which


def _apply_head(known: Known, offset: int, value: bytes | None, signature: bytes) -> None:
    try:
        known.head = str(json.loads(value or b"")["digest"])
    except (ValueError, KeyError, TypeError):
        known.head = ""  # which no digest is
    known.head_offset = offset
    known.head_key, known.head_of_others = key_id_of(signature), None


def _understand(known: Known, key: str, value: bytes | None) -> bool:
    kind, _, rest = key.partition("/")
    try:
        match kind:
            case "view":
                known.unreadable.pop(rest, None)
                try:
                    if value is None:
                        known.views.pop(rest, None)
                    else:
                        known.views[rest] = View.from_json(json.loads(value))
                except (ValueError, KeyError, TypeError, RecursionError) as error:
                    known.unreadable[rest] = f"{type(error).__name__}: {error}"
                return True
            case "history":
                name, _, revision = rest.rpartition("/")
                events = known.history.setdefault(name, {})
                events.pop(int(revision), None)
                if value is not None:
                    events[int(revision)] = json.loads(value)
            case "code":
                known.codes.pop(rest, None)
                if value is not None:
                    known.codes[rest] = value
            case "comparison":
                name, _, comparison_id = rest.rpartition("/")
                kept = known.comparisons.setdefault(name, {})
                kept.pop(comparison_id, None)
                if value is not None:
                    kept[comparison_id] = json.loads(value)
            case "host":
                known.host = None if value is None else json.loads(value)
                return True
            case _:
                logger.warning("a record of key %r is of a kind that this release does not know", key)
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        logger.warning("the record of key %r cannot be understood, and is skipped: %r", key, error)
    return False


def sealed(
    known: Known, records: Sequence[JournalRecord], signer: Signer, *, base_offset: int, time_ms: int
) -> list[Record]:
    """Returns the records of a transaction that begins at `base_offset`, signed, and the head for them."""
    signatures = {key: record.signature for key, record in known.live.items()}
    made: list[Record] = []

    def add(key: str, value: bytes | None) -> bytes:
        offset, key_bytes = base_offset + len(made), _bytes(key)
        signature = signer.sign(offset, key_bytes, value)
        headers = ((SIGNATURE, signature),)
        made.append(Record(offset=offset, timestamp=time_ms, key=key_bytes, value=value, headers=headers))
        return signature

    for key, value in records:
        signature = add(key, value)
        if value is None:
            signatures.pop(key, None)
        else:
            signatures[key] = signature
    add(HEAD_KEY, as_bytes({"digest": _digest(signatures)}))
    return made


def mending_records(known: Known) -> list[JournalRecord]:
    """Returns our record again for each key whose last record others wrote; a deletion if we have no record of it."""
    keys = [key for key in known.shadowed if key != HEAD_KEY]  # each transaction writes a head anyway
    return [(key, known.live[key].value if key in known.live else None) for key in keys]


def _digest(signatures: Mapping[str, bytes]) -> str:
    made = hashlib.sha256()
    for key in sorted(signatures):
        part = _bytes(key)
        made.update(b"%d %d " % (len(part), len(signatures[key])) + part + signatures[key])
    return made.hexdigest()


def _text(key: bytes) -> str:
    """Decodes any bytes; `_bytes` gives them back."""
    return key.decode(errors="surrogateescape")


def _bytes(key: str) -> bytes:
    return key.encode(errors="surrogateescape")


def event_records(view: View, event: Event, *, event_id: str, who: str, time_ms: int) -> list[JournalRecord]:
    """Returns the records of a view after a change, and of the event in its history."""
    line = {
        "id": event_id,
        "revision": view.revision,
        "time_ms": time_ms,
        "who": who,
        "command": event.command,
        "version": event.version,
        "before": event.before,
        "after": event.after,
        "detail": event.detail,
    }
    return [
        (f"history/{view.name}/{view.revision}", as_bytes(line)),
        (f"view/{view.name}", as_bytes(view.to_json())),
    ]


def forgetting_records(known: Known, view: View) -> list[JournalRecord]:
    """Returns deletions of records that the changed view does not need: code that none of its versions runs, and the
    oldest events. Every change writes them, so that the topic does not grow with the number of changes."""
    wanted = {code_key(view.name, str(version.spec.get("code"))) for version in view.versions if not version.freed}
    codes = [f"code/{rest}" for rest in known.codes if rest.rpartition("/")[0] == view.name]
    events = known.history.get(view.name, {})
    old = [revision for revision in sorted(events) if revision <= view.revision - KEPT_EVENTS]
    keys = [key for key in codes if key not in wanted] + [f"history/{view.name}/{revision}" for revision in old]
    return [(key, None) for key in keys]


def code_key(view: str, sha256: str) -> str:
    """The key includes the view, so that a view cannot delete the code of another view."""
    return f"code/{view}/{sha256}"


def comparison_record(view: str, comparison_id: str, result: Mapping[str, Any] | None) -> JournalRecord:
    return f"comparison/{view}/{comparison_id}", None if result is None else as_bytes(result)


def as_bytes(value: Mapping[str, Any]) -> bytes:
    return encodable(json.dumps(value, separators=(",", ":"), ensure_ascii=False)).encode()


class JournalNotTrustedError(ConfigError):
    """Records are missing, or none is signed with a key of this host. The topic says which code runs here."""


class Seen:
    """A file with the offset of a topic's last head. A topic that ends before it has lost decisions."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def note(self, topic_id: str, offset: int) -> None:
        with contextlib.suppress(OSError):  # on a full disk, the older offset remains, which is still valid
            replace_file(self._path, json.dumps({"topic_id": topic_id, "head": offset}), sync=False)

    def offset(self, topic_id: str) -> int:
        """Returns -1 if the file has no offset of that topic."""
        try:
            found = json.loads(self._path.read_text(encoding="utf-8"))
            return int(found["head"]) if found["topic_id"] == topic_id else -1
        except FileNotFoundError:
            return -1
        except (OSError, ValueError, KeyError, TypeError) as error:
            logger.warning("%s cannot be read, so it is not known how far the topic was: %r", self._path, error)
            return -1


def doubt_of(topic: str, known: Known, keys: Keys, seen: int) -> str | None:
    """Returns why a topic that was read to its end is not trusted, None if it is. `seen`: the offset of the last head
    that a host of this folder has written."""
    if known.head is None and not known.live and known.refused:
        return _of_others(topic, known, keys)
    if known.head_of_others is not None:
        return (
            f"the last decision in topic {topic} is signed with key {known.head_of_others}, which this host does not "
            f"have ({keys.id} in {keys.where}): another host has gone on with another key. Give this one the same key: "
            "copy the file, or name it with --journal-key. If none of yours has that key, somebody else may write to "
            "the topic: guard it with ACLs, and sign what is yours with `suiro view adopt`, with the same "
            "--bootstrap-servers and --data"
        )
    if known.is_whole and known.head_offset >= seen:
        if not known.unreadable:
            return None
        views = "; ".join(f"{name} ({error})" for name, error in sorted(known.unreadable.items()))
        return (
            f"topic {topic} has decisions that this release of suiro cannot read, about views {views}: a later release "
            "has written them. Use that release, or restore the topic and --data from a backup"
        )
    if known.is_whole:
        what = (
            f"was set back: its last decision is at offset {known.head_offset}, and this host has written one at "
            f"offset {seen}"
        )
    else:
        what = "lacks records: they were deleted, or compaction dropped them for others of the same keys"
    refused = f" ({_faults(known)})" if known.refused else ""
    return (
        f"topic {topic} {what}{refused}. Nothing of it is believed. Guard the topic with ACLs, and restore "
        "it from a backup; or keep what is left and signed: `suiro view adopt`, with the same --bootstrap-servers and "
        "--data, shows it and signs it anew"
    )


def _of_others(topic: str, known: Known, keys: Keys) -> str:
    return (
        f"topic {topic} has {known.refusals} records, none of them signed with a key of this host ({keys.id} in "
        f"{keys.where}): {_faults(known)}. They say which code runs here, so they are not believed. If "
        "another host has written them, give this one the same key: copy the file, or name it with --journal-key. If "
        "that key is lost, or a release without signatures wrote them, or the topic was copied or restored: "
        "`suiro view adopt --unsigned`, with the same --bootstrap-servers and --data, shows what they say and signs it"
    )


def said_of(topic: str, count: int, known: Known) -> str:
    return (
        f"{count} records of topic {topic} were refused, the last at {known.last_refused}. Somebody else may write to "
        "this topic: guard it with ACLs"
    )


def _faults(known: Known) -> str:
    return "; ".join(f"{count} that {_plural(fault)}" for fault, count in known.refused.items())


def _plural(fault: str) -> str:
    for one, many in (("is ", "are "), ("was ", "were "), ("has ", "have "), (": its ", ": their ")):
        fault = many + fault.removeprefix(one) if fault.startswith(one) else fault
    return fault
