"""Requests to a twinbus namespace over HTTP beyond Azure's own API (stores, faults, the meter), as JSON."""

import json
import time
from collections.abc import Callable, Sequence
from http.client import HTTPException
from pathlib import Path
from typing import Any
from urllib.error import HTTPError, URLError
from urllib.parse import quote
from urllib.request import Request, urlopen

from twinbus.client.connecting.connection_string import ConnectionString, parse_connection_string
from twinbus.client.connecting.token_sources import sign
from twinbus.client.connecting.trust import tls_context
from twinbus.errors import MessagingError

TIMEOUT_S = 10.0
FLUSH_TIMEOUT_S = 60.0
"""For /$meter/flush: the log becomes Parquet in a process that gives way to everything else on the machine."""
TOKEN_LIFE_S = 60


class NamespaceRefused(MessagingError):
    """The namespace refuses the request, or does not answer."""


def endpoint_of(target: ConnectionString) -> str:
    """The HTTP address of a namespace: the port of AMQP takes HTTP too."""
    host = f"[{target.host}]" if ":" in target.host else target.host
    return f"{'https' if target.uses_tls else 'http'}://{host}:{target.http_port}"


def ask(
    connection_string: str,
    endpoint: str,
    method: str,
    path: str,
    body: object = None,
    authorities: Sequence[Path] = (),
    *,
    timeout_s: float = TIMEOUT_S,
) -> Any:
    """The answer, as JSON. The request is signed with the key of the connection string, or has its signature."""
    request = _signed(connection_string, endpoint + path, method)
    request.data = None if body is None else json.dumps(body).encode()
    return _answer(request, endpoint, json.load, authorities, timeout_s)


def read_description(connection_string: str, endpoint: str, entity: str) -> str:
    """The XML of one entity, or an empty feed if there is none: for callers that need no more of the administration API."""
    request = _signed(connection_string, f"{endpoint}/{quote(entity)}?api-version=2021-05", "GET")
    return str(_answer(request, endpoint, lambda answer: answer.read().decode(errors="replace"), (), TIMEOUT_S))


def _signed(connection_string: str, url: str, method: str) -> Request:
    parsed = parse_connection_string(connection_string)
    token = parsed.signature or sign(
        f"sb://{parsed.host}", parsed.key_name, parsed.key, int(time.time()) + TOKEN_LIFE_S
    )
    return Request(url, headers={"Authorization": token}, method=method)


def _answer(
    request: Request, endpoint: str, read: Callable[[Any], Any], authorities: Sequence[Path], timeout_s: float
) -> Any:
    try:
        context = tls_context(authorities) if endpoint.startswith("https:") else None
        with urlopen(request, timeout=timeout_s, context=context) as answer:
            return read(answer)
    except HTTPError as refused:
        raise NamespaceRefused(_reason(refused, endpoint)) from None
    except (OSError, ValueError, HTTPException) as fault:
        reason = fault.reason if isinstance(fault, URLError) else fault
        raise NamespaceRefused(f"No namespace answers at {endpoint}: {_in_words(reason)}. Is it running?") from None


def _in_words(reason: object) -> str:
    """Without the number that the system has for it."""
    return (isinstance(reason, OSError) and reason.strerror) or str(reason)


def _reason(refused: HTTPError, endpoint: str) -> str:
    otherwise = f"{endpoint} refused with status {refused.code}. Is it a twinbus namespace?"
    try:
        said = json.load(refused)
    except ValueError:
        return otherwise
    return str(said.get("error", otherwise)) if isinstance(said, dict) else otherwise
