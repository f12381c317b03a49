"""What is in deploy/, as far as it can be tried without a registry: commands, variables, and the queries of the dashboard."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest

from tests.cli.conftest import Commands, serve
from twinbus.rehearsal.namespace_process import VARIABLES

DEPLOY = Path(__file__).parents[2] / "deploy"
METRIC = re.compile(r"twinbus_[a-z_]+")
SERVED_BY = {f"TWINBUS_{name}" for name in VARIABLES} | {"TWINBUS_CONFIG"}


def variables_of(text: str) -> dict[str, str]:
    return dict(re.findall(r"\b(TWINBUS_[A-Z_]+)[=:] ?([^\s\\]+)", text))


def test_the_variables_of_the_image_and_of_the_compose_file_exist() -> None:
    image = variables_of((DEPLOY / "Containerfile").read_text())
    compose = [
        name
        for file in ("compose.yaml", "three-nodes/compose.yaml")
        for name in re.findall(r"\b(TWINBUS_[A-Z_]+): ", (DEPLOY / file).read_text())
    ]
    unit = re.findall(r"(TWINBUS_[A-Z]+)=", (DEPLOY / "twinbus@.service").read_text())
    assert set(image) | set(compose) | set(unit) <= SERVED_BY


def test_the_command_of_the_image_serves_answers_its_health_check_and_ends_in_order(tmp_path: Path) -> None:
    text = (DEPLOY / "Containerfile").read_text()
    environment = variables_of(text) | {
        "TWINBUS_DATA": str(tmp_path),
        # In a container the ports are its own, and it listens on all addresses; here others are free, on loopback.
        "TWINBUS_HOST": "127.0.0.1",
        "TWINBUS_AMQP_PORT": "0",
        "TWINBUS_HTTP_PORT": "0",
        "TWINBUS_TLS_PORT": "0",
        "TWINBUS_STORES": "1",
        "TWINBUS_METER": "false",
        "TWINBUS_KEY": "",
        "PATH": os.environ["PATH"],
    }
    (command,) = re.findall(r"^CMD (\[.*\])$", text, re.MULTILINE)
    assert re.search(r'^ENTRYPOINT \["twinbus"\]$', text, re.MULTILINE)
    with subprocess.Popen(
        [sys.executable, "-m", "twinbus", *json.loads(command), "--json"],
        cwd=tmp_path,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        line = process.stdout.readline()
        try:
            ready = json.loads(line)
            (check,) = re.findall(r'CMD \["python", "-c", "(.*)"\]', text)
            code = check.replace("5300", str(ready["http_port"]))
            subprocess.run([sys.executable, "-c", code], check=True, timeout=30)
            assert ready["tls_connection_string"]
        finally:
            process.send_signal(signal.SIGTERM)
            _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


def test_the_unit_is_one_that_systemd_accepts(tmp_path: Path) -> None:
    try:
        subprocess.run(["systemd-analyze", "--version"], capture_output=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        pytest.skip("systemd-analyze is not installed")
    unit = tmp_path / "twinbus@primary.service"
    unit.write_text((DEPLOY / "twinbus@.service").read_text())
    done = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True, check=False)
    assert str(unit) not in done.stderr + done.stdout, done.stderr


def expressions(dashboard: dict[str, Any]) -> list[str]:
    return [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]


def test_the_dashboard_asks_for_metrics_that_exist_and_leaves_none_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with serve(tmp_path, "primary", "--queue", "orders:partitioned", "--meter") as served:
        commands = Commands(served, capsys)
        commands.text("send", "orders", "hello")
        commands.text("receive", "orders")
        with urlopen(f"http://127.0.0.1:{served.ready['http_port']}/metrics") as answer:
            text = answer.read().decode()
        served.stop()
    samples = set(re.findall(r"^(twinbus_\w+?)(?:\{|\s)", text, re.MULTILINE))
    dashboard = json.loads((DEPLOY / "grafana/twinbus.json").read_text())
    queries = [*expressions(dashboard), *(str(each.get("query")) for each in dashboard["templating"]["list"])]
    asked = {name for query in queries for name in METRIC.findall(query)}
    assert asked <= samples
    # One of each family is on the board, except what another panel shows better.
    families = {name.removesuffix("_bucket").removesuffix("_sum").removesuffix("_count") for name in samples}
    shown = {name.removesuffix("_bucket") for name in asked}
    assert families - shown == {
        "twinbus_connections_opened_total",
        "twinbus_entity_bytes_in_total",
        "twinbus_entity_bytes_out_total",
        "twinbus_entity_requests_total",
        "twinbus_entity_settled_total",
    }
    for query in expressions(dashboard):
        assert query.count("(") == query.count(")")
        assert query.count("{") == query.count("}")
    # One message was acknowledged and one delivered, and both took some time.
    assert re.search(r'^twinbus_send_seconds_count\{namespace="primary"\} 1\.0$', text, re.MULTILINE)
    assert re.search(r'^twinbus_time_in_queue_seconds_count\{namespace="primary"\} 1\.0$', text, re.MULTILINE)
    assert not re.search(r'^twinbus_send_seconds_sum\{namespace="primary"\} 0\.0$', text, re.MULTILINE)


def test_panels_do_not_overlap() -> None:
    panels = json.loads((DEPLOY / "grafana/twinbus.json").read_text())["panels"]
    cells = set[tuple[int, int]]()
    for panel in panels:
        place = panel["gridPos"]
        own = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not own & cells, panel["title"]
        cells |= own
