"""The console beside its bars: a cluster of 10,000 topics and 2,000 groups, a topic of a million records, twenty tabs.

    python benchmarks/console.py [--topics 10000] [--groups 2000] [--records 1000000] [--tabs 20] [--rounds 3]
                                 [--broker node|kafka]

A node (or Apache Kafka, which takes long to create 10,000 topics) and a console (`suiro console`), each in a process of
its own. Times are those of a client on this machine that keeps its connection; of several, the median and the largest.
"First paint" is a real Chromium's, from the request to the moment that the list of topics stands in the page with its
rows; it needs Playwright and Chromium. The search is measured against the raw fetch of the same topic by the same
client on one core; of a node on the same machine, that client maps the files. Memory is the PSS of the console with all
tabs open, half of them live tails. The produce's p99 is that of one producer of 1,000 small batches, acks=all, with and
without the tabs, in turns.
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import httpx
import load
from rich.console import Console as Terminal
from rich.table import Table

from suiro.client import Client, NewTopic
from suiro.kafka import KafkaProcess
from suiro.node import NodeProcess
from suiro.protocol.records import Record, encode_batch

CHROMIUM = "/usr/bin/chromium"
NO_BROWSER = "not measured: Playwright or Chromium is missing"
TOPIC = "million"
BATCH = 1_000
TAIL_PER_S, TAIL_S = 10_000, 5
FRAMES = """seconds => new Promise((done) => {
  let frames = 0;
  const ends = performance.now() + seconds * 1000;
  const count = (now) => { frames += 1; now < ends ? requestAnimationFrame(count) : done(frames); };
  requestAnimationFrame(count);
})"""
VALUE = b'{"carrier": "UA", "flight": %d, "delay": %d, "origin": "EWR", "dest": "IAH"}'


def main() -> None:
    """Prints a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--topics", type=int, default=10_000)
    parser.add_argument("--groups", type=int, default=2_000)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--tabs", type=int, default=20)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--broker", choices=("node", "kafka"), default="node")
    parser.add_argument("--hold-open", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.hold_open:
        hold_open(options.hold_open, options.tabs)
        return
    rows: list[tuple[str, str, str]] = []
    with tempfile.TemporaryDirectory(prefix="suiro-console-bench-") as folder:
        data = Path(folder) / "broker"
        started: NodeProcess | KafkaProcess = (
            KafkaProcess.start(data) if options.broker == "kafka" else NodeProcess.start(data=data)
        )
        with started as broker, Client(broker.bootstrap_servers) as client:
            fill(client, options)
            with console(broker.bootstrap_servers) as (process, url):
                measure(options, client, process, url, rows)
    table = Table("work", "found", "bar")
    for row in rows:
        table.add_row(*row)
    Terminal(width=110).print(table)


def fill(client: Client, options: argparse.Namespace) -> None:
    names = [f"topic-{number:05}" for number in range(options.topics)]
    for first in range(0, len(names), 500):
        client.create_topics([NewTopic(name, 1) for name in names[first : first + 500]])
    client.create_topics([NewTopic(TOPIC, 1), NewTopic("small", 1)])
    for number in range(options.groups):
        client.offset_commit(f"group-{number:04}", {(names[number % len(names)], 0): (0, "")})
    for first in range(0, options.records, BATCH):
        records = [
            Record(
                offset=at,
                timestamp=1_700_000_000_000 + first + at,
                key=b"%d" % at,
                value=VALUE % (at, at % 90),
            )
            for at in range(BATCH)
        ]
        client.produce({(TOPIC, 0): encode_batch(records)})


@contextmanager
def console(bootstrap: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [
        sys.executable,
        "-m",
        "suiro",
        "console",
        "--listen",
        "127.0.0.1:0",
        "--bootstrap-servers",
        bootstrap,
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        assert process.stdout is not None
        yield process, json.loads(process.stdout.readline())["url"]
    finally:
        process.terminate()
        process.wait(20)


def measure(
    options: argparse.Namespace,
    client: Client,
    process: subprocess.Popen[str],
    url: str,
    rows: list[tuple[str, str, str]],
) -> None:
    api = httpx.Client(base_url=f"{url}/api/v1", timeout=120)
    while len(api.get("/topics").json()["topics"]) < options.topics:
        time.sleep(0.5)
    rows.append((f"list of {options.topics:,} topics", times(lambda: api.get("/topics").content, 20), "100 ms"))
    rows.append((f"list of {options.groups:,} groups", times(lambda: api.get("/groups").content, 20), "100 ms"))
    places = iter(range(7, options.records, options.records // 40))

    def jump() -> None:
        page = api.get(f"/topics/{TOPIC}/records", params={"from": next(places), "limit": 100, "partition": 0})
        assert len(page.json()["records"]) == 100

    rows.append((f"any offset of {options.records:,} records", times(jump, 30), "200 ms"))
    moments = iter(range(3, options.records, options.records // 20))

    def moment() -> None:
        at = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(1_700_000_000 + next(moments) // 1_000))
        assert api.get(f"/topics/{TOPIC}/records", params={"from": at, "limit": 100}).json()["records"]

    rows.append(("any time of it", times(moment, 15), "200 ms"))
    search(options, client, process, api, rows)
    painted = first_paint(url, options.rounds)
    rows.append(("first paint of the list of topics", painted, "1 s"))
    rows.append((f"page that follows {TAIL_PER_S:,} records/s", tail(client, url), "30 frames/s"))
    tabs(options, client, process, url, rows)


def times(work: Callable[[], Any], count: int) -> str:
    took = []
    for _ in range(count):
        began = time.perf_counter()
        work()
        took.append((time.perf_counter() - began) * 1_000)
    return f"{statistics.median(took):.0f} ms, largest {max(took):.0f} ms"


def search(
    options: argparse.Namespace,
    client: Client,
    process: subprocess.Popen[str],
    api: httpx.Client,
    rows: list[tuple[str, str, str]],
) -> None:
    raw, scanned, cancelled, gaps, costs = [], [], [], [], []
    for _ in range(options.rounds):
        began, at, used_s = time.perf_counter(), 0, time.process_time()
        while at < options.records:
            fetched = client.fetch({(TOPIC, 0): at}, max_bytes=1 << 20, partition_max_bytes=1 << 20)[TOPIC, 0]
            at += sum(1 for _ in batches(fetched.data)) * BATCH
        raw.append(options.records / (time.perf_counter() - began))
        raw_s, used_s = time.process_time() - used_s, cpu_s(process.pid)
        began = time.perf_counter()
        with api.stream("GET", f"/topics/{TOPIC}/scan", params={"filter": "delay > 100"}) as answer:
            at = began
            for line in answer.iter_lines():
                if line == "event: end":
                    break
                if line == "event: progress":
                    at, before = time.perf_counter(), at
                    gaps.append(at - before)
        scanned.append(options.records / (time.perf_counter() - began))
        costs.append((cpu_s(process.pid) - used_s, raw_s))
        with api.stream("GET", f"/topics/{TOPIC}/scan", params={"filter": "delay > 100"}) as answer:
            next(answer.iter_lines())
            began = time.perf_counter()
        cancelled.append(idle_after(process.pid) - began)
    ratio = statistics.median(scanned) / statistics.median(raw)
    rows.append(
        (
            "search, records/s beside the raw fetch",
            f"{statistics.median(scanned):,.0f} / {statistics.median(raw):,.0f}: {ratio:.2f} x",
            "0.5 x",
        )
    )
    searched_us, fetched_us = (min(one) / options.records * 1e6 for one in zip(*costs, strict=True))
    rows.append(("CPU of a record that is searched", f"{searched_us:.2f} µs, only fetched: {fetched_us:.2f} µs", ""))
    rows.append(("longest without progress of a search", f"{max(gaps) * 1_000:.0f} ms", "500 ms"))
    rows.append(("end of a search that is cancelled", f"{max(cancelled) * 1_000:.0f} ms at most", "1 s"))


def idle_after(pid: int) -> float:
    """When the process began to use less than a fifth of a core."""
    began = time.perf_counter()
    while True:
        before, at = cpu_s(pid), time.perf_counter()
        time.sleep(0.1)
        if cpu_s(pid) - before < 0.2 * (time.perf_counter() - at):
            return at
        if at - began > 60:
            raise TimeoutError("the console goes on with a search that nobody waits for")


def cpu_s(pid: int) -> float:
    """Of all threads, by the scheduler's own account."""
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((one / "schedstat").read_text().split()[0]) for one in tasks) / 1e9


def batches(data: memoryview) -> Iterator[Any]:
    from suiro.protocol.record_batch import iter_headers

    return iter_headers(data)


@contextmanager
def chromium() -> Iterator[Any]:
    """None where it or Playwright is missing."""
    if not Path(CHROMIUM).exists() or find_spec("playwright") is None:
        yield None
        return
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


def first_paint(url: str, rounds: int) -> str:
    took = []
    with chromium() as browser:
        if browser is None:
            return NO_BROWSER
        for _ in range(rounds):
            page = browser.new_context().new_page()
            began = time.perf_counter()
            page.goto(f"{url}/#/topics")
            page.get_by_role("link", name="topic-00000").first.wait_for()
            took.append(time.perf_counter() - began)
            page.context.close()
    return f"{statistics.median(took) * 1_000:.0f} ms, largest {max(took) * 1_000:.0f} ms"


def tail(client: Client, url: str) -> str:
    """Frames a second of a page that follows a topic, and what it says of records that it leaves out."""
    ending = threading.Event()
    made = encode_batch([Record(offset=at, timestamp=0, key=b"k", value=VALUE % (at, at)) for at in range(100)])
    written = 0

    def write() -> None:
        nonlocal written
        began = time.perf_counter()
        while not ending.is_set():
            if written < (time.perf_counter() - began) * TAIL_PER_S:
                client.produce({("small", 0): made})
                written += 100
            else:
                time.sleep(0.002)

    with chromium() as browser:
        if browser is None:
            return NO_BROWSER
        page = browser.new_context().new_page()
        page.goto(f"{url}/#/topics/small/records")
        page.get_by_role("button", name="Live").click()
        writing = threading.Thread(target=write, daemon=True)
        writing.start()
        try:
            page.get_by_text("left out").first.wait_for(timeout=60_000)
            frames = page.evaluate(FRAMES, TAIL_S)
            said = page.locator(".list-foot").inner_text().replace("\n", " ")
        finally:
            ending.set()
            writing.join(30)
    return f"{frames / TAIL_S:.0f} frames/s; {said}"


def tabs(
    options: argparse.Namespace,
    client: Client,
    process: subprocess.Popen[str],
    url: str,
    rows: list[tuple[str, str, str]],
) -> None:
    alone, beside, shares = [], [], []
    for _ in range(options.rounds):
        alone.append(p99(client))
        with open_tabs(url, options.tabs):
            used_s, began = cpu_s(process.pid), time.perf_counter()
            beside.append(p99(client))
            shares.append((cpu_s(process.pid) - used_s) / (time.perf_counter() - began))
            memory = pss(process.pid)
    rows.append((f"memory with {options.tabs} tabs", f"{memory:.0f} MiB", "120 MB"))
    rows.append((f"CPU with {options.tabs} tabs", f"{statistics.median(shares) * 100:.1f} % of a core", ""))
    ratio = statistics.median(beside) / statistics.median(alone)
    rows.append(
        (
            f"produce p99 with {options.tabs} tabs",
            f"{statistics.median(beside):.1f} ms, without {statistics.median(alone):.1f} ms: {ratio:.2f} x",
            "1.1 x",
        )
    )


@contextmanager
def open_tabs(url: str, count: int) -> Iterator[None]:
    """In a process of their own, as browsers are: this one measures."""
    command = [sys.executable, __file__, "--hold-open", url, "--tabs", str(count)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == b"open\n"
        yield
    finally:
        process.kill()
        process.wait()


def hold_open(url: str, count: int) -> None:
    """Reads as many streams, half of them tails, until it is killed."""
    ready = threading.Semaphore(0)

    def read(path: str) -> None:
        with httpx.stream("GET", f"{url}/api/v1{path}", timeout=60) as answer:
            for at, _ in enumerate(answer.iter_raw()):
                if at == 0:
                    ready.release()

    paths = ["/events" if number % 2 else "/topics/small/tail" for number in range(count)]
    for path in paths:
        threading.Thread(target=read, args=(path,), daemon=True).start()
    for _ in paths:
        ready.acquire(timeout=60)
    print("open", flush=True)
    sys.stdin.read()


def p99(client: Client) -> float:
    """Of single small batches, in ms."""
    made = encode_batch([Record(offset=0, timestamp=0, key=b"k", value=b"v" * 100)])
    took = []
    for _ in range(1_000):
        began = time.perf_counter()
        client.produce({("small", 0): made})
        took.append((time.perf_counter() - began) * 1_000)
    return sorted(took)[989]


def pss(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024


if __name__ == "__main__":
    if "--hold-open" in sys.argv:
        main()
    else:
        sys.exit(load.run(main))
