"""The namespaces that frameworks are tested against, as their processes need to know them."""

import json
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from tests.interop.running_server import RunningServer

STOP_TIMEOUT_S = 60.0
NETWORK = Path(__file__).parent / "python" / "network"
AZURE_NAME = "twinbus-tests.servicebus.windows.net"


def described(server: RunningServer) -> dict[str, str]:
    """A namespace with TLS as the variables that its clients need."""
    namespace = server.server
    return {
        "TWINBUS_PLAIN": server.connection_string,
        "TWINBUS_TLS": namespace.tls_connection_string or "",
        "TWINBUS_AUTHORITY": str(namespace.tls_authority),
        "TWINBUS_AMQP_PORT": str(namespace.amqp_port),
        "TWINBUS_HTTP_PORT": str(namespace.http_port),
        "TWINBUS_TLS_PORT": str(namespace.tls_port),
        "TWINBUS_KEY_NAME": namespace.root_rule.name,
        "TWINBUS_KEY": namespace.root_rule.primary_key,
    }


@contextmanager
def what_up_prints(folder: Path, *options: str) -> Iterator[Mapping[str, Any]]:
    """`twinbus up` in an empty folder, and what it says of its primary: all that somebody has to start with."""
    command = [sys.executable, "-m", "twinbus", "up", "--json", "--amqp-port", "0", "--http-port", "0", "--stores", "2"]
    with subprocess.Popen(
        [*command, "--no-portal", *options], cwd=folder, stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        try:
            yield json.loads(process.stdout.readline())[0]
        finally:
            process.send_signal(signal.SIGINT)
            process.wait(STOP_TIMEOUT_S)


def described_by(printed: Mapping[str, Any]) -> dict[str, str]:
    """The same as `described`, from what `twinbus up` prints."""
    parts = dict(part.split("=", 1) for part in printed["connection_string"].split(";") if part)
    return {
        "TWINBUS_PLAIN": printed["connection_string"],
        "TWINBUS_TLS": printed["tls_connection_string"] or "",
        "TWINBUS_AUTHORITY": printed["tls_authority"],
        "TWINBUS_AMQP_PORT": str(printed["amqp_port"]),
        "TWINBUS_HTTP_PORT": str(printed["http_port"]),
        "TWINBUS_TLS_PORT": str(printed["tls_port"]),
        "TWINBUS_KEY_NAME": parts["SharedAccessKeyName"],
        "TWINBUS_KEY": parts["SharedAccessKey"],
    }


@contextmanager
def azure_named_server(data: Path) -> Iterator[RunningServer]:
    """A namespace whose certificate is also for a name such as namespaces in Azure have."""
    running = RunningServer(data, store_count=4, tls_port=0, tls_names=(AZURE_NAME,))
    try:
        yield running
    finally:
        running.stop()


def network(authority: str) -> dict[str, str]:
    """For Python processes: that name leads to the namespace; see python/network."""
    return {"TWINBUS_NAME": AZURE_NAME, "PYTHONPATH": str(NETWORK), "REQUESTS_CA_BUNDLE": authority}
