"""The portal's socket: settings in, a socket that listens out. Light, so that others can open it before the portal starts."""

import socket

from twinbus.errors import ArgumentError
from twinbus.portal.settings import PortalSettings

BACKLOG = 128
SHOWN_HOSTS = {"0.0.0.0": "localhost", "::": "localhost", "127.0.0.1": "localhost"}


def listen(settings: PortalSettings) -> socket.socket:
    """Its address can be shown, and browsers connect, before the pages are there. Raises ArgumentError."""
    family = socket.AF_INET6 if ":" in settings.host else socket.AF_INET
    listening = socket.socket(family, socket.SOCK_STREAM)
    listening.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        listening.bind((settings.host, settings.port))
        listening.listen(BACKLOG)
    except OSError as fault:
        listening.close()
        raise ArgumentError(
            f"The portal cannot listen on {settings.host}:{settings.port}: {fault.strerror}. Choose another port with --port."
        ) from None
    return listening


def address_of(settings: PortalSettings, listening: socket.socket) -> str:
    """For the address bar."""
    host = SHOWN_HOSTS.get(settings.host, settings.host)
    host = f"[{host}]" if ":" in host else host
    scheme = "https" if settings.uses_tls else "http"
    return f"{scheme}://{host}:{listening.getsockname()[1]}"
