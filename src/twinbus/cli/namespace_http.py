"""Requests of the command line to the HTTP side of a namespace that runs on this machine, signed with its own key."""

import json
import time
from typing import Any
from urllib.error import HTTPError
from urllib.request import Request, urlopen

from twinbus.cli.failure import CommandFailed
from twinbus.cli.running import RunningNamespace
from twinbus.client.connection_string import parse_connection_string
from twinbus.client.shared_access import sign

TIMEOUT_S = 10.0
TOKEN_LIFE_S = 60


def ask(running: RunningNamespace, method: str, path: str, body: object = None) -> Any:
    """The JSON that it answers. What it refuses, and a namespace that is not there, raise CommandFailed."""
    parsed = parse_connection_string(running.connection_string)
    token = sign(f"sb://{parsed.host}", parsed.key_name, parsed.key, int(time.time()) + TOKEN_LIFE_S)
    data = None if body is None else json.dumps(body).encode()
    request = Request(running.endpoint + path, data, {"Authorization": token}, method=method)
    try:
        with urlopen(request, timeout=TIMEOUT_S) as answer:
            return json.load(answer)
    except HTTPError as refused:
        raise CommandFailed(json.load(refused).get("error", f"'{running.name}' refused: {refused}.")) from None
    except (OSError, ValueError) as fault:
        raise CommandFailed(f"'{running.name}' does not answer at {running.endpoint}: {fault}.") from None
