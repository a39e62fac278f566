"""An Apache Kafka cluster of one or three brokers on this machine, in a folder that is kept. `suiro kafka up` runs it.

The folder has one subfolder for each broker: `broker-1/server.properties`, `broker-1/data`, `broker-1/server.log`. A
`server.properties` is not changed between starts, except for the addresses between brokers, which are free ports of the
loopback interface at each start: the members of the quorum are named in the settings, not in the data. A handover
prepares a folder of this form, and users can start its brokers with their own scripts.
"""

from __future__ import annotations

import fcntl
import secrets
import socket
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from io import TextIOWrapper
from pathlib import Path

from suiro.client import LATEST, Client
from suiro.clock import SystemClock, sleep_s
from suiro.config import read_properties
from suiro.errors import KafkaError, TransientError, UsageError
from suiro.foundation.files import replace_file
from suiro.foundation.settings import parse_address
from suiro.kafka.process import (
    ATTEMPTS,
    START_TIMEOUT_S,
    KafkaProcess,
    free_ports,
    java_command,
    kafka_classpath,
    random_id,
)
from suiro.kafka.properties import (
    BROKERS_USER,
    LOOPBACK,
    Addresses,
    Listener,
    broker_properties,
    client_listeners,
    cluster_defaults,
    properties_text,
)

DEFAULT_ADDRESS = "127.0.0.1:9092"
SIZES = (1, 3)
HEAP = "512m"
_LOCK = ".lock"
_PROPERTIES = "server.properties"
_READY_POLL_S = 0.1
_EVERYWHERE = ("0.0.0.0", "::")


def write_settings(
    directory: Path, node_ids: Sequence[int], *, home: Path, listen: str | None, settings: Mapping[str, str]
) -> None:
    """Write `server.properties` of brokers that start later, when `directory` has become `home`.

    Raises `ConfigError` for settings with invalid listeners.
    """
    layout = _ClusterLayout(
        directory, {node_id: {} for node_id in node_ids}, listen=listen, settings=settings, home=home
    )
    layout.write(layout.prepare())


def data_directory(cluster: Path, node_id: int) -> Path:
    """Where a broker's partitions are."""
    return broker_directory(cluster, node_id) / "data"


def broker_directory(cluster: Path, node_id: int) -> Path:
    return cluster / f"broker-{node_id}"


@dataclass(slots=True, eq=False)
class KafkaCluster:
    """Made by `start`. A context manager: leaving it stops every broker."""

    directory: Path
    brokers: Mapping[int, KafkaProcess]
    """By node id; one can be killed and started again."""
    _lock: TextIOWrapper

    @classmethod
    def start(
        cls,
        directory: str | Path,
        *,
        brokers: int | None = None,
        listen: str | None = None,
        settings: Mapping[str, str] | None = None,
        heap: str = HEAP,
    ) -> KafkaCluster:
        """Format `directory` unless it is, and return once every broker is there and every partition has a leader.

        `brokers` is 1 or 3 (as many as the folder has; a new one: 1). The first listens on `listen`, the others on
        the ports behind it; port 0: all on free ones. `settings` are Kafka's, on top of what the folder has.
        Raises `KafkaUnavailable`, `UsageError` where a port or the folder is taken, `TransientError` with the end
        of a server's log.
        """
        java, classpath = java_command(), kafka_classpath()
        directory = Path(directory).resolve()
        directory.mkdir(parents=True, exist_ok=True)
        lock = _lock_directory(directory)
        try:
            had = _brokers(directory, brokers)
            layout = _ClusterLayout(directory, had, listen=listen, settings=settings or {})
            for attempts_left in reversed(range(ATTEMPTS)):
                prepared = layout.prepare()
                for node_id, addresses in prepared.items():
                    for listener in addresses.clients:
                        _check_free(listener, node_id)
                layout.write(prepared)
                processes = {
                    node_id: KafkaProcess(
                        broker_directory(directory, node_id),
                        java=java,
                        classpath=classpath,
                        heap=heap,
                        address=(LOOPBACK, addresses.brokers_port),
                    )
                    for node_id, addresses in prepared.items()
                }
                _format(processes)
                try:
                    _launch(processes, layout.password)
                except TransientError:
                    # Between the choice of a free port and Kafka's start somebody else may have taken it.
                    if not (attempts_left and any(process.lost_a_port for process in processes.values())):
                        raise
                else:
                    for node_id, addresses in prepared.items():
                        processes[node_id].bootstrap_servers = addresses.clients[0].address
                    return cls(directory, processes, lock)
            raise AssertionError("the last attempt returns or raises")
        except BaseException:
            lock.close()
            raise

    @property
    def bootstrap_servers(self) -> str:
        """Of every broker's first listener."""
        return ",".join(process.bootstrap_servers for process in self.brokers.values())

    def stop(self) -> None:
        """Stop all brokers cleanly and together: one after another, the last ones would wait for a lost quorum."""
        for process in self.brokers.values():
            process.ask_to_stop()
        for process in self.brokers.values():
            process.stop()
        self._lock.close()

    def __enter__(self) -> KafkaCluster:
        return self

    def __exit__(self, *exc_info: object) -> None:
        self.stop()


class _ClusterLayout:
    """The settings of the brokers by node id, and the clients' listeners, whose ports may still have to be chosen."""

    def __init__(
        self,
        directory: Path,
        had: Mapping[int, Mapping[str, str]],
        *,
        listen: str | None,
        settings: Mapping[str, str],
        home: Path | None = None,
    ) -> None:
        """`had` are the present settings of the brokers, by node id. `home` is where the folder is going to be."""
        self.password = secrets.token_urlsafe(24)
        self._directory, self._home = directory, home or directory
        self._settings: dict[int, Mapping[str, str]] = {}
        self._listeners: dict[int, tuple[tuple[Listener, ...], tuple[Listener, ...]]] = {}
        for number, (node_id, kept) in enumerate(had.items()):
            self._settings[node_id] = {**cluster_defaults(len(had)), **kept, **settings}
            self._listeners[node_id] = _listeners(number, kept, settings, listen)

    def prepare(self) -> dict[int, Addresses]:
        """Choose free ports for listeners with port 0, and for the traffic among the brokers."""
        wanted = sum(2 + sum(not one.port for one in clients) for clients, _ in self._listeners.values())
        free = iter(free_ports(wanted))
        return {
            node_id: Addresses(
                clients=tuple(one if one.port else replace(one, port=next(free)) for one in clients),
                advertised=advertised,
                brokers_port=next(free),
                controller_port=next(free),
            )
            for node_id, (clients, advertised) in self._listeners.items()
        }

    def write(self, prepared: Mapping[int, Addresses]) -> None:
        """Every `server.properties`."""
        controllers = {node_id: addresses.controller_port for node_id, addresses in prepared.items()}
        for node_id, addresses in prepared.items():
            folder = broker_directory(self._directory, node_id)
            folder.mkdir(exist_ok=True)
            properties = broker_properties(
                node_id,
                self._settings[node_id],
                data=str(data_directory(self._home, node_id)),
                addresses=addresses,
                controllers=controllers,
                password=self.password,
            )
            path = folder / _PROPERTIES
            # It may hold passwords, unless somebody has opened it to others.
            mode = path.stat().st_mode & 0o777 if path.exists() else 0o600
            # No other file has what it holds, so it is never half written.
            replace_file(path, properties_text(properties), mode=mode)


def _listeners(
    number: int, had: Mapping[str, str], settings: Mapping[str, str], listen: str | None
) -> tuple[tuple[Listener, ...], tuple[Listener, ...]]:
    """Return the clients' listeners of the broker with this number, counted from 0, and its advertised listeners."""
    if "listeners" in settings:
        clients = tuple(one.shifted(number) for one in client_listeners(settings["listeners"]))
    else:
        clients = client_listeners(had.get("listeners", ""))
    if not clients:
        host, port = parse_address(DEFAULT_ADDRESS)
        clients = (Listener(name="PLAINTEXT", host=host, port=port).shifted(number),)
    if listen is not None:
        host, port = parse_address(listen)
        clients = (Listener(name=clients[0].name, host=host, port=port).shifted(number), *clients[1:])
    name = "advertised.listeners"
    if name in settings:
        told = client_listeners(settings[name], setting=name)
        advertised = tuple(one.shifted(number) for one in told)
    else:
        advertised = client_listeners(had.get(name, ""), setting=name)
        if advertised == client_listeners(had.get("listeners", "")):
            advertised = ()  # it said nothing of its own
    for listener in () if advertised else clients:
        if listener.host in _EVERYWHERE:
            raise UsageError(
                f"{listener}: brokers tell clients an address that leads back to them; name one of this machine's, "
                "or set advertised.listeners"
            )
    return clients, advertised


def _brokers(directory: Path, asked: int | None) -> Mapping[int, Mapping[str, str]]:
    """Return the settings of the brokers by node id. Those of new brokers are empty."""
    kept = _kept(directory)
    if asked is not None and kept and len(kept) != asked:
        raise UsageError(
            f"{directory} has {len(kept)} brokers, not {asked}; leave --brokers out, or give another --data"
        )
    had: Mapping[int, Mapping[str, str]] = kept or {number: {} for number in range(1, (asked or 1) + 1)}
    if len(had) not in SIZES:
        raise UsageError(f"a cluster has 1 or 3 brokers, not {len(had)}")
    return had


def _kept(directory: Path) -> dict[int, dict[str, str]]:
    """Return the settings of the brokers in the folder by node id, or {} for a new folder."""
    found = {}
    for path in directory.glob(f"broker-*/{_PROPERTIES}"):
        properties = read_properties(path)
        found[int(properties.get("node.id", path.parent.name.removeprefix("broker-")))] = properties
    if found and not any(_cluster_ids(directory)):
        return {}  # the first start was cut short before anything was formatted
    return dict(sorted(found.items()))


def _cluster_ids(directory: Path) -> Iterator[str]:
    for meta in directory.glob("broker-*/data/meta.properties"):
        yield read_properties(meta)["cluster.id"]


def _format(processes: Mapping[int, KafkaProcess]) -> None:
    """Format the data folders that are not formatted, with the cluster id of the others."""
    some = next(iter(processes.values()))
    cluster_id = next(_cluster_ids(some.directory.parent), None) or random_id()
    fresh = [one for one in processes.values() if not (one.data_directory / "meta.properties").exists()]
    with ThreadPoolExecutor(max_workers=len(processes)) as pool:
        list(pool.map(lambda process: process.format(cluster_id), fresh))


def _launch(processes: Mapping[int, KafkaProcess], password: str) -> None:
    for process in processes.values():
        process.spawn()
    try:
        for process in processes.values():
            process.wait_for_answer()
        _wait_for_leaders(processes, password)
    except BaseException:
        for process in processes.values():
            process.kill()
        raise


def _wait_for_leaders(processes: Mapping[int, KafkaProcess], password: str) -> None:
    """Until every broker is in the metadata and every partition has a leader that answers."""
    some = next(iter(processes.values()))
    login = {}
    if "authorizer.class.name" in read_properties(some.properties_path):
        login = {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "PLAIN",
            "sasl.username": BROKERS_USER,
            "sasl.password": password,
        }
    clock = SystemClock()
    deadline_ms = clock.monotonic_ms() + START_TIMEOUT_S * 1000
    missing = "brokers"
    with Client(",".join(process.bootstrap_servers for process in processes.values()), settings=login) as client:
        while clock.monotonic_ms() < deadline_ms:
            try:
                partitions = [(name, info) for name, topic in client.metadata().items() for info in topic.partitions]
                missing_brokers = set(processes) - client.brokers()
            except (KafkaError, TransientError) as error:
                missing = str(error)
            else:
                leaderless = sum(info.leader < 0 for _, info in partitions)
                if not leaderless and not missing_brokers:
                    # A broker knows that it leads before it does.
                    left_ms = max(1, deadline_ms - clock.monotonic_ms())
                    latest = {(name, info.partition): LATEST for name, info in partitions}
                    client.list_offsets(latest, timeout_ms=left_ms)
                    return
                missing = f"{leaderless} partitions have no leader, brokers {sorted(missing_brokers)} are not there"
            sleep_s(_READY_POLL_S)
    raise TransientError(f"Kafka was not ready within {START_TIMEOUT_S} s: {missing}; the log is {some.log_path}")


def _lock_directory(directory: Path) -> TextIOWrapper:
    lock = (directory / _LOCK).open("w")
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        lock.close()
        raise UsageError(f"another `suiro kafka up` runs on {directory}; stop it, or give another --data") from None
    return lock


def _check_free(listener: Listener, node_id: int) -> None:
    family = socket.AF_INET6 if ":" in listener.host else socket.AF_INET
    with socket.socket(family) as trial:
        trial.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            trial.bind((listener.host, listener.port))
        except (OSError, OverflowError) as error:
            why = error.strerror if isinstance(error, OSError) else "there is no such port"
            raise UsageError(
                f"broker {node_id} cannot listen on {listener.address}: {why}; give another address with --listen"
            ) from None
