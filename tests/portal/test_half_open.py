"""Strangers at the portal's door: connections that are left open, and requests without an end."""

import socket

import pytest

from tests.portal.running_portal import RunningPortal
from twinbus import bounded_http
from twinbus.portal import form_body, serving

WAIT_S = 20.0


def connected(portal: RunningPortal, start: bytes) -> socket.socket:
    host, _, port = portal.address.rpartition("/")[2].partition(":")
    connection = socket.create_connection((host, int(port)), timeout=WAIT_S)
    connection.sendall(start)
    return connection


def answer(connection: socket.socket) -> bytes:
    """Everything until the portal ends the connection."""
    data = b""
    try:
        while part := connection.recv(65_536):
            data += part
    except ConnectionResetError:
        pass
    connection.close()
    return data


@pytest.mark.parametrize("start", [b"", b"GET / HT", b"GET / HTTP/1.1\r\nHost: localhost\r\n"])
def test_a_request_whose_headers_do_not_end_is_given_up(monkeypatch: pytest.MonkeyPatch, start: bytes) -> None:
    monkeypatch.setattr(bounded_http, "HEADERS_WAIT_S", 0.1)
    with RunningPortal([]) as portal:
        assert answer(connected(portal, start)) == b""


def test_headers_without_an_end_are_refused() -> None:
    with RunningPortal([]) as portal:
        flood = connected(portal, b"GET / HTTP/1.1\r\nHost: localhost\r\n")
        line = b"x-name: " + b"x" * 1_000 + b"\r\n"
        try:
            for _ in range(2 * bounded_http.HEADERS_SIZE_MAX // len(line)):
                flood.sendall(line)
        except (BrokenPipeError, ConnectionResetError):
            pass  # it does not read to the end
        assert answer(flood)[:12] in (b"HTTP/1.1 400", b"")


def test_a_form_that_does_not_arrive_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(form_body, "WAIT_S", 0.1)
    with RunningPortal([]) as portal:
        origin = portal.address.encode()
        head = b"POST /login HTTP/1.1\r\nHost: " + origin.rpartition(b"/")[2] + b"\r\nOrigin: " + origin
        head += (
            b"\r\nContent-Type: application/x-www-form-urlencoded\r\nContent-Length: 100\r\nConnection: close\r\n\r\n"
        )
        assert answer(connected(portal, head + b"a=b"))[:9] == b"HTTP/1.1 "


def test_connections_that_are_left_open_keep_nobody_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(serving, "IDLE_MAX", 10)
    with RunningPortal([]) as portal:
        left_open = [connected(portal, b"") for _ in range(30)]
        assert portal.client().get("/").status_code == 200
        for connection in left_open[:20]:
            assert answer(connection) == b""
        for connection in left_open[20:]:
            connection.close()
