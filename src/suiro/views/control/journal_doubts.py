"""Checks that the topic `_suiro_views` holds what hosts with these keys wrote, and says what to do if not."""

from __future__ import annotations

import contextlib
import json
import logging
from pathlib import Path

from suiro.errors import ConfigError
from suiro.foundation.files import replace_file
from suiro.views.control.journal_keys import Keys
from suiro.views.control.journal_records import Known

SEEN_FILE = ".journal-seen"
"""In the host's folder."""

logger = logging.getLogger(__name__)


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
        return _of_another_release(topic, known) if known.unreadable else None
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


def _of_another_release(topic: str, known: Known) -> str:
    views = "; ".join(f"{name} ({error})" for name, error in sorted(known.unreadable.items()))
    return (
        f"topic {topic} has decisions that this release of suiro cannot read, about views {views}: a later release has "
        "written them. Use that release, or restore the topic and --data from a backup"
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
