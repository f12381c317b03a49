"""`twinbus pipeline syphon` as a process of its own, which can be killed with all that it started."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress

from tests.pairing.namespaces import SERVE
from tests.pipeline.syphon.backlog import Backlog

START_S = 240.0
"""A driver has a JVM to start first, and so may executors have."""


def variables(backlog: Backlog) -> Mapping[str, str]:
    """What every node has to know: the secrets, and a Python that has the SDK."""
    spaces = backlog.spaces
    return {
        "HOME_BUS": spaces.primary.connection_string,
        "SPARE_BUS": spaces.secondary.connection_string,
        "PYSPARK_PYTHON": sys.executable,
    }


@contextmanager
def running(backlog: Backlog, *more: str, master: str = "local[2]") -> Iterator[subprocess.Popen[str]]:
    """In a process group of its own, with the JVM and its Python workers: what is left of it is ended with it."""
    command = [
        *(sys.executable, "-c", SERVE, "pipeline", "syphon", "--once", "--json", "--primary-name", backlog.name),
        *("--primary", "env:HOME_BUS", "--secondary", "env:SPARE_BUS", "--master", master),
        *("--secondary-endpoint", f"http://127.0.0.1:{backlog.spaces.secondary.http_port}", *more),
    ]
    environment = {**os.environ, **variables(backlog)}
    with subprocess.Popen(
        command, env=environment, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as process:
        try:
            yield process
        finally:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
