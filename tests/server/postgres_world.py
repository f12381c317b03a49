"""A namespace as it is run for real, and everything that can happen to it: two processes, a primary and a synchronous standby.

Each fault is a method that breaks something and mends it again. Which process serves is decided by the processes alone.
"""

import os
import signal
import socket
import time
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from random import Random
from subprocess import CalledProcessError, TimeoutExpired

from tests.postgres_server import PostgresServer
from tests.server.served_on_postgres import Served

KEY = "c2VjcmV0LW9mLXRoZS13b3JsZA=="
QUEUE = "orders"
STANDBY = "standby"
DISK_MB = 400
SETTINGS = {"wal_keep_size": "16MB", "max_wal_size": "64MB", "min_wal_size": "32MB", "wal_sender_timeout": "2s"}


class World:
    def __init__(self, folder: Path, namespace: str, random: Random) -> None:
        self._folder = folder
        self._namespace = namespace
        self._random = random
        self._starts = 0
        self.faults: list[str] = []
        # Either may be the primary.
        self._servers = [self._server(), self._server()]
        self._servers[0].create()
        # First, so that the standby has it too when it is promoted.
        self._servers[0].configure(synchronous_standby_names=STANDBY)
        self._servers[1].follow(self._servers[0], STANDBY)
        self._dsn = self._servers[0].dsn(self._servers[1])
        self._ports = [_free_port(), _free_port()]
        self._processes = [self._start(0), self._start(1)]

    def _server(self) -> PostgresServer:
        return PostgresServer(settings=SETTINGS, disk_mb=DISK_MB)

    def _start(self, process: int) -> Served:
        self._starts += 1
        folder = self._folder / f"{process}-{self._starts}"
        options = ("--queue", f"{QUEUE}:partitioned", "--key", KEY)
        return Served(folder, self._dsn, self._namespace, *options, amqp_port=self._ports[process])

    @property
    def connection_strings(self) -> list[str]:
        rule = f"SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey={KEY};UseDevelopmentEmulator=true;"
        return [f"Endpoint=sb://127.0.0.1:{port};{rule}" for port in self._ports]

    @property
    def story(self) -> str:
        """For whoever has to find out what went wrong."""
        logs = [each.read_text()[-4000:] for each in sorted(self._folder.glob("*/log"))]
        with suppress(CalledProcessError, TimeoutExpired):
            logs.append(
                self._primary.sql("SELECT pid, application_name, state, wait_event, query FROM pg_stat_activity")
            )
            logs.append(self._primary.sql("SELECT application_name, state, sync_state FROM pg_stat_replication"))
        return "\n".join([str(self.faults), *logs])

    @property
    def _primary(self) -> PostgresServer:
        return self._servers[0]

    def break_something(self) -> None:
        faults: list[Callable[[], None]] = [
            self.kill_owner,
            self.freeze_owner,
            self.kill_spare,
            self.freeze_spare,
            self.kill_primary_and_promote,
            self.freeze_primary_and_promote,
            self.restart_primary,
            self.freeze_primary,
            self.stop_wal_receiver,
            self.cut_connections,
        ]
        if self._primary.has_disk:
            faults.append(self.fill_disk)
        fault = self._random.choice(faults)
        self.faults.append(fault.__name__)
        fault()

    def _pause(self, low: float = 0.5, high: float = 8.0) -> None:
        time.sleep(self._random.uniform(low, high))

    def _owner(self) -> int:
        """Who has said that it serves, or the first one."""
        return next((number for number, each in enumerate(self._processes) if each.is_serving), 0)

    def kill_owner(self) -> None:
        self._kill(self._owner())

    def kill_spare(self) -> None:
        self._kill(1 - self._owner())

    def _kill(self, process: int) -> None:
        self._processes[process].kill()
        self._pause(0.0, 3.0)
        self._processes[process] = self._start(process)

    def freeze_owner(self) -> None:
        self._freeze(self._processes[self._owner()])

    def freeze_spare(self) -> None:
        self._freeze(self._processes[1 - self._owner()])

    def _freeze(self, served: Served) -> None:
        served.freeze()
        self._pause()
        served.thaw()

    def kill_primary_and_promote(self) -> None:
        self._primary.kill()
        self._pause(0.0, 2.0)
        self._promote()

    def freeze_primary_and_promote(self) -> None:
        """The old one is ended only when the new one serves for a while, as by a slow fence."""
        self._primary.freeze()
        self._pause(0.0, 3.0)
        self._promote()

    def _promote(self) -> None:
        old, new = self._servers
        new.promote()
        self._servers.reverse()
        self._pause(0.0, 3.0)
        old.thaw_and_kill()
        old.clear()
        old.follow(new, STANDBY)

    def restart_primary(self) -> None:
        self._primary.kill()
        self._pause(0.0, 2.0)
        self._primary.start()

    def freeze_primary(self) -> None:
        self._primary.freeze()
        self._pause()
        self._primary.thaw()

    def stop_wal_receiver(self) -> None:
        stopped = self._servers[1].stop_wal_receiver()
        self._pause(0.5, 4.0)
        for pid in stopped:
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def cut_connections(self) -> None:
        for _ in range(self._random.randrange(1, 5)):
            with suppress(CalledProcessError, TimeoutExpired):
                self._primary.sql(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name LIKE 'twinbus%' "
                    f"AND random() < {self._random.random()}"
                )
            self._pause(0.0, 1.0)

    def fill_disk(self) -> None:
        self._primary.fill_disk()
        self._pause(0.5, 4.0)
        self._primary.free_disk()
        if not self._primary.is_running():
            self._primary.start()

    def close(self) -> None:
        for served in self._processes:
            served.kill()
        for server in self._servers:
            server.remove()


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port
