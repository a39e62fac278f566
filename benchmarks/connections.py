"""How long a produce takes with many connections: 50 that produce at a fixed rate, 200 that do nothing.

    python benchmarks/connections.py [--rounds 3] [--seconds 15] [--rate 10] [--only suiro|kafka]

Each busy connection sends a produce of ten 100-byte records with acks=all every 1/rate seconds, whether or not the
brokers are quick, and a time counts from the moment it was due. Printed are median and p99 over all connections.
"""

from __future__ import annotations

import argparse
import selectors
import sys
import time

import load
from sides import KAFKA, Raw, Side, batch, create_topic, interleaved, ours_and_theirs, produce_frame, quantile
from table import Row, show

PARTITIONS = 10
WARM_UP_S = 5.0


class Busy:
    """One connection that produces."""

    def __init__(self, side: Side, frame: bytes) -> None:
        self.raw = Raw(side.bootstrap_servers)
        self.raw.socket.setblocking(False)
        self.frame = frame
        self.due = 0.0
        self.waits = False
        self._received = bytearray()

    def send(self) -> None:
        self.waits = True
        if self.raw.socket.send(self.frame) < len(self.frame):
            raise RuntimeError("a small request did not fit into the socket")

    def is_answered(self) -> bool:
        """Read what is there; whether the answer is whole."""
        part = self.raw.socket.recv(65536)
        if not part:
            raise ConnectionError("the broker closed the connection")
        self._received += part
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return False
        self._received.clear()
        self.waits = False
        return True


def measure(side: Side, *, idle: int, busy: int, rate: float, seconds: float) -> dict[str, float]:
    admin = Raw(side.bootstrap_servers)
    create_topic(admin, "busy", PARTITIONS, {})
    quiet = [Raw(side.bootstrap_servers) for _ in range(idle)]
    data = batch(10, 100)
    for raw in quiet:
        raw.ask(produce_frame("busy", 0, data))  # a client that was there, and will be again
    connections = [Busy(side, produce_frame("busy", n % PARTITIONS, data)) for n in range(busy)]
    serve(connections, rate=rate, seconds=WARM_UP_S)
    times = serve(connections, rate=rate, seconds=seconds)
    for raw in (admin, *quiet, *(one.raw for one in connections)):
        raw.close()
    return {"median": quantile(times, 0.5) * 1000, "p99": quantile(times, 0.99) * 1000}


def serve(connections: list[Busy], *, rate: float, seconds: float) -> list[float]:
    """The seconds from the moment that each produce was due to its answer."""
    start = time.monotonic()
    selector = selectors.DefaultSelector()
    for number, one in enumerate(connections):
        one.due = start + number / len(connections) / rate
        selector.register(one.raw.socket, selectors.EVENT_READ, one)
    times: list[float] = []
    end = start + seconds
    while (now := time.monotonic()) < end or any(one.waits for one in connections):
        for one in connections:
            if not one.waits and one.due <= now < end:
                one.send()
        next_due = min((one.due for one in connections if not one.waits), default=now + 0.1)
        for key, _ in selector.select(max(0.0, next_due - time.monotonic())):
            one = key.data
            if one.is_answered():
                times.append(time.monotonic() - one.due)
                one.due += 1 / rate
    selector.close()
    return times


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=15, help="after a warm-up of 5")
    parser.add_argument("--idle", type=int, default=200)
    parser.add_argument("--busy", type=int, default=50)
    parser.add_argument("--rate", type=float, default=10, help="requests a second of each busy connection")
    parser.add_argument("--only", choices=("suiro", "kafka"))
    options = parser.parse_args()
    figures = interleaved(
        lambda side: measure(side, idle=options.idle, busy=options.busy, rate=options.rate, seconds=options.seconds),
        rounds=options.rounds,
        settings={},
        only=options.only,
    )
    rows = []
    for work in ("median", "p99"):
        ours, theirs = ours_and_theirs(figures, work)
        rows.append(
            Row(
                work=f"produce, {work}",
                unit="ms",
                peer=KAFKA,
                ours=ours,
                theirs=theirs,
                target=1.0,
                less_is_better=True,
            )
        )
    show(
        f"{options.busy} connections at {options.rate:g} produces/s each, {options.idle} idle, {options.rounds} rounds",
        rows,
    )


if __name__ == "__main__":
    sys.exit(load.run(main))
