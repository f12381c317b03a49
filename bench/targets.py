"""What load is put on: a queue of a namespace that is served for it alone, or one of a peer."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import quote

from bench.processor_time import processor_seconds
from bench.scenarios import Scenario
from twinbus.client.connecting.connection_string import parse_connection_string

LOAD = Path(__file__).with_name("load.py")
PRELOAD_SECONDS = 2.0
LOAD_TIMEOUT_S = 120.0


class Target:
    """A queue to put load on, and the process whose CPU time counts, if it is ours."""

    def __init__(self, name: str, url: str, pid: int | None = None) -> None:
        self.name = name
        self.url = url
        self.pid = pid

    def run(self, scenario: Scenario) -> dict[str, float]:
        """One measurement; the queue is empty before and after it."""
        options = dict(scenario.options)
        if scenario.mode == "drain":
            preload = {"size": options["size"], "window": 1000, "connections": 1, "seconds": PRELOAD_SECONDS}
            options["count"] = self.load("send", preload)["sent"]
        before = self._cpu_s()
        result = self.load(scenario.mode, options)
        messages = result.get("received", result.get("sent", 0))
        if before is not None and messages:
            after = self._cpu_s()
            result["server_us"] = ((after or before) - before) / messages * 1e6
        if scenario.mode == "send":
            self.load("drain", {"count": result["sent"], "credit": 1000})
        return result

    @classmethod
    def of(cls, queue: str, connection_string: str, pid: int | None = None) -> "Target":
        place = parse_connection_string(connection_string)
        url = f"amqp://{quote(place.key_name)}:{quote(place.key, safe='')}@{place.host}:{place.port}"
        return cls(queue, f"{url}/{queue}", pid)

    def load(self, mode: str, options: dict[str, float]) -> dict[str, float]:
        words = [word for name, value in options.items() for word in (f"--{name}", f"{value:g}")]
        for index in range(1, len(words), 2):
            words[index] = str(int(float(words[index]))) if float(words[index]).is_integer() else words[index]
        command = [sys.executable, str(LOAD), mode, self.url, *words]
        done = subprocess.run(command, capture_output=True, text=True, timeout=LOAD_TIMEOUT_S, check=False)
        if done.returncode:
            raise SystemExit(f"{self.name}: {mode} failed: {done.stderr.strip()[-500:]}")
        result: dict[str, float] = json.loads(done.stdout)
        return result

    def _cpu_s(self) -> float | None:
        return None if self.pid is None else processor_seconds(self.pid)


@contextmanager
def own_targets(*extra: str, checkout: Path | None = None) -> Iterator[list[Target]]:
    """The queues `ordinary` and `partitioned` of a namespace served with `extra` options, by the source of another checkout if
    one is given."""
    environment = None if checkout is None else {**os.environ, "PYTHONPATH": str(checkout / "src")}
    with tempfile.TemporaryDirectory() as folder:
        command = [str(Path(sys.executable).with_name("twinbus")), "serve", "bench", "--data", folder, "--json"]
        command += ["--amqp-port", "0", "--http-port", "0", "--queue", "ordinary", "--queue", "partitioned:partitioned"]
        command += extra
        server = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=environment
        )
        try:
            assert server.stdout is not None
            said = json.loads(server.stdout.readline())
            yield [Target.of(name, said["connection_string"], server.pid) for name in ("ordinary", "partitioned")]
        finally:
            server.terminate()
            server.wait(timeout=30)
