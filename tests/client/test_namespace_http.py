"""Requests over HTTP beyond Azure's own API, against sockets of our own."""

import socket

import pytest

from twinbus.client import namespace_http
from twinbus.client.namespace_http import NamespaceRefused

CONNECTION_STRING = "Endpoint=sb://127.0.0.1:1;SharedAccessKeyName=RootManageSharedAccessKey;SharedAccessKey=a2V5;UseDevelopmentEmulator=true;"


def test_an_answer_is_waited_for_as_long_as_the_request_may_take() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        endpoint = f"http://127.0.0.1:{silent.getsockname()[1]}"
        with pytest.raises(NamespaceRefused, match="timed out"):
            namespace_http.ask(CONNECTION_STRING, endpoint, "POST", "/$meter/flush", timeout_s=0.05)
