"""Ports: a socket that is bound is its owner's alone, before it listens as well."""

import socket

import pytest

from twinbus.errors import ArgumentError
from twinbus.server import sockets
from twinbus.server.sockets import bind, port_of, start_listening

HOST = "127.0.0.1"


def test_a_free_port_is_not_given_twice_while_nobody_listens_on_it_yet(monkeypatch: pytest.MonkeyPatch) -> None:
    with bind(HOST, 0) as first:
        monkeypatch.setattr(sockets, "FREE_PORTS", [port_of(first)])
        monkeypatch.setattr(sockets, "FREE_PORT_TRIES", 1)
        with bind(HOST, 0) as second:
            assert port_of(second) != port_of(first)


def test_a_port_that_is_bound_refuses_connections_until_it_is_listened_on() -> None:
    with bind(HOST, 0) as sock:
        with pytest.raises(ConnectionRefusedError):
            socket.create_connection((HOST, port_of(sock)), timeout=5)
        start_listening(sock, 1)
        socket.create_connection((HOST, port_of(sock)), timeout=5).close()


def test_a_port_in_use_is_named() -> None:
    with bind(HOST, 0) as sock:
        start_listening(sock, 1)
        with pytest.raises(ArgumentError, match=f"Port {port_of(sock)} on {HOST} is in use"):
            bind(HOST, port_of(sock))


def test_of_two_that_were_given_one_port_the_second_to_listen_is_told() -> None:
    with bind(HOST, 0) as first, bind(HOST, port_of(first)) as second:
        start_listening(first, 1)
        with pytest.raises(ArgumentError, match=f"Port {port_of(first)} on {HOST} is in use"):
            start_listening(second, 1)


def test_a_port_serves_again_at_once_after_connections_to_it_have_ended() -> None:
    with bind(HOST, 0) as sock:
        port = port_of(sock)
        start_listening(sock, 1)
        with socket.create_connection((HOST, port), timeout=5) as client:
            sock.accept()[0].close()  # the side that closes first is the one whose port is kept for a while
            assert client.recv(1) == b""
    with bind(HOST, port) as again:
        start_listening(again, 1)
