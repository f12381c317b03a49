"""Ending a call of the SDK that is blocked on its socket, from another thread."""

import contextlib
import socket


def interrupt(stock: object) -> None:
    """Shut down the socket of a stock sender or receiver: what blocks on it fails as for a lost connection."""
    # There is no public way to a blocked connection; `close` waits for it or does not see it.
    connection = getattr(getattr(stock, "_handler", None), "_connection", None)
    connected = getattr(getattr(connection, "_transport", None), "sock", None)
    raw = getattr(connected, "sock", connected)  # a WebSocket wraps the socket once more
    if isinstance(raw, socket.socket):
        with contextlib.suppress(OSError):
            raw.shutdown(socket.SHUT_RDWR)
