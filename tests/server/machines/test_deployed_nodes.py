"""The files in deploy/ for several machines, as far as they can be tried without an engine for containers."""

import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
import yaml  # type: ignore[import-untyped]

from twinbus.cli.app import run

DEPLOY = Path(__file__).parents[3] / "deploy"
NODES = ("a", "b", "c")


def environment_of(node: dict[str, Any], folder: Path, dsn: str) -> dict[str, str]:
    """As in its container, but for addresses: there they are its own, here they are free ones on loopback."""
    given = {name: str(value) for name, value in node["environment"].items()}
    assert given["TWINBUS_LISTEN_NODES"] == "0.0.0.0:5680"
    assert given["TWINBUS_ADVERTISE_NODES"] == f"{given['TWINBUS_NODE']}:5680"
    return given | {
        "TWINBUS_DATA": str(folder),
        "TWINBUS_STORE": dsn,
        "TWINBUS_STORES": "3",
        "TWINBUS_KEY": "",
        "TWINBUS_NAMESPACE": f"composed{os.getpid()}",
        "TWINBUS_LISTEN_NODES": "0.0.0.0:0",
        "TWINBUS_ADVERTISE_NODES": "127.0.0.1:0",
        "TWINBUS_HOST": "127.0.0.1",
        "TWINBUS_ADVERTISE": "localhost",
        "TWINBUS_AMQP_PORT": "0",
        "TWINBUS_HTTP_PORT": "0",
        "PATH": os.environ["PATH"],
    }


@pytest.mark.nightly
@pytest.mark.timeout(300)
def test_the_nodes_of_the_compose_file_serve_one_namespace_and_end_in_order(tmp_path: Path, postgres_dsn: str) -> None:
    services = yaml.safe_load((DEPLOY / "three-nodes/compose.yaml").read_text())["services"]
    processes: list[subprocess.Popen[str]] = []
    try:
        for name in NODES:
            environment = environment_of(services[name], tmp_path / name, postgres_dsn)
            with (tmp_path / f"{name}.log").open("w") as log:
                command = [sys.executable, "-m", "twinbus", "serve", "--json"]
                processes.append(
                    subprocess.Popen(
                        command, env=environment, stdout=subprocess.PIPE, stderr=log, text=True, cwd=tmp_path
                    )
                )
        ready = []
        for process, name in zip(processes, NODES, strict=True):
            assert process.stdout is not None
            line = process.stdout.readline()
            assert line, (tmp_path / f"{name}.log").read_text()
            ready.append(json.loads(line))
        with urlopen(f"http://127.0.0.1:{ready[2]['http_port']}/health", timeout=30) as answer:
            assert sum(json.load(answer)["owners"].values()) == 3
    finally:
        for process in processes:
            process.send_signal(signal.SIGTERM)
        for process in processes:
            process.communicate(timeout=120)
    assert [process.returncode for process in processes] == [0, 0, 0]


def test_the_settings_of_a_node_are_those_of_serve(capsys: pytest.CaptureFixture[str]) -> None:
    file = DEPLOY / "three-nodes/shop.toml"
    assert run(["config", "show", "--config", str(file), "--json"]) == 0
    shown = {row["setting"]: row for row in json.loads(capsys.readouterr().out)}
    assert shown["node"]["value"] == "a"
    assert shown["listen_nodes"]["value"] == "10.0.0.1:5680"
