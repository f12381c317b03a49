"""Which namespaces run, and where: each has a small file in its data folder while its process serves."""

import json
import os
import re
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from twinbus.cli.failures import CommandFailed
from twinbus.client import namespace_http
from twinbus.client.connecting.connection_string import ConnectionString
from twinbus.errors import ArgumentError
from twinbus.server.data.folder_lock import holder_of

FILE_NAME = "running.json"
NAME = re.compile(r"[A-Za-z][A-Za-z0-9-]{0,49}")


@dataclass(frozen=True, slots=True)
class RunningNamespace:
    name: str
    pid: int
    host: str
    amqp_port: int
    http_port: int
    connection_string: str
    tls_port: int | None = None
    tls_connection_string: str | None = None
    tls_authority: str | None = None  # the file that clients have to trust, if twinbus generated the certificate
    also_listens: Sequence[str] = ()  # PORT/plain or PORT/tls

    @property
    def endpoint(self) -> str:
        """For clients on this machine."""
        return f"http://{self._host}:{self.http_port}"

    @property
    def local_connection_string(self) -> str:
        """For clients on this machine, where the name that others use may not be known."""
        _, _, rest = self.connection_string.partition(";")
        return f"Endpoint=sb://{self._host}:{self.amqp_port};{rest}"

    @property
    def _host(self) -> str:
        return f"[{self.host}]" if ":" in self.host else self.host

    def serves(self, target: ConnectionString) -> bool:
        """Whether a connection string, however it names the host, means a port of this namespace that takes TLS."""
        extra = (int(each.partition("/")[0]) for each in self.also_listens)
        return target.uses_tls and target.port in (self.amqp_port, self.tls_port, *extra)

    def ask(self, method: str, path: str, body: object = None, *, timeout_s: float = namespace_http.TIMEOUT_S) -> Any:
        """The JSON that its HTTP side answers. Raises NamespaceRefused if it refuses or is not there."""
        return namespace_http.ask(self.connection_string, self.endpoint, method, path, body, timeout_s=timeout_s)

    @property
    def ways_in(self) -> list[str]:
        """The connection strings, and the file to trust for the one with TLS."""
        lines = [self.connection_string]
        if self.tls_connection_string is not None:
            lines.append(self.tls_connection_string)
        if self.tls_authority is not None and self.tls_connection_string is not None:
            lines.append(f"TLS clients must trust {self.tls_authority}")
        if self.also_listens:
            lines.append(f"Also listening on {', '.join(self.also_listens)}")
        if "[" in self.connection_string:
            lines.append(
                "Most SDKs cannot parse an IPv6 address there: map a name to it and start with --advertise NAME"
            )
        return lines


def namespace_folder(data: Path, name: str) -> Path:
    """Raises ArgumentError for what is not a name, such as a path that leads out of the data folder."""
    if not NAME.fullmatch(name):
        raise ArgumentError(
            f"'{name}' is not a valid name for a namespace. Use up to 50 letters, digits and '-', starting with a letter."
        )
    return data / name


def announce(folder: Path, running: RunningNamespace) -> None:
    """Write the file, readable only by its owner: it holds a key."""
    draft = folder / (FILE_NAME + ".new")
    draft.unlink(missing_ok=True)
    with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
        json.dump(asdict(running), file)
    draft.rename(folder / FILE_NAME)


def withdraw(folder: Path) -> None:
    """Remove the file if this process wrote it."""
    try:
        running = _read_announced(folder)
    except CommandFailed:
        return  # somebody else wrote into it
    if running is not None and running.pid == os.getpid():
        (folder / FILE_NAME).unlink()


def read_running(folder: Path) -> RunningNamespace | None:
    """None if nothing runs. A file whose process no longer holds the folder is ignored: the process was killed."""
    announced = _read_announced(folder)
    if announced is None:
        return None
    try:
        return announced if holder_of(folder) == announced.pid else None
    except PermissionError:
        raise _of_another_user(folder) from None


def _read_announced(folder: Path) -> RunningNamespace | None:
    try:
        return RunningNamespace(**json.loads((folder / FILE_NAME).read_text()))
    except (FileNotFoundError, NotADirectoryError):
        return None
    except PermissionError:
        raise _of_another_user(folder) from None
    except (ValueError, TypeError):
        raise CommandFailed(f"{folder / FILE_NAME} is damaged. Restart the namespace, which writes it again.") from None


def _of_another_user(folder: Path) -> CommandFailed:
    return CommandFailed(
        f"The namespace in {folder} belongs to another user. Give its connection string with --connection-string."
    )


def find_running(data: Path, name: str) -> RunningNamespace:
    running = read_running(namespace_folder(data, name))
    if running is None:
        others = ", ".join(each.name for each in all_running(data))
        hint = f"Running there: {others}." if others else "Start one with 'twinbus up' or 'twinbus serve'."
        raise CommandFailed(f"No namespace '{name}' runs with its data in {data}. {hint}")
    return running


def all_running(data: Path) -> list[RunningNamespace]:
    """Those that this user can read. A damaged file of one namespace says nothing about the others."""
    found: list[RunningNamespace] = []
    for folder in _announced_folders(data):
        with suppress(CommandFailed):
            running = read_running(folder)
            found += [] if running is None else [running]
    return found


def unreadable(data: Path) -> list[Path]:
    """Files that announce a namespace and are damaged."""
    found: list[Path] = []
    for folder in _announced_folders(data):
        try:
            read_running(folder)
        except CommandFailed:
            found.append(folder / FILE_NAME)
    return found


def _announced_folders(data: Path) -> list[Path]:
    found = data.iterdir() if data.is_dir() else ()
    return sorted(path for path in found if os.access(path / FILE_NAME, os.R_OK))


def authority_of(data: Path, target: ConnectionString) -> Path | None:
    """The authority to trust if a connection string is for a namespace on this machine that made its own certificate."""
    found = (each.tls_authority for each in all_running(data) if each.serves(target))
    return next((Path(file) for file in found if file is not None), None)


def find_known(data: Path, name: str) -> RunningNamespace:
    """Where it runs, or ran until it was killed: for commands that wait for it to come back."""
    announced = _read_announced(namespace_folder(data, name))
    if announced is None:
        raise CommandFailed(
            f"No namespace '{name}' runs with its data in {data}, and none was killed there. "
            "Give a connection string if it was stopped or is elsewhere."
        )
    return announced
