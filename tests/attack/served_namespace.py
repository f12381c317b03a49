"""A namespace as it is served: the loop in a process of its own, and the stores in another."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple


class ServedNamespace(NamedTuple):
    connection_string: str
    endpoint: str  # of HTTP
    process_id: int


@contextmanager
def served(folder: Path, *options: str) -> Iterator[ServedNamespace]:
    command = [sys.executable, "-m", "twinbus", "serve", "n", "--data", str(folder), "--json", "--no-meter"]
    command += ["--amqp-port", "0", "--http-port", "0", *options]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            ready = json.loads(process.stdout.readline())
            yield ServedNamespace(
                ready["connection_string"], f"http://{ready['host']}:{ready['http_port']}", process.pid
            )
        finally:
            process.terminate()
