"""The namespaces that frameworks are tested against, as their processes need to know them."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.interop.running_server import RunningServer

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
def azure_named_server(data: Path) -> Iterator[RunningServer]:
    """A namespace whose certificate is also for a name such as namespaces in Azure have."""
    running = RunningServer(data, store_count=4, tls_port=0, tls_names=(AZURE_NAME,))
    try:
        yield running
    finally:
        running.stop()


def network(server: RunningServer) -> dict[str, str]:
    """For Python processes: that name leads to the namespace; see python/network."""
    authority = str(server.server.tls_authority)
    return {"TWINBUS_NAME": AZURE_NAME, "PYTHONPATH": str(NETWORK), "REQUESTS_CA_BUNDLE": authority}
