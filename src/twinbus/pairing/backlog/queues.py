"""Backlog queues by name and by description: which exist, which are missing, how one is created.

`<primary name>/x-servicebus-transfer/<index>` on the secondary, index from [0, count). The
names tie a queue to its primary, so one secondary can serve several.
"""

import ipaddress
from collections.abc import Iterable
from datetime import timedelta
from typing import Any

from twinbus.model.paths import path_key
from twinbus.model.wire_names import TRANSFER_SEGMENT

CREATE_TRIES_MAX = 3
LOCK_DURATION = timedelta(minutes=1)

# The service's longest duration, to the tick; a timedelta would round it to microseconds.
FOREVER = "P10675199DT2H48M5.4775807S"

DESCRIPTION: dict[str, Any] = {
    "max_size_in_megabytes": 5120,
    "max_delivery_count": 2147483647,
    "default_message_time_to_live": FOREVER,
    "auto_delete_on_idle": FOREVER,
    "lock_duration": LOCK_DURATION,
    "dead_lettering_on_message_expiration": True,
    "enable_batched_operations": True,
}
"""Keyword arguments of the SDK's `create_queue`; what is not named here is the service's default."""


def primary_name(fully_qualified_namespace: str) -> str:
    """`contoso` for contoso.servicebus.windows.net. A local namespace is known by host and port, where it has one."""
    host, _, port = fully_qualified_namespace.rpartition(":")
    if port.isdigit():
        # An address of the sixth version has what no path may have, and no path begins with a dash.
        return f"{host.strip('[]').replace(':', '-').lstrip('-')}-{port}"
    try:
        ipaddress.ip_address(fully_qualified_namespace)
    except ValueError:
        return fully_qualified_namespace.split(".")[0]
    return fully_qualified_namespace


def backlog_queue_path(primary: str, index: int) -> str:
    return f"{primary}/{TRANSFER_SEGMENT}/{index}"


def existing_indexes(primary: str, queue_names: Iterable[str]) -> set[int]:
    """The indexes of this primary's backlog queues among all queues of the secondary."""
    own, names = path_key(f"{primary}/{TRANSFER_SEGMENT}"), (name.rpartition("/") for name in queue_names)
    tails = (tail for head, _, tail in names if path_key(head) == own)
    # "07" is somebody else's queue: our names have no leading zeros.
    return {int(tail) for tail in tails if tail.isascii() and tail.isdigit() and str(int(tail)) == tail}
