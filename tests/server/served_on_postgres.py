"""`twinbus serve` as processes, with their messaging stores in PostgreSQL."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

READY_MAX_S = 60.0


class Served:
    """One process, with a data folder of its own as on another machine. A `--store` among the options comes before `dsn`."""

    def __init__(
        self,
        folder: Path,
        dsn: str,
        namespace: str,
        *options: str,
        in_arguments: bool = True,
        stores: int = 2,
        amqp_port: int = 0,
        prefix: Sequence[str] = (),
        ready_max_s: float = READY_MAX_S,
    ) -> None:
        """`prefix`: comes before the command, and becomes it. `ready_max_s`: for all that is started at the same time."""
        self._ready_max_s = ready_max_s
        self._out, self._log = folder / "out", folder / "log"
        folder.mkdir(parents=True, exist_ok=True)
        command = [
            *prefix,
            sys.executable,
            "-m",
            "twinbus",
            "serve",
            namespace,
            "--data",
            str(folder),
            "--json",
            *options,
        ]
        command += ["--amqp-port", str(amqp_port), "--http-port", "0", "--stores", str(stores), "--no-meter"]
        environment = dict(os.environ)
        if in_arguments:
            command += ["--store", dsn]
        else:
            environment["TWINBUS_STORE"] = dsn
        with self._out.open("w") as out, self._log.open("w") as log:
            self._process = subprocess.Popen(command, stdout=out, stderr=log, env=environment)

    def wait_ready(self) -> dict[str, Any]:
        deadline = time.monotonic() + self._ready_max_s
        while time.monotonic() < deadline:
            text = self._out.read_text()
            if text.strip():
                ready: dict[str, Any] = json.loads(text)
                return ready
            assert self._process.poll() is None, self.log
            time.sleep(0.05)
        raise AssertionError(f"it does not serve: {self.log}")

    def wait_log(self, text: str) -> None:
        deadline = time.monotonic() + READY_MAX_S
        while text not in self.log:
            assert time.monotonic() < deadline, self.log
            assert self._process.poll() is None, self.log
            time.sleep(0.05)

    @property
    def log(self) -> str:
        return self._log.read_text()

    @property
    def arguments(self) -> str:
        """Of the process and of those it started, as anybody can read them."""
        own = Path(f"/proc/{self._process.pid}")
        children = (own / f"task/{self._process.pid}/children").read_text().split()
        return " ".join((Path("/proc") / each / "cmdline").read_text() for each in (str(self._process.pid), *children))

    def wait(self) -> int:
        return self._process.wait(self._ready_max_s)

    @property
    def is_serving(self) -> bool:
        return bool(self._out.read_text().strip()) and self._process.poll() is None

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()

    def freeze(self) -> None:
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._process.send_signal(signal.SIGCONT)

    def stop(self) -> int:
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGCONT)
            self._process.terminate()
        return self.wait()
