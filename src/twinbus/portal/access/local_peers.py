"""Whose connection it is: the two ends of a connection on loopback in, whether it belongs to this user out.

The portal has keys that only its user may read, and any user of the machine can connect to loopback. Linux says of every socket whose
it is; elsewhere nothing is known, and everyone on loopback is taken for the user.
"""

import os
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"
ROOT = 0


def is_own(client_port: int, server_port: int) -> bool:
    """Root counts as this user. A socket that its owner has closed belongs to nobody, and so not to us."""
    known = False
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        known = True
        for line in lines:
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid ...
            fields = line.split()
            if _port(fields[1]) == client_port and _port(fields[2]) == server_port and fields[3] == ESTABLISHED:
                return int(fields[7]) in (os.geteuid(), ROOT)
    return not known


def _port(address: str) -> int:
    return int(address.rpartition(":")[2], 16)
