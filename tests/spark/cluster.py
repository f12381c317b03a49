"""Spark as others run it, on this machine: a standalone cluster, a Connect server, and a Python without twinbus.

Every process is one that was started here, and is ended by its id.
"""

import contextlib
import os
import re
import socket
import subprocess
import sys
import time
import venv
from collections.abc import Mapping
from pathlib import Path
from typing import Self

import pyspark

from twinbus.pipeline.java import choose_java

SPARK_HOME = Path(pyspark.__file__).parent
PATIENCE_S = 60.0
QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


class SparkProcesses:
    """Processes of Spark with their logs in a folder; they have ended when the block has.

    `environment` is theirs, and so that of executors and Python workers.
    """

    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._folder = folder
        self._environment = {
            **os.environ,
            # What a session of this process has put there is not on the nodes of a cluster: our packages' path, and
            # settings by which they would not log what is waited for.
            "PYTHONPATH": "",
            "SPARK_CONF_DIR": str(SPARK_HOME / "conf"),
            "SPARK_HOME": str(SPARK_HOME),
            "JAVA_HOME": str(choose_java(os.environ).home),
            "SPARK_DAEMON_MEMORY": "1g",
            "SPARK_DAEMON_JAVA_OPTS": QUICK,
            "SPARK_LOCAL_IP": "127.0.0.1",
            **environment,
        }
        self._processes: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        for process in reversed(self._processes):
            process.terminate()
        for process in self._processes:
            try:
                process.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def start(self, name: str, class_name: str, *arguments: str) -> Path:
        """The log of the process."""
        log = self._folder / f"{name}.log"
        command = [str(SPARK_HOME / "bin" / "spark-class"), class_name, *arguments]
        with log.open("wb") as file:
            process = subprocess.Popen(command, env=self._environment, stdout=file, stderr=subprocess.STDOUT)
        self._processes.append(process)
        return log

    def wait_for(self, log: Path, pattern: str) -> re.Match[str]:
        """What a process is to say."""
        deadline = time.monotonic() + PATIENCE_S
        while (found := re.search(pattern, log.read_text())) is None:
            assert time.monotonic() < deadline, log.read_text()[-2000:]
            assert all(process.poll() is None for process in self._processes), log.read_text()[-2000:]
            time.sleep(0.05)
        return found


class Cluster(SparkProcesses):
    """One master and workers with one core each. `url` is the master's."""

    url = ""

    def start_all(self, worker_count: int) -> Self:
        for log in self.begin(worker_count):
            self.wait_for(log, "Successfully registered with master")
        return self

    def begin(self, worker_count: int) -> list[Path]:
        """The master runs; of the workers, which are on their way, there are the logs."""
        ports = ("--host", "127.0.0.1", "--port", "0", "--webui-port", "0")
        master = self.start("master", "org.apache.spark.deploy.master.Master", *ports)
        self.url = self.wait_for(master, r"Starting Spark master at (spark://\S+)")[1]
        limits = ("--cores", "1", "--memory", "1g")
        logs = []
        for number in range(worker_count):
            place = ("--work-dir", str(self._folder / f"work-{number}"))
            worker = "org.apache.spark.deploy.worker.Worker"
            logs.append(self.start(f"worker-{number}", worker, *ports, *limits, *place, self.url))
        return logs

    def executors(self) -> list[int]:
        """Their process ids: an executor is a child of its worker."""
        mine = {process.pid for process in self._processes}
        found = []
        for entry in filter(str.isdigit, os.listdir("/proc")):
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):
                parent = int(Path(f"/proc/{entry}/stat").read_text().rpartition(")")[2].split()[1])
                if parent in mine:
                    found.append(int(entry))
        return found

    def workers_that_ran_executors(self) -> int:
        return len({log.parents[2] for log in self._folder.glob("work-*/app-*/*/stderr")})


class ConnectServer(SparkProcesses):
    """`url` is for clients."""

    url = ""

    def start_all(self) -> Self:
        port = free_port()
        settings = {
            "spark.connect.grpc.binding.address": "127.0.0.1",
            "spark.connect.grpc.binding.port": str(port),
            "spark.driver.extraJavaOptions": QUICK,
            "spark.ui.enabled": "false",
            "spark.sql.warehouse.dir": str(self._folder / "warehouse"),
        }
        options = [word for name, value in settings.items() for word in ("--conf", f"{name}={value}")]
        log = self.start(
            "connect",
            "org.apache.spark.deploy.SparkSubmit",
            *("--class", "org.apache.spark.sql.connect.service.SparkConnectServer", "--master", "local[2]"),
            *options,
            "spark-internal",
        )
        self.wait_for(log, "Spark Connect server started")
        self.url = f"sc://127.0.0.1:{port}"
        return self


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def python_without_twinbus(folder: Path) -> Path:
    """A Python with all packages of this one but ours: those that are not copied are found by their path alone."""
    venv.create(folder, with_pip=False, symlinks=True)
    [packages] = folder.glob("lib/python*/site-packages")
    (packages / "others.pth").write_text(str(Path(sys.prefix) / packages.relative_to(folder)) + "\n")
    return folder / "bin" / "python"
