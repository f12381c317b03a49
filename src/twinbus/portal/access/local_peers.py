"""Whose connection it is: the two ends of a connection on loopback in, whether it belongs to this user out.

The portal has keys that only its user may read, and any user of the machine can connect to loopback. Linux says of every socket whose
it is; elsewhere nothing is known, and everyone on loopback is taken for the user.
"""

import os
import sys
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path

TABLES = (Path("/proc/net/tcp"), Path("/proc/net/tcp6"))
ESTABLISHED = "01"
ROOT = 0
MAPPED = bytes(10) + b"\xff\xff"

End = tuple[str, int]
"""Address and port."""


def is_own(client: End, server: End) -> bool:
    """Root counts as this user. A socket that its owner has closed belongs to nobody, and so not to us.

    Both ends count as a whole: another user may connect from the port of this user's browser and another address of loopback.
    """
    known = False
    clients, servers = _written(client), _written(server)
    for table in TABLES:
        try:
            lines = table.read_text().splitlines()[1:]
        except OSError:
            continue
        known = True
        for line in lines:
            # sl local_address rem_address st tx:rx tr:when retrnsmt uid ...
            fields = line.split()
            if fields[1] in clients and fields[2] in servers and fields[3] == ESTABLISHED:
                return int(fields[7]) in (os.geteuid(), ROOT)
    return not known


def _written(end: End) -> set[str]:
    """As the tables have it: words in the order of this machine. An IPv6 socket shows an IPv4 address in its own way."""
    address = ip_address(end[0])
    if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
        address = address.ipv4_mapped
    forms = [address.packed]
    if isinstance(address, IPv4Address):
        forms.append(MAPPED + address.packed)
    return {f"{_words(each)}:{end[1]:04X}" for each in forms}


def _words(packed: bytes) -> str:
    words = (packed[start : start + 4] for start in range(0, len(packed), 4))
    return "".join(f"{int.from_bytes(word, sys.byteorder):08X}" for word in words)
