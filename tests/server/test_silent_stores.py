"""A store that is open, and whose database hangs, is reported: nothing is handed over from it."""

import json

from starlette.requests import Request

from twinbus.clock import boot_time
from twinbus.http.own.health import HealthPage
from twinbus.http.own.other_nodes import NO_OTHERS
from twinbus.http.own.store_records import StoreRecords
from twinbus.own_hosts import OwnHosts
from twinbus.server.stores.leases import HeldLease
from twinbus.server.stores.served_store import ServedStore, StoreCondition

REQUEST = {"type": "http", "method": "GET", "path": "/health", "headers": [(b"host", b"localhost")]}


def open_store(index: int) -> tuple[ServedStore, HeldLease]:
    store = ServedStore(index, lambda _, __: None, lambda _: None)
    store.condition, lease = StoreCondition.UP, HeldLease()
    store.lease = lease
    return store, lease


async def test_a_store_whose_lease_is_not_renewed_is_unhealthy() -> None:
    (first, held), (second, lapsed) = open_store(0), open_store(1)
    page = HealthPage("contoso", StoreRecords([first, second], NO_OTHERS), OwnHosts(()))
    held.until = lapsed.until = boot_time() + 60

    async def health() -> tuple[int, str, dict[str, str]]:
        answer = await page.show(Request(REQUEST))
        said = json.loads(bytes(answer.body))
        return answer.status_code, said["status"], said["unhealthy_stores"]

    assert await health() == (200, "healthy", {})
    lapsed.until = boot_time()
    assert await health() == (200, "limited", {"1": "silent"})
    held.until = 0.0
    assert await health() == (503, "unavailable", {"0": "silent", "1": "silent"})
    second.condition = StoreCondition.TAKEN
    assert await health() == (503, "unavailable", {"0": "silent", "1": "taken"})
    assert not first.is_up
