"""Requests to a twinbus namespace over HTTP beyond Azure's own API (stores, faults, the meter), as JSON."""

import json
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from twinbus.client.connection_string import parse_connection_string
from twinbus.client.token_sources import sign
from twinbus.client.trust import tls_context
from twinbus.errors import MessagingError

TIMEOUT_S = 10.0
TOKEN_LIFE_S = 60


class NamespaceRefused(MessagingError):
    """The namespace refuses the request, or does not answer."""


def ask(connection_string: str, endpoint: str, method: str, path: str, body: object = None) -> Any:
    """The answer, as JSON. The request is signed with the key of the connection string."""
    parsed = parse_connection_string(connection_string)
    token = sign(f"sb://{parsed.host}", parsed.key_name, parsed.key, int(time.time()) + TOKEN_LIFE_S)
    data = None if body is None else json.dumps(body).encode()
    request = Request(endpoint + path, data, {"Authorization": token}, method=method)
    try:
        context = tls_context() if endpoint.startswith("https:") else None
        with urlopen(request, timeout=TIMEOUT_S, context=context) as answer:
            return json.load(answer)
    except HTTPError as refused:
        raise NamespaceRefused(_reason(refused, endpoint)) from None
    except (OSError, ValueError) as fault:
        raise NamespaceRefused(f"No namespace answers at {endpoint}: {fault}. Is it running?") from None


def _reason(refused: HTTPError, endpoint: str) -> str:
    otherwise = f"{endpoint} refused with status {refused.code}. Is it a twinbus namespace?"
    try:
        said = json.load(refused)
    except ValueError:
        return otherwise
    return str(said.get("error", otherwise)) if isinstance(said, dict) else otherwise
