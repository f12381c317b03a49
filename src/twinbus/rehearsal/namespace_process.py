"""A namespace as a separate process, `twinbus serve --json`: started, killed, started again, stopped.

Its first line of output says that it is ready and at which address; its log goes to a file in its data folder.
"""

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any, NoReturn

from twinbus.errors import ArgumentError, MessagingError

LOG_NAME = "server.log"
STOP_WAIT_S = 40.0
FAULT_PREFIX = "twinbus: "
WRONG_USE = 2  # the exit code of a command line that is wrong


CONFIGURATION = "TWINBUS_CONFIG"
VARIABLES = (
    *(
        "NAMESPACE",
        "DATA",
        "HOST",
        "ADVERTISE",
        "AMQP_PORT",
        "HTTP_PORT",
        "ALSO_LISTEN",
        "STORES",
        "STORE",
        "PROCESSES",
        "NODE",
        "LISTEN_NODES",
        "ADVERTISE_NODES",
        "QUEUE",
        "ENTITIES",
    ),
    *("TLS", "TLS_NAME", "TLS_CERT", "TLS_KEY", "TLS_PORT", "ALLOW_PLAIN", "KEY", "TRUST", "METER", "OPERATIONS"),
    *("EXACT_OPERATIONS", "LOG_LEVEL", "LOG_FORMAT"),
)
"""What `twinbus serve` reads from the environment, after TWINBUS_."""


def _unconfigured(environment: Mapping[str, str]) -> dict[str, str]:
    names = {f"TWINBUS_{name}" for name in VARIABLES}
    kept = {name: value for name, value in environment.items() if name not in names}
    return kept | {CONFIGURATION: os.devnull}


class NamespaceStopped(MessagingError):
    """A namespace that should be serving is not."""


class NamespaceProcess:
    """`options` are those of `twinbus serve`; unless they say otherwise, one process serves. With fixed ports it has the same address after `kill` and `start`.

    `options` and `variables` are all that configures it: neither a file nor what the environment says of namespaces does.
    """

    def __init__(
        self, name: str, data: Path, options: Sequence[str], variables: Mapping[str, str] = MappingProxyType({})
    ) -> None:
        self.name = name
        self.log = data / name / LOG_NAME
        self._command = [
            *(sys.executable, "-m", "twinbus", "serve", name, "--data", str(data), "--json", "--processes", "1"),
            *options,
        ]
        self._environment = {**_unconfigured(os.environ), **variables}
        self._process: subprocess.Popen[str] | None = None

    @property
    def process(self) -> subprocess.Popen[str]:
        assert self._process is not None, "the namespace was never started"
        return self._process

    @property
    def is_running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Returns at once; `wait_ready` waits."""
        assert not self.is_running
        with self._open_log() as log:
            # In a session of its own, so that Ctrl-C reaches only the process that started it, which stops this one in order.
            self._process = subprocess.Popen(
                self._command,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=self._environment,
            )

    def _open_log(self) -> IO[bytes]:
        try:
            self.log.parent.mkdir(parents=True, exist_ok=True)
            return self.log.open("wb" if self._process is None else "ab")
        except OSError as fault:
            raise NamespaceStopped(
                f"The data folder {self.log.parent} cannot be written: {fault.strerror}. Choose another one with --data."
            ) from None

    def wait_ready(self) -> dict[str, Any]:
        """What it prints once it serves: name, pid, ports, connection strings. Raises NamespaceStopped."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            self.fail()
        said: dict[str, Any] = json.loads(line)
        return said

    def fail(self) -> NoReturn:
        """Raise NamespaceStopped with the reason from its log; ArgumentError if its command line was wrong."""
        self.process.wait()
        lines = [line for line in self.log.read_text(errors="replace").splitlines() if line.startswith(FAULT_PREFIX)]
        reason = lines[-1].removeprefix(FAULT_PREFIX) if lines else f"see {self.log}"
        if self.process.returncode == WRONG_USE:
            raise ArgumentError(f"The namespace '{self.name}' cannot be served: {reason}")
        raise NamespaceStopped(f"The namespace '{self.name}' stopped: {reason}")

    def kill(self) -> None:
        """Like a machine that dies: nothing is flushed and no connection is closed."""
        if self.is_running:
            self.process.kill()
        self._end()

    def hang(self) -> None:
        """Connections stay and new ones are taken by the system, but nobody answers."""
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        self.process.send_signal(signal.SIGCONT)

    def ask_to_stop(self) -> None:
        """Ends it in order. Even if it does not get that far, it loses nothing."""
        if self.is_running:
            self.go_on()  # one that hangs would not hear it
            self.process.terminate()

    def wait(self) -> None:
        if self._process is None:
            return
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(STOP_WAIT_S)
        self.kill()

    def _end(self) -> None:
        if self._process is not None:
            self._process.wait()
            if self._process.stdout is not None:
                self._process.stdout.close()
