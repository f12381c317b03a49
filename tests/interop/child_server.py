"""A namespace server as a process of its own, so that a test can kill it."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import httpx
from azure.servicebus import ServiceBusClient

PROGRAM = """
import sys
from pathlib import Path
from twinbus.errors import EntityAlreadyExists
from twinbus.model.descriptions import QueueDescription
from twinbus.server.serving import serve
from twinbus.server.server_settings import ServerSettings

async def prepare(server):
    for name, is_partitioned in (("ordinary", False), ("partitioned", True)):
        try:
            await server.control.create_queue(QueueDescription(name, enable_partitioning=is_partitioned))
        except EntityAlreadyExists:
            pass

def ready(server):
    print(server.amqp_port, server.http_port, server.connection_string, flush=True)

serve(ServerSettings("crash", Path(sys.argv[1]), amqp_port=int(sys.argv[2]), http_port=0, store_count=4), ready, prepare)
"""


class ChildServer:
    """Has the queues `ordinary` and `partitioned`. Started again on its folder, it keeps its port."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.port = 0
        self.start()

    def start(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, str(self._folder), str(self.port)],
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
            env={**os.environ, "PYTHONPATH": "src"},
        )
        assert self._process.stdout is not None
        line = self._process.stdout.readline().split()
        assert line, "the server did not start"
        self.port, self.http_port, self.connection_string = int(line[0]), int(line[1]), line[2]

    def kill(self) -> None:
        """As a power cut would: nothing is flushed or closed."""
        self._end(signal.SIGKILL)

    def kill_stores(self) -> None:
        """Only the process that keeps the messaging stores; returns when the namespace has another one."""
        pid = self._process.pid
        (stores,) = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
        os.kill(int(stores), signal.SIGKILL)
        health = f"http://127.0.0.1:{self.http_port}/health"
        while httpx.get(health).json()["status"] == "healthy":
            pass
        while httpx.get(health).json()["status"] != "healthy":
            pass

    def stop(self) -> int:
        return self._end(signal.SIGTERM)

    def _end(self, number: signal.Signals) -> int:
        self._process.send_signal(number)
        code = self._process.wait(20)
        assert self._process.stdout is not None
        self._process.stdout.close()
        return code

    def client(self, retry_total: int = 3) -> ServiceBusClient:
        return ServiceBusClient.from_connection_string(
            self.connection_string, retry_total=retry_total, retry_backoff_factor=0.1, retry_mode="fixed"
        )
