"""One Kafka API, one function of its name: allowed? known? valid? do it; answer. `apis` says in which module it is.

A response is made for every version at once: a field that the asked version lacks is left out, and one that is not
given has Kafka's default (`exchange.build`). Nothing here keeps state: that is the log's, the registry's or a
coordinator's.
"""

from __future__ import annotations

from datetime import timedelta

_ONE_MS = timedelta(milliseconds=1)


def whole_ms(duration: timedelta) -> int:
    """kio gives durations as `timedelta`; rules count whole milliseconds."""
    return duration // _ONE_MS
