"""A broker without sockets, on a loop that runs only when a test runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import uvloop

from suiro.broker import Broker, BrokerConfig
from suiro.clock import Clock
from suiro.config import NodeSettings


@contextmanager
def started(data: Path, clock: Clock, *, crash: bool = False, **settings: object) -> Iterator[Broker]:
    """`crash`: it ends as by kill -9, with nothing more written."""
    named = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config = BrokerConfig(data=data, port=0, settings=NodeSettings.from_mapping(named))
    loop = uvloop.new_event_loop()
    broker = Broker(config, loop=loop, clock=clock)
    broker.start()
    try:
        yield broker
    finally:
        if crash:
            abandon(broker)
        else:
            broker.stop()
        loop.close()


def abandon(broker: Broker) -> None:
    broker.server.close()
    assert broker._directory is not None
    broker._directory.abandon()
