"""For processes that run a framework: what a hosts file, a port mapping and a trusted certificate do on a developer's machine.

Frameworks that take no port and no certificate dial NAME.servicebus.windows.net at 5671 and 443. The name then leads to the port of
a test's namespace, and its certificate is in the bundle that Python's libraries trust. Nothing else is changed.
"""

import os
import socket
from typing import Any

import certifi

NAME = os.environ["TWINBUS_NAME"]
PORT = int(os.environ["TWINBUS_TLS_PORT"])

_resolve = socket.getaddrinfo


def getaddrinfo(host: Any, port: Any, *arguments: Any, **options: Any) -> Any:
    if host == NAME:
        return _resolve("127.0.0.1", PORT, *arguments, **options)
    return _resolve(host, port, *arguments, **options)


socket.getaddrinfo = getaddrinfo
certifi.where = lambda: os.environ["TWINBUS_AUTHORITY"]
