"""Whether a Spark master can be: its address in, an error in one line out, before anything looks for it.

Spark itself answers an invalid master with a Java stack trace, and keeps trying one that does not answer: a minute for a
cluster, several for a Connect server.
"""

import re
import socket
from collections.abc import Iterator

from twinbus.errors import ArgumentError, MessagingError

CONNECT_SCHEME = "sc://"
CONNECT_PORT = 15002  # of Spark, where none is given
CLUSTER_SCHEME = "spark://"
CLUSTER_PORT = 7077
ANSWER_S_MAX = 5.0
# Any address: cluster managers that are plugged into Spark have schemes of their own.
_FORM = re.compile(r"local(\[(\*|\d+)(,\s*\d+)?\])?|local-cluster\[.+\]|yarn|[a-z][\w.+-]*://[^\s/].*")


class MasterUnavailable(MessagingError):
    """Nothing listens where the master should be."""


def check_master(master: str) -> None:
    """Raises ArgumentError or MasterUnavailable. What cannot be asked from here is left to Spark."""
    if _FORM.fullmatch(master) is None:
        raise ArgumentError(
            f"'{master}' is not a Spark master. Write local[*], local[4], spark://HOST:PORT, yarn, k8s://URL or sc://HOST:PORT."
        )
    places = list(_places(master))
    if places and all(map(_is_refused, places)):
        named = " or ".join(dict.fromkeys(f"{host}:{port}" for host, port in places))
        raise MasterUnavailable(f"Nothing listens at {named}. Start Spark there, or check --master.")


def _places(master: str) -> Iterator[tuple[str, int]]:
    scheme, port_usual = (
        (CLUSTER_SCHEME, CLUSTER_PORT) if master.startswith(CLUSTER_SCHEME) else (CONNECT_SCHEME, CONNECT_PORT)
    )
    if not master.startswith(scheme):
        return
    for place in master.removeprefix(scheme).partition("/")[0].split(","):
        host, _, port = place.rpartition(":") if ":" in place else (place, "", "")
        yield host, int(port) if port.isdecimal() else port_usual


def _is_refused(place: tuple[str, int]) -> bool:
    try:
        socket.create_connection(place, ANSWER_S_MAX).close()
    except ConnectionRefusedError:
        return True
    except (OSError, OverflowError):
        return False
    return False
