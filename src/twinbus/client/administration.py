"""The stock administration client for any namespace: a connection string in, a client out.

The official client always uses `https://`, although the data clients honour `UseDevelopmentEmulator=true`, and trusts no
authority that only we know of. Its transport can be replaced: ours sends the same requests to the HTTP endpoint of the
namespace, and trusts what `trust` says. Where neither is needed the client is the stock one, unchanged, and works with Azure.
`async_administration` is the same for asyncio.
"""

import ssl
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

from azure.core.pipeline.transport import RequestsTransport
from azure.servicebus.management import ServiceBusAdministrationClient
from requests.adapters import HTTPAdapter
from urllib3 import Retry

from twinbus.client.connecting.connection_string import ConnectionString, parse_connection_string
from twinbus.client.connecting.trust import has_named, tls_context

CONNECT_RETRIES = 3
"""As in the stock client; with the pauses between them they take 5 seconds."""


def administration_endpoint(parsed: ConnectionString) -> str:
    """The HTTP address of a namespace without TLS: the port of AMQP takes HTTP too."""
    host = f"[{parsed.host}]" if ":" in parsed.host else parsed.host
    return f"http://{host}:{parsed.http_port}"


def administration_client(
    connection_string: str,
    endpoint: str | None = None,
    *,
    connect_retries: int = CONNECT_RETRIES,
    authorities: Sequence[Path] = (),
    answer_wait_s: float | None = None,
) -> ServiceBusAdministrationClient:
    """`endpoint`, such as http://localhost:5300, is needed where HTTP is not at the port of the connection string.

    `answer_wait_s` limits how long a request waits for its answer, and it is not sent again then. The stock client waits for five
    minutes, and sends it three times more.

    `authorities` are PEM files to trust over TLS beside those of the system and of the environment.
    """
    parsed = parse_connection_string(connection_string)
    place = endpoint if endpoint is not None or parsed.uses_tls else administration_endpoint(parsed)
    limits = {} if answer_wait_s is None else {"read_timeout": answer_wait_s}
    options: dict[str, Any] = dict(limits)
    if answer_wait_s is not None:
        options["retry_read"] = 0
    if place is not None or has_named(authorities):
        trusted = tls_context(authorities) if has_named(authorities) else None
        options["transport"] = _Transport(place, trusted, **limits)
    return ServiceBusAdministrationClient.from_connection_string(
        connection_string, retry_connect=connect_retries, **options
    )


def moved(url: str, endpoint: str) -> str:
    """The same path and query at another scheme and authority."""
    there, asked = urlsplit(endpoint), urlsplit(url)
    return urlunsplit((there.scheme, there.netloc, asked.path, asked.query, asked.fragment))


class _Transport(RequestsTransport):  # type: ignore[misc]
    """Sends to `endpoint`, if there is one, and trusts as `context` does, if there is one."""

    def __init__(self, endpoint: str | None, context: ssl.SSLContext | None, **limits: float) -> None:
        super().__init__(**limits)
        self._endpoint = endpoint
        self._context = context

    def open(self) -> None:
        is_new = self.session is None
        super().open()
        if is_new and self._context is not None:
            self.session.mount("https://", _TrustingAdapter(self._context))

    def send(self, request: Any, **kwargs: Any) -> Any:
        if self._endpoint is not None:
            request.url = moved(request.url, self._endpoint)
        return super().send(request, **kwargs)


class _TrustingAdapter(HTTPAdapter):
    def __init__(self, context: ssl.SSLContext) -> None:
        self._context = context
        # The stock client retries by itself.
        super().__init__(max_retries=Retry(total=False, redirect=False, raise_on_status=False))

    def init_poolmanager(self, *args: Any, **kwargs: Any) -> None:
        super().init_poolmanager(*args, ssl_context=self._context, **kwargs)
